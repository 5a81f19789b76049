"""Tests of the unpacked size of a layer, which tare knows before it unpacks, whatever the headers say."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest
from oci_made import file, folder, hard_link, layer, link, other

from tare.images.layers import UnpackedSize, check_unpacked_size
from tare.model.errors import TareError

MIB = 1 << 20
FORMS = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT}


def _header(name: str, **fields: bytes) -> bytes:
    """Return the header of a file, with these bytes from these positions on."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    for start, value in fields.items():
        header[int(start) : int(start) + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _extended(records: bytes, padding: bytes = b"") -> bytes:
    """Return an extended header with these records, and what follows them up to the end of the block."""
    return _header("x", **{"124": b"%011o\0" % len(records), "156": b"x"}) + (records + padding).ljust(512, b"\0")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "layer"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", [True, False])
def test_content_and_files_are_counted(form: str, packed: bool, written: Path) -> None:
    entries = (folder("a"), file("a/b", b"x" * 1000), link("l", "/etc"), hard_link("h", "a/b"), file("e"))
    data = layer(*entries, form=FORMS[form])
    written.write_bytes(gzip.compress(data) if packed else data)
    assert check_unpacked_size([written], MIB) == UnpackedSize(1000, 5)


@pytest.mark.parametrize("form", ["pax", "gnu"])
def test_long_names_and_attributes_are_no_files(form: str, written: Path) -> None:
    long, attributes = "n" * 300, {"SCHILY.xattr.user.x": "y" * 5000} if form == "pax" else {}
    written.write_bytes(layer(file(long, b"12", attributes=attributes), link("l", long), form=FORMS[form]))
    assert check_unpacked_size([written], MIB) == UnpackedSize(2, 2)


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_early(written: Path) -> None:
    bomb = layer(file("zeros", bytes(64 * MIB)))
    written.write_bytes(gzip.compress(bomb, 9))
    assert written.stat().st_size < MIB
    with pytest.raises(TareError, match="unpacks to more than 8 MiB") as error:
        check_unpacked_size([written], 8 * MIB)
    assert "limit = " in error.value.hint
    cut = gzip.compress(bomb, 9)[:2000]  # its first header is enough
    written.write_bytes(cut)
    with pytest.raises(TareError, match="unpacks to more than 8 MiB"):
        check_unpacked_size([written], 8 * MIB)


def test_many_files_that_are_too_large_only_together_are_refused(written: Path) -> None:
    written.write_bytes(layer(*(file(f"{number}", bytes(MIB)) for number in range(9))))
    assert check_unpacked_size([written], 9 * MIB).content_bytes == 9 * MIB
    assert check_unpacked_size([written, written], 18 * MIB).files == 18
    for layers in ([written], [written, written]):
        with pytest.raises(TareError, match="unpacks to more than 8 MiB"):
            check_unpacked_size(layers, 8 * MIB)


def test_a_size_that_only_an_extended_header_states_counts(written: Path) -> None:
    written.write_bytes(layer(file("a", bytes(600), attributes={"size": "600"})))
    assert check_unpacked_size([written], MIB) == UnpackedSize(600, 1)
    written.write_bytes(layer(file("a", bytes(600), attributes={"size": "99999"})))
    with pytest.raises(TareError, match="it ends early"):
        check_unpacked_size([written], MIB)
    written.write_bytes(layer(file("a", bytes(600), attributes={"size": f"{2 * MIB}"})))
    with pytest.raises(TareError, match="unpacks to more than 1 MiB"):
        check_unpacked_size([written], MIB)


@pytest.mark.parametrize("attribute", ["GNU.sparse.size", "GNU.sparse.realsize", "GNU.sparse.map"])
def test_a_file_with_holes_is_refused(attribute: str, written: Path) -> None:
    written.write_bytes(layer(file("a", b"x", attributes={attribute: "999999999999"})))
    with pytest.raises(TareError, match="sparse file"):
        check_unpacked_size([written], MIB)


def test_a_file_with_holes_of_the_old_kind_is_refused(written: Path) -> None:
    written.write_bytes(layer(other("a", b"S"), form=tarfile.GNU_FORMAT))
    with pytest.raises(TareError, match="sparse file"):
        check_unpacked_size([written], MIB)


def test_attributes_that_fill_the_memory_are_refused(written: Path) -> None:
    written.write_bytes(layer(file("a", attributes={"SCHILY.xattr.user.x": "y" * 2 * MIB})))
    with pytest.raises(TareError, match="over 1 MiB"):
        check_unpacked_size([written], MIB)


def test_devices_are_refused_but_for_those_of_every_container(written: Path) -> None:
    null, disk = other("dev/null", tarfile.CHRTYPE, device=(1, 3)), other("d", tarfile.BLKTYPE, device=(8, 0))
    written.write_bytes(layer(null))
    assert check_unpacked_size([written], MIB) == UnpackedSize(0, 1)
    for entry, says in ((disk, "'d', 8:0"), (other("m", tarfile.CHRTYPE, device=(1, 1)), "'m', 1:1")):
        written.write_bytes(layer(null, entry))
        with pytest.raises(TareError, match=f"has a device in it: {says}"):
            check_unpacked_size([written], MIB)


# Of `.wh...`, umoci 0.4 removes the folder above the root.
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name",
    [".wh...", "a/.wh...", ".wh..", "a/.wh.", "../a", "a/../../b", "/..", f"{'n' * 120}/.wh...", f"{'n/' * 60}../a"],
)
def test_paths_that_climb_out_are_refused(name: str, form: str, written: Path) -> None:
    data = layer(folder("a"), file(name), form=FORMS[form])
    with pytest.raises(TareError, match="has a path that leads out of a folder"):
        check_unpacked_size([_put(written, data)], MIB)


