"""What the programs of this folder share: each stands in for the tool whose name it has, which cannot be had here.

It checks its arguments as the tool does, keeps what the tool keeps between calls in the folder TARE_STAND_INS, and
where the tool would run a machine it runs QEMU's emulation of one with the same kernel, disk, network and serial port.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any, NoReturn

QEMU = ("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-no-user-config")
QUIET = ("-display", "none", "-no-reboot")
_QMP = "qmp.sock"  # in the machine's folder, where the tool runs


def fail(text: str, code: int) -> NoReturn:
    """End as the tool does when it refuses something."""
    sys.stderr.write(f"{text}\n")
    sys.exit(code)


def state(name: str) -> Path:
    """Return a file that outlives the call."""
    return Path(os.environ["TARE_STAND_INS"]) / name


def load(name: str) -> dict[str, dict[str, str]]:
    """Read what earlier calls have kept."""
    path = state(name)
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def save(name: str, machines: dict[str, dict[str, str]]) -> None:
    """Keep something for later calls."""
    state(name).write_text(json.dumps(machines))


def is_elf(path: str) -> bool:
    """Return whether a kernel is uncompressed."""
    with Path(path).open("rb") as file:
        return file.read(4) == b"\x7fELF"


def has_card(name: str) -> bool:
    """Return whether there is a network card of this name in our network namespace."""
    return any(line.split(":")[0].strip() == name for line in Path("/proc/self/net/dev").read_text().splitlines())


def bridged(card: str) -> tuple[str, tuple[str, ...]]:
    """Connect a tap of the machine's with a card of the host's, as the kernel modules of the tools do.

    Gives the tap, and the prefix that runs a command where it is: in a namespace of our own, because a firewall beside
    us, such as Docker's, may look at what passes a bridge of the host.
    """
    place, tap = f"{card}n", f"{card}t"
    run("ip", "netns", "add", place)
    run("ip", "link", "set", card, "netns", place)
    run("ip", "-n", place, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "stp_state", "0")
    run("ip", "-n", place, "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr")
    for port in (card, tap):
        run("ip", "-n", place, "link", "set", port, "master", "bridge", "up")
    run("ip", "-n", place, "link", "set", "bridge", "up")
    return f"tap,id=net,ifname={tap},script=no,downscript=no", ("nsenter", f"--net=/run/netns/{place}", "--")


def unbridged(card: str) -> None:
    """Take a machine's tap away, and the card with it."""
    subprocess.run(("ip", "netns", "delete", f"{card}n"), capture_output=True, check=False)


def run(*command: str) -> None:
    """Run a command that has to succeed."""
    subprocess.run(command, check=True)


def running(pid: str) -> bool:
    """Return whether a process is there and has not ended; an empty text is none."""
    try:
        return bool(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class RefusedError(Exception):
    """An API's refusal of a request."""


class Emulated:
    """A machine that an API pauses, saves and resumes; `words` are QEMU's, in the form that a snapshot keeps."""

    def __init__(self) -> None:
        self.words: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._begun = threading.Event()

    def start(self, words: Sequence[str], memory: str = "") -> None:
        """Start QEMU, with the memory of a snapshot where a file is named."""
        self.words = words
        incoming = ("-incoming", f"exec:cat {memory}") if memory else ()
        monitor = ("-qmp", f"unix:{_QMP},server=on,wait=off")
        self._process = subprocess.Popen((*QEMU, *QUIET, *words, *monitor, *incoming))
        self._begun.set()

    def wait(self) -> int:
        """Return QEMU's exit code once it has been started, and has ended."""
        self._begun.wait()
        assert self._process
        return self._process.wait()

    def pause(self) -> None:
        self._execute("stop")

    def resume(self) -> None:
        """Run a paused machine, or one whose memory is still being read."""
        while self._execute("query-status")["status"] == "inmigrate":
            time.sleep(0.01)
        self._execute("cont")

    def save(self, memory: str) -> None:
        """Write the memory of a paused machine to a file."""
        if self._execute("query-status")["status"] != "paused":
            raise RefusedError("the machine is not paused")
        self._execute("migrate", uri=f"exec:cat >{memory}")
        while (status := self._execute("query-migrate")["status"]) != "completed":
            if status == "failed":
                raise RefusedError("the memory was not written")

    def _execute(self, command: str, **arguments: str) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as monitor:
            while monitor.connect_ex(_QMP):
                time.sleep(0.01)
            with monitor.makefile("rw") as lines:
                lines.readline()  # its greeting
                for name, words in (("qmp_capabilities", {}), (command, arguments)):
                    lines.write(json.dumps({"execute": name, "arguments": words}) + "\n")
                    lines.flush()
                    while "event" in (answer := json.loads(lines.readline())):
                        pass
        result: dict[str, Any] = answer["return"]
        return result


def serve(path: str, handle: Callable[[str, str, Mapping[str, Any]], None]) -> None:
    """Serve an API on a Unix socket in the background; `handle` gets method, path and body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            try:
                handle(self.command, self.path, json.loads(body or b"{}"))
            except (RefusedError, OSError) as error:
                self.send_response(400)
                text = json.dumps({"fault_message": str(error)}).encode()
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            else:
                self.send_response(204)
                self.end_headers()

        def do_PATCH(self) -> None:
            self.do_PUT()

        def log_message(self, *_: object) -> None:
            """Print nothing: the client of a Unix socket has no address."""

    threading.Thread(target=UnixStreamServer(path, Handler).serve_forever, daemon=True).start()
