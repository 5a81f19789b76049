"""Solo5's tender hvt: the unikernel is a minimal KVM guest, without firmware, emulated devices or Linux.

The unikernel is tare's server `micro` with the network stack smoltcp. QEMU proves that KVM works, as for
`qemu`; without QEMU, the unikernel does, once it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.guests import kvm
from tare.guests.unikernel import READY_LINE, Solo5
from tare.hosts.host import Host
from tare.images.micro import has_unikernels, unikernels_folder
from tare.model.errors import TrialFailed
from tare.model.isolation import Isolation
from tare.model.trial import Problem
from tare.plugins.technology import find_missing_tools

_PROBE_SECONDS = 10.0
_ALTERNATIVE = "use solo5-spt"
# In a private network namespace, which disappears with the tender, so that nothing needs a cleanup.
_PROBE = 'ip tuntap add dev tap mode tap && ip link set tap up && exec "$@"'
_QEMU = {kvm.PROGRAM: "qemu-system-x86"}
_UNPROVED = Problem(
    f"KVM is there, but the unikernel does not serve on it within {_PROBE_SECONDS:g} s",
    f"{_ALTERNATIVE} here; look at the kernel's log and at the machine around this one",
)


@dataclass(frozen=True)
class Solo5Hvt(Solo5):
    """`micro` in a minimal guest of KVM."""

    name = "solo5-hvt"
    title = "Solo5 hvt (KVM)"
    isolation = Isolation("own kernel", "a unikernel on a small monitor: one application with its kernel")
    needs = "KVM that boots a guest"
    tested = "emulated"
    needs_kvm = True
    tender = "solo5-hvt"
    process_names = (tender,)
    file = "micro.hvt"

    def acceleration_problems(self, host: Host) -> Sequence[Problem]:
        """Return the problem that prevents the use of KVM, or ()."""
        if host.run("test", "-w", "/dev/kvm", timeout=10, check=False).exit_code == 0 and find_missing_tools(
            host, _QEMU
        ):
            if not has_unikernels(host, self.build) or self._can_boot(host):
                return ()
            return kvm.pvm_problems(_ALTERNATIVE) if kvm.is_pvm(host) else (_UNPROVED,)
        return kvm.problems(host, _ALTERNATIVE)

    def _can_boot(self, host: Host) -> bool:
        """Return whether the unikernel boots and serves."""
        folder = unikernels_folder(host, self.build)
        tender = (f"{folder}/{self.tender}", "--mem=32", "--net:net=tap", "--", f"{folder}/{self.file}")
        command = ("unshare", "--net", "sh", "-c", _PROBE, "sh", *tender, "--ipv4=198.18.0.10/24")
        try:
            with host.spawn(*command) as console:
                while console.read_line(_PROBE_SECONDS).text.strip() != READY_LINE:
                    pass
        except TrialFailed:
            return False
        return True
