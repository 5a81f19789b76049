"""Output in encodings other than UTF-8: characters that an encoding lacks have ASCII forms.

Without them, Python ends with a traceback and exit code 1 in the middle of an answer, which CI takes for a failed gate.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
import unicodedata

_ERRORS = _CODEC = "tare_ascii"  # names of the error handler and of the codec
_SWITCH = "TARE_ASCII"
# Forms for which Unicode has no decomposition, or one that means something else: ≠ would be =. Symbols in tables have
# forms of one column. No form has a quotation mark or a backslash, which could end a text of JSON.
_FORMS = (
    str.maketrans("▲▼≈○◆⊘✕✓✗✔✘≠↑↓·×−°─━├└", "><~o@/x+x+x!^v.x-o----")  # noqa: RUF001 - what tare prints
    | str.maketrans("▏▎▍▌▋▊▉█▁▂▃▄▅▆▇", "    ####_.,-=+*")  # bars, and lines of block characters
    | str.maketrans("\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{EN DASH}\N{EM DASH}", "----")
    | str.maketrans("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}", "''")
    | str.maketrans({"\N{GREEK SMALL LETTER MU}": "u", "±": "+-", "→": "->", "≥": ">=", "≤": "<=", "ß": "ss"})
    | str.maketrans({"✅": "passed:", "❌": "failed:", "⚠": "warning:", "★": "*"})
)


def restart_in_utf8_mode() -> None:
    """Replace this process by one in Python's UTF-8 mode, unless file names and command lines are in UTF-8 already.

    In another encoding, Python cannot pass words such as `ü` to a command. Standard output keeps its encoding.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name != "utf-8":
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        os.execv(sys.executable, (sys.executable, "-X", "utf8", *sys.orig_argv[1:]))  # noqa: S606 - the same program


def select_ascii_forms() -> None:
    """Let standard output and error replace the characters that their encoding lacks.

    If the environment has `TARE_ASCII=1`, their encoding is ASCII.
    """
    codecs.register_error(_ERRORS, _replace)
    codecs.register(_find_codec)
    requested = os.environ.get(_SWITCH, "0") not in ("", "0")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = requested or codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_CODEC if is_ascii else None, errors=_ERRORS)


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Return Python's ASCII codec under another name: Typer prints UTF-8 to a stream whose encoding is named ASCII."""
    ascii_codec = codecs.lookup("ascii")
    parts = (ascii_codec.streamreader, ascii_codec.streamwriter)
    incremental = (ascii_codec.incrementalencoder, ascii_codec.incrementaldecoder)
    found = codecs.CodecInfo(ascii_codec.encode, ascii_codec.decode, *parts, *incremental, name=_CODEC)
    return found if name == _CODEC else None


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the ASCII forms of the characters that cannot be encoded, and the position behind them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii_form, error.object[error.start : error.end])), error.end


def _ascii_form(letter: str) -> str:
    """Return the ASCII form of a character: `-` for a minus sign, `o` for `ö`, `?` if it has none."""
    if unicodedata.category(letter).startswith("M"):  # an accent on the letter before
        return ""
    decomposed = unicodedata.normalize("NFKD", letter.translate(_FORMS)).translate(_FORMS)
    return decomposed.encode("ascii", "ignore").decode() or "?"
