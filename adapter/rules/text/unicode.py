"""Text of strangers in one spelling for everything that reads the same, without invisible characters. Pure, linear in
the text.
"""

from __future__ import annotations

import re
import unicodedata

# Zero-width and default-ignorable characters, bidirectional controls, tags, controls but tab and newline, and the
# lone halves of surrogate pairs, which are no characters. A variation selector may stay behind the symbol whose
# colour it chooses, for emoji are honest prose; anywhere else selectors are a known way to smuggle bytes.
_UNSEEN = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    r"|\r(?!\n)"
    r"|(?<![#*0-9\xa9\xae\u2190-\u23ff\u2460-\u2bff\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
)
_INVISIBLE = re.compile(_UNSEEN)
# Whatever that may begin with, as one class: few texts have any of it, and to see that takes a fifth of the time.
_SUSPECT = re.compile(_UNSEEN.partition("]")[0] + r"\r\ufe0e\ufe0f]")
_SHOWN_ESCAPED = re.compile(_UNSEEN + r"|[\t\n\r\u2028\u2029\ufe0e\ufe0f]")

_FLUSH_LINE = re.compile(r"\n(?!  )")

# More marks on one letter than any language writes (UAX #15 allows streams to assume 30).
_MOST_MARKS = 64
_RUN_OF_MARKS = re.compile(rb"[^\0]{%d}" % _MOST_MARKS)
# They count as letters themselves and decompose into marks.
_MARKS_IN_DISGUISE = re.compile("[\u0f73\u0f75\u0f81\uff9e\uff9f]")


def nfkc(text: str) -> str:
    """``text`` in Unicode form NFKC; a run of more than 64 combining marks is normalized in parts.

    Without parts, sorting the marks of a hostile text takes time in the square of their number.
    """
    # Asking is linear: marks out of their order are an answer by themselves.
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        return text
    if len(text) <= _MOST_MARKS:
        return unicodedata.normalize("NFKC", text)
    # Every class is below 256; 0 is a letter, anything else a mark.
    classes = bytes(map(unicodedata.combining, _MARKS_IN_DISGUISE.sub("\u0301", text)))
    ends = [found.end() for found in _RUN_OF_MARKS.finditer(classes)]
    starts = [0, *ends]
    parts = [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True)]
    return "".join(unicodedata.normalize("NFKC", part) for part in parts)


def visible(text: str) -> str:
    """``text`` without its invisible characters, bidirectional controls and lone surrogates."""
    if (text.isascii() and text.isprintable()) or _SUSPECT.search(text) is None:
        return text
    return _INVISIBLE.sub("", text)


def reading(name: str) -> str:
    """Return the name that a reader takes ``name`` for.

    It is equal for names that differ only in case, form, invisible characters or the white space around them.
    """
    if name.isascii() and name.isprintable():
        return name.strip().lower()
    read = nfkc(nfkc(visible(name)).casefold())
    # In capitals, by which some readers compare, an i has no dot to lose.
    return read.replace("i\u0307", "i").replace("\u0131", "i").strip()


LONGEST_NAME = 1024
"""Characters of a tool's name that is judged by how it reads; MCP advises 128 at most."""


def has_no_reading(name: str) -> bool:
    """Tell whether it is uncertain how readers read ``name``.

    This is so for a name that is too long, or that has a NUL, at which some readers stop.
    """
    return len(name) > LONGEST_NAME or "\0" in name


def shown(text: str, limit: int) -> str:
    r"""``text`` in one line of at most ``limit`` characters, with what is invisible escaped as ``\u200b``."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    cut = len(text) > limit
    if cut:
        text = text[: limit - 1]
    if not (text.isascii() and text.isprintable()):
        text = escaped(text)
        cut = cut or len(text) > limit
        text = text[: limit - 1] if cut else text
    return text + "…" if cut else text


def escaped(text: str) -> str:
    r"""``text`` in one line, with what is invisible or moves a cursor escaped as JSON does: ``\u200b``."""
    return _SHOWN_ESCAPED.sub(lambda found: _escape(found[0]), text)


def plain(text: str) -> str:
    """A stranger's text with its lines, and with what is invisible or moves a cursor escaped."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(escaped, lines))


def hanging(text: str) -> str:
    """As ``plain``, all lines but the first indented, so that a stranger's cannot be taken for the adapter's own."""
    return _FLUSH_LINE.sub("\n    ", plain(text))


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
