"""Overhead of an idle pod on its node: the amounts that Kubernetes' RuntimeClass declares as `overhead.podFixed`."""

from tare.plugins.feature import Feature

FEATURE = Feature(
    formats={"yaml": "pod_text:render"},
    default_formats=("yaml",),
    sections=("pod_text:section",),
    markdown=("pod_text:markdown",),
)
