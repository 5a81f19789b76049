"""Names of Arm CPUs. /proc/cpuinfo has only the numbers of the implementer, the part and the revision of each core.

The numbers are those of MIDR_EL1, as Linux' arch/arm64/include/asm/cputype.h and lscpu of util-linux know them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

EMULATED = "QEMU max"  # no processor has its implementer, 0
_CORES: Mapping[tuple[int, int], str] = {
    (0x00, 0x051): EMULATED,
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4A): "Neoverse-E1",
    (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x43, 0x0A1): "Cavium ThunderX",
    (0x43, 0x0AF): "Cavium ThunderX2",
    (0x46, 0x001): "Fujitsu A64FX",
    (0x48, 0xD01): "HiSilicon TSV110",
    (0x4E, 0x004): "NVIDIA Carmel",
    (0x4E, 0x010): "NVIDIA Olympus",
    (0x51, 0x001): "Qualcomm Oryon",
    (0x61, 0x022): "Apple M1 Icestorm",
    (0x61, 0x023): "Apple M1 Firestorm",
    (0x61, 0x024): "Apple M1 Pro Icestorm",
    (0x61, 0x025): "Apple M1 Pro Firestorm",
    (0x61, 0x028): "Apple M1 Max Icestorm",
    (0x61, 0x029): "Apple M1 Max Firestorm",
    (0x61, 0x032): "Apple M2 Blizzard",
    (0x61, 0x033): "Apple M2 Avalanche",
    (0x61, 0x034): "Apple M2 Pro Blizzard",
    (0x61, 0x035): "Apple M2 Pro Avalanche",
    (0x61, 0x038): "Apple M2 Max Blizzard",
    (0x61, 0x039): "Apple M2 Max Avalanche",
    (0x6D, 0xD49): "Azure Cobalt 100",
    (0xC0, 0xAC3): "AmpereOne",
    (0xC0, 0xAC4): "AmpereOne A",
}
_CORE = re.compile(
    r"^CPU implementer\s*: (?P<implementer>0x[0-9a-f]+)\n"
    r"CPU architecture: 8\n"
    r"CPU variant\s*: (?P<variant>0x[0-9a-f]+)\n"
    r"CPU part\s*: (?P<part>0x[0-9a-f]+)\n"
    r"CPU revision\s*: (?P<revision>\d+)$",
    re.MULTILINE,
)
# Chips by a regular expression for vendor, product and system on chip of the firmware, and the core. The firmware tells
# what MIDR_EL1 does not: jep106:0a16 is Ampere Computing. Google and Microsoft have Neoverse-N1 only in this chip.
_CHIPS = (
    (r"^Amazon EC2 [a-z]+\d+g", "Neoverse-N1", "AWS Graviton2"),
    (r"^Amazon EC2 [a-z]+\d+g", "Neoverse-V1", "AWS Graviton3"),
    (r"^Amazon EC2 [a-z]+\d+g", "Neoverse-V2", "AWS Graviton4"),
    (r"^Google|^Microsoft Corporation|jep106:0a16$", "Neoverse-N1", "Ampere Altra"),
)


def name_cores(cpuinfo_text: str) -> str:
    """Return the names and revisions of the different cores in /proc/cpuinfo; "" if it has no 64-bit Arm cores.

    The name of an unknown core has its numbers: `implementer 0x41, part 0xabc r0p1`.
    """
    return " + ".join(dict.fromkeys(_name_core(core) for core in _CORE.finditer(cpuinfo_text)))


def _name_core(core: re.Match[str]) -> str:
    implementer, part, variant = (int(core[name], 16) for name in ("implementer", "part", "variant"))
    name = _CORES.get((implementer, part), f"implementer {implementer:#04x}, part {part:#05x}")
    return f"{name} r{variant}p{core['revision']}"


def name_chip(cores: str, firmware_text: str) -> str:
    """Return the names of the cores, after the name of the chip if vendor, product and chip in the firmware tell it."""
    for pattern, core, chip in _CHIPS:
        if cores.startswith(f"{core} ") and re.search(pattern, firmware_text):
            return f"{chip} ({cores})"
    return cores
