"""Prometheus's text format 0.0.4 without times: what each stack used for a workload, all its trials together.

It is for what Prometheus collects later: the node exporter's textfile collector, and the Pushgateway. Both refuse
times. Blocks and trials are added up, as each would be a series that is collected for as long as the file is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from tare.exports.families import FAMILIES, Family, measured, series
from tare.exports.samples import Labels, Sample

SAMPLED = Family("tare_sampled_seconds", "counter", "seconds", "Time over which all else was counted.")

_ADDED_UP = {"block", "trial"}


def texts(samples: Iterable[Sample]) -> Iterator[str]:
    """Write the sum of each counter, and the largest value of each gauge."""
    found: dict[Family, dict[str, float]] = {family: {} for family in (SAMPLED, *FAMILIES)}
    for _, of_one in groupby(samples, key=lambda sample: sample.labels):
        for (family, name), value in _used(of_one).items():
            known = found[family]
            known[name] = max(known.get(name, value), value) if family.kind == "gauge" else known.get(name, 0) + value
    for family, values in found.items():
        if values:
            yield f"# HELP {family.metric} {family.about}\n# TYPE {family.metric} {family.kind}\n"
            yield from (f"{name} {value!r}\n" for name, value in values.items())


def _used(samples: Iterable[Sample]) -> dict[tuple[Family, str], float]:
    """Return the largest value of each series; a counter begins at 0, and only grows."""
    found: dict[tuple[Family, str], float] = {}
    began = 0
    for sample in samples:
        began = began or sample.nanoseconds
        labels: Labels = tuple(label for label in sample.labels if label[0] not in _ADDED_UP)
        found[SAMPLED, series(SAMPLED, labels)] = (sample.nanoseconds - began) / 1e9
        for family, own, value in measured(sample):
            key = family, series(family, labels, own)
            found[key] = max(found.get(key, value), value)
    return found