def test_whiteouts_are_no_paths_that_climb_out(written: Path) -> None:
    names = (".wh.a", "a/.wh..wh..opq", ".wh..b", "..a", "a..", ".wh.a..", "./a", "...")
    assert check_unpacked_size([_put(written, layer(*(file(name) for name in names)))], MIB) == UnpackedSize(
        0, len(names)
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends early"),
        (b"\x1f\x8b", "cannot be unpacked"),
        (b"\x1f\x8b" + b"x" * 100, "cannot be unpacked"),
        (gzip.compress(layer(file("a", b"x")))[:60], "cannot be unpacked"),
        (layer(file("a", b"x" * 1000))[:700], "ends early"),
        (b"x" * 1024, "is no tar archive|no number"),
        (layer(file("a", b"x")).replace(b"00000000001\0", b"0000000000z\0"), "no number|no tar archive"),
    ],
)
def test_what_is_no_whole_layer_is_refused(data: bytes, says: str, written: Path) -> None:
    with pytest.raises(TareError, match=says):
        check_unpacked_size([_put(written, data)], MIB)


@pytest.mark.parametrize("record", ["9999999 a=b\n", "x a=b\n", "3 a\n", "4 =\n\n"])
def test_attributes_that_cannot_be_read_are_refused(record: str, written: Path) -> None:
    data = layer(file("a", b"x", attributes={"aaaaaaaaaa": "b"}))
    start = data.index(b"aaaaaaaaaa=b") - 3
    whole = len(b"16 aaaaaaaaaa=b\n")
    broken = data[:start] + record.encode().ljust(whole, b"\n") + data[start + whole :]
    with pytest.raises(TareError, match="attributes of a file cannot be read"):
        check_unpacked_size([_put(written, broken)], MIB)


# Each unpacks to 2 MiB by umoci 0.4.7, and holds nothing but empty files for Python 3.11's tarfile.
@pytest.mark.parametrize(
    ("before", "field"),
    [
        (_extended(b"13 comment=x\n", b"10 size=0\n"), b"%011o\0" % (2 * MIB)),  # the second is in the padding
        (_extended(b"+16 size=%d\n" % (2 * MIB)), b"%011o\0" % 0),
        (b"", b"\0%010o\0" % (2 * MIB)),
    ],
    ids=["padding", "signed length", "null byte"],
)
def test_content_that_only_umoci_sees_is_refused(before: bytes, field: bytes, written: Path) -> None:
    shown = layer(file("small")).ljust(2 * MIB, b"\0")
    data = before + _header("big", **{"124": field}) + shown + bytes(1024)
    with pytest.raises(TareError, match=r"unpacks to more than 1 MiB|attributes of a file cannot be read"):
        check_unpacked_size([_put(written, data)], MIB)


def test_all_members_of_a_packed_layer_are_read(written: Path) -> None:
    data = layer(file("a", b"x" * 5000))
    assert check_unpacked_size(
        [_put(written, gzip.compress(data[:512]) + gzip.compress(data[512:]))], MIB
    ) == UnpackedSize(5000, 1)


# umoci takes the content of such a folder for the next headers; here it removes the folder above the root.
@pytest.mark.parametrize("name", ["d/", "d"])
def test_a_folder_of_the_oldest_format_has_no_content(name: str, written: Path) -> None:
    hidden = layer(file(".wh..."))
    before = layer(file("n" * 150 + "/"), form=tarfile.GNU_FORMAT)[:1024] if name == "d" else b""
    data = before + _header(name, **{"124": b"%011o\0" % len(hidden), "156": b"\0"}) + hidden + bytes(1024)
    with pytest.raises(TareError, match="a folder in it has content"):
        check_unpacked_size([_put(written, data)], MIB)
    empty = _header("d/", **{"156": b"\0"}) + bytes(1024)
    assert check_unpacked_size([_put(written, empty)], MIB) == UnpackedSize(0, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"257": b"ustar  \0", "345": b"no times, a/../../b"},
        {"257": b"ustar  \0", "345": b"no times, a/.wh...", "0": b"\0"},
        {"345": b"n/" * 64 + b"/..00000000000 00000000000 ", "508": b"tar\0"},
    ],
    ids=["gnu", "gnu whiteout", "star"],
)
def test_folders_before_a_name_that_climb_out_are_refused(fields: dict[str, bytes], written: Path) -> None:
    with pytest.raises(TareError, match="has a path that leads out of a folder"):
        check_unpacked_size([_put(written, _header("a", **fields) + bytes(1024))], MIB)


def _put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
