"""From a chart's specification to SVG inside a page, without scripts."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import vl_convert

from tare.report.looks import FONT, INK, Spec

_SVG = "http://www.w3.org/2000/svg"
# A chart is drawing alone; whatever else a renderer may emit one day is left out.
_PLACES = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height")
_LONG = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")
_CIRCLE = re.compile(r"M([\d.]+),0A\1,\1,0,1,1,-\1,0A\1,\1,0,1,1,\1,0")
_EMPTY = ("", "M0,0h0v0h0Z")
# Attributes that are left out: always, or where they have the usual value.
_USUAL = {
    "class": "",
    "pointer-events": "",
    "opacity": "1",
    "font-family": FONT,
    "font-size": "13px",
    "stroke-width": "1",
    "x2": "0",
    "y2": "0",
    "transform": "translate(0,0)",
}
_DRAWN = {"svg", "g", "path", "rect", "line", "circle", "text", "tspan", "title", "defs", "clipPath", "symbol", "use"}


def draw(spec: Spec, prefix: str, description: str) -> str:
    """Draw a specification for a page. `prefix` keeps the identifiers of several charts in one page apart."""
    return inline(vl_convert.vegalite_to_svg(spec), prefix, description)


def inline(svg: str, prefix: str, description: str) -> str:
    """Make a drawing part of a page: text in the page's colour, marks with a title for the pointer, no clashing names.

    The drawing is parsed and written anew, so that what an untrusted run folder put into a name stays text.
    """
    ET.register_namespace("", _SVG)
    root = ET.fromstring(svg)  # noqa: S314  # our own renderer's output, not untrusted
    _keep_drawing(root)
    for element in root.iter():
        _rename(element, prefix)
        _follow_ink(element)
        _give_title(element)
        _shorten(element)
        _join(element)
    for name in ("aria-label", "aria-roledescription"):
        root.attrib.pop(name, None)
    root.set("class", "chart")
    root.set("font-family", FONT)
    root.set("font-size", "13px")
    root.set("role", "img")
    root.set("aria-label", description)
    root.set("style", f"max-width:{root.attrib.pop('width', '100%')}px")
    root.attrib.pop("height", None)
    return ET.tostring(root, encoding="unicode")


def _keep_drawing(element: ET.Element) -> None:
    for child in list(element):
        if child.tag.removeprefix(f"{{{_SVG}}}") in _DRAWN:
            _keep_drawing(child)
        else:
            element.remove(child)


def _rename(element: ET.Element, prefix: str) -> None:
    if "id" in element.attrib:
        element.set("id", f"{prefix}-{element.get('id')}")
    for name, value in element.attrib.items():
        element.set(name, re.sub(r"url\(['\"]?#([^)'\"]+)['\"]?\)", rf"url(#{prefix}-\1)", value))


def _follow_ink(element: ET.Element) -> None:
    for name in ("fill", "stroke"):
        if element.get(name, "").lower() == INK:
            element.set(name, "currentColor")


def _shorten(element: ET.Element) -> None:
    """Round places to a tenth of a pixel, and leave out attributes and elements that show nothing."""
    for name in _PLACES:
        if name in element.attrib:
            element.set(name, _LONG.sub(lambda found: f"{float(found[0]):.1f}", element.attrib[name]))
    if circle := _CIRCLE.fullmatch(element.get("d", "")):
        element.tag = f"{{{_SVG}}}circle"
        element.set("r", circle[1])
        del element.attrib["d"]
    for name, usual in _USUAL.items():
        if element.get(name) == usual or not usual:
            element.attrib.pop(name, None)
    if "stroke" not in element.attrib:
        element.attrib.pop("stroke-width", None)
    for child in list(element):
        if child.get("d") in _EMPTY or (child.tag == f"{{{_SVG}}}text" and not (child.text or len(child))):
            element.remove(child)


def _join(element: ET.Element) -> None:
    """Make one path of those that follow each other and look alike: the bars of a strip are thousands."""
    last: ET.Element | None = None
    for child in list(element):
        if last is not None and _alike(last, child):
            last.set("d", last.attrib["d"] + child.attrib["d"])
            element.remove(child)
        else:
            last = child


def _alike(one: ET.Element, other: ET.Element) -> bool:
    """Return whether two opaque shapes are of one look; what lies upon each other stays apart if it is translucent."""
    looks = [{**each.attrib, "d": ""} for each in (one, other)]
    plain = all("d" in each.attrib and not len(each) for each in (one, other))
    return plain and looks[0] == looks[1] and looks[0].keys() <= {"d", "fill", "stroke-width"}


def _give_title(element: ET.Element) -> None:
    """Turn a mark's label into a title, which browsers show as a tooltip; axes and groups say nothing new."""
    label = element.attrib.pop("aria-label", "")
    described = element.attrib.pop("aria-roledescription", "")
    if element.attrib.pop("role", "") == "graphics-symbol" and described not in ("axis", "legend", "title") and label:
        title = ET.Element(f"{{{_SVG}}}title")
        title.text = label
        element.insert(0, title)
