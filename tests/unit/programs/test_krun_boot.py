"""`krun_boot`, compiled as in the image: what it calls in a library that stands in for libkrun and libkrunfw."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from compiled import call, compiled

WORDS = "root=/dev/vda init=/init"
MACHINE = ("2", "513", "tap0", "02:00:00:00:00:0a", WORDS, "/disk")
CALLS = f"""\
size 7 2 477
disk 7 root /disk 0
tap 7 tap0 02:00:00:00:00:0a 6531 0
console 7 /proc/self/fd/1
folder 7 / {WORDS}
start 7
"""
SOURCE = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#define CALLED(...) (printf(__VA_ARGS__), fflush(stdout), 0)
char *krunfw_get_kernel(uint64_t *address, uint64_t *entry, size_t *size) {
    *address = *entry = 16 << 20;
    *size = 20 << 20;
    return "";
}
int32_t krun_create_ctx(void) { return 7; }
int32_t krun_set_vm_config(uint32_t id, uint8_t cpus, uint32_t mib) { return CALLED("size %u %u %u\n", id, cpus, mib); }
#ifndef WITHOUT_DISKS
int32_t krun_add_disk(uint32_t id, const char *name, const char *path, _Bool read_only) {
    return CALLED("disk %u %s %s %d\n", id, name, path, read_only);
}
#endif
int32_t krun_add_net_tap(uint32_t id, const char *tap, const uint8_t *mac, uint32_t features, uint32_t flags) {
    return CALLED("tap %u %s %02x:%02x:%02x:%02x:%02x:%02x %u %u\n", id, tap, mac[0], mac[1], mac[2], mac[3], mac[4],
                  mac[5], features, flags);
}
int32_t krun_set_console_output(uint32_t id, const char *path) { return CALLED("console %u %s\n", id, path); }
int32_t krun_set_workdir(uint32_t id, const char *path) { return CALLED("folder %u %s\n", id, path); }
int32_t krun_start_enter(uint32_t id) { CALLED("start %u\n", id); return START; }
"""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "krun_boot") / "krun_boot"


def boot(
    program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, *settings: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the program with a library that is compiled with these settings, or without one if there are none."""
    if settings:
        library = ("gcc", "-shared", "-fPIC", *settings, "-x", "c", "-", "-o", str(folder / "libkrun.so.1"))
        subprocess.run(library, input=SOURCE.encode(), check=True, timeout=60)
        (folder / "libkrunfw.so.5").symlink_to("libkrun.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return call(program, *MACHINE)


def test_the_machine_gets_its_size_disk_tap_and_words(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = boot(program, tmp_path, monkeypatch, "-DSTART=0")
    assert (ended.returncode, ended.stdout.decode(), ended.stderr) == (0, CALLS, b"")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ((), "a library cannot be loaded: libkrun.so.1: "),
        (("-DSTART=0", "-DWITHOUT_DISKS"), "libkrun is too old, or built without disks and networks: "),
        (("-DSTART=-22",), "the machine cannot be started: Invalid argument\n"),
    ],
)
def test_it_names_what_the_library_lacks_or_refuses(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], reason: str
) -> None:
    ended = boot(program, tmp_path, monkeypatch, *settings)
    assert ended.returncode == 1
    assert ended.stderr.decode().startswith(f"krun_boot: {reason}")


@pytest.mark.parametrize("words", [MACHINE[:-1], (*MACHINE, "/another"), ("2", "513", "tap0", "02:00", WORDS, "/disk")])
def test_other_arguments_are_refused(program: Path, words: tuple[str, ...]) -> None:
    ended = call(program, *words)
    assert (ended.returncode, ended.stderr.partition(b":")[0]) == (2, b"usage")
