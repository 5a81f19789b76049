"""Overhead of an idle pod on its node: the amounts that Kubernetes' RuntimeClass declares as `overhead.podFixed`."""

from tare.plugins.feature import Feature

FEATURE = Feature(
    formats={"yaml": "overhead:render"},
    default_formats=("yaml",),
    sections=("overhead:section",),
    markdown=("overhead:markdown",),
)
