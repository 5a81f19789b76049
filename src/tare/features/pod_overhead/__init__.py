"""The overhead that a pod sandbox needs, as Kubernetes' RuntimeClass declares it."""

from tare.plugins.feature import Feature

FEATURE = Feature(formats={"yaml": "pod_text:render"}, sections=("pod_text:section",), markdown=("pod_text:markdown",))
