"""Client of a Kubernetes cluster: kubectl with request timeouts, and its error messages as exceptions with hints.

Requests name the resource's path (`--raw`). kubectl then sends no other request, such as for the list of resource
types, so that a server that does not respond costs one timeout only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tare.hosts.host import Host
from tare.hosts.streams import last_lines
from tare.model.errors import TimedOut, TrialFailed, Unschedulable
from tare.model.trial import Output

REQUEST_TIMEOUT_SECONDS = 5.0  # of the server's response
_GRACE_SECONDS = 5.0  # for the client to start and to end
# kubectl's text in front of the server's message.
_PREFIX = re.compile(r"^(?:Error from server(?: \((?P<reason>\w+)\))?|error): ")
_HINTS = (
    (r"server localhost:8080 was refused", "name the cluster: KUBECONFIG, or ~/.kube/config of the user who runs tare"),
    (r"[Cc]ontext \S+ does not exist|no context exists", "kubectl config get-contexts"),
    (r"exceeded quota", "give the stacks less in [limits], or raise the quota"),
    (r"RuntimeClass \S+ not found", "kubectl get runtimeclass"),
    (r"cannot \w+ resource|[Ff]orbidden", "ask the cluster's administrator, or name your namespace: namespace ="),
    (r"[Uu]nauthorized|provide credentials", "log in to the cluster again"),
    (r"already exists", "tare clean"),
)
_NO_ANSWER_HINT = "does the cluster run, and does kubectl use the right context? kubectl config current-context"


class ClusterError(TrialFailed):
    """Error response of the cluster; `reason` is the response's reason, such as `Forbidden`."""

    def __init__(self, message: str, hint: str, reason: str) -> None:
        super().__init__(message, hint)
        self.reason = reason


@dataclass(frozen=True)
class Kubectl:
    """kubectl on a host, with a context of its kubeconfig; "" for the current context."""

    host: Host
    context: str = ""

    def argv(self, *words: str) -> tuple[str, ...]:
        """Return a command line of kubectl."""
        context = (f"--context={self.context}",) if self.context else ()
        return ("kubectl", *context, *words)

    def get(self, path: str) -> dict[str, Any]:
        """Return the resource at a path; raises ClusterError if the cluster refuses, TrialFailed without a response."""
        return self._request("get", "--raw", path)

    def create(self, path: str, resource: dict[str, Any]) -> dict[str, Any]:
        """Create a resource below a path; return the created resource. Raises the same errors as `get`."""
        return self._request("create", "--raw", path, "--filename=-", text=json.dumps(resource))

    def watch_command(self, path: str) -> tuple[str, ...]:
        """Return the command that prints a JSON line per change of the resources at `path`, which must have a query."""
        return self.argv("get", "--raw", f"{path}&watch=1")

    def _request(self, *words: str, text: str = "") -> dict[str, Any]:
        seconds = f"--request-timeout={REQUEST_TIMEOUT_SECONDS:g}s"
        try:
            output = self.host.run(
                *self.argv(*words, seconds),
                timeout=REQUEST_TIMEOUT_SECONDS + _GRACE_SECONDS,
                input=text.encode(),
                check=False,
            )
        except TimedOut as error:
            raise TrialFailed(
                f"the cluster does not answer within {REQUEST_TIMEOUT_SECONDS:g} s", _NO_ANSWER_HINT
            ) from error
        if output.exit_code:
            raise translate_error(output)
        response = json.loads(output.text)
        return response if isinstance(response, dict) else {}


def translate_error(output: Output) -> TrialFailed:
    """Return kubectl's error message as an exception with a hint."""
    words = last_lines(output.stderr.decode("utf-8", "replace")) or f"kubectl: exit code {output.exit_code}"
    prefix = _PREFIX.match(words)
    what = words[prefix.end() :] if prefix else words
    if "Client.Timeout exceeded" in what or "i/o timeout" in what or "deadline exceeded" in what:
        return TrialFailed(f"the cluster does not answer within {REQUEST_TIMEOUT_SECONDS:g} s", _NO_ANSWER_HINT)
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, what)), "")
    if "exceeded quota" in what:
        return Unschedulable(f"the cluster refuses: {what}", hint)
    if prefix and prefix["reason"]:
        return ClusterError(f"the cluster refuses: {what}", hint or "`tare show` has the command", prefix["reason"])
    return TrialFailed(f"no answer of the cluster: {what}", hint or _NO_ANSWER_HINT)
