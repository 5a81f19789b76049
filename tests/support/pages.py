"""The page of a run, as tests read it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

from tare.model.run_folder import Run
from tare.report.writer import find_renderer
from tare.statistics.summarize import summarize


class Page(HTMLParser):
    """Collects the tags, their attributes and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def named(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


def rendered(run: Run, name: str) -> dict[str, str]:
    """Return the files of a report in this format, by their names."""
    return {file: content.decode() for file, content in find_renderer(name)(summarize(run), run).items()}


def html_of(run: Run) -> str:
    return rendered(run, "html")["index.html"]


def report_of(run: Run) -> Any:
    return json.loads(rendered(run, "json")["report.json"])
