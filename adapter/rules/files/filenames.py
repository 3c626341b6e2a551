"""Names of files: safe on a disk, safe in a header, and still what their sender called them; and the spellings of a
path in a text. Pure.

Letters of every script stay. What goes is only what would lead to another directory, hide the file, name a
device or show a reader another name than the one it has.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from urllib.parse import quote

from adapter.rules.files.media_types import usual_extension

# A run of slashes is bounded, and a path begins at the first of them only: a text of nothing else is read once. The
# first character stands alone in the pattern so that the search runs from one to the next. Before 3.11.5 Python reads a
# possessive repetition right only with (?!) at its end (CPython issue 106052).
_SLASH = r"(?:\\{0,4}/|%2[fF]|(?!))"
_LEAD = rf"[/\\%](?<![/\\].)(?<!2[fF].)(?:(?<=/)|(?<=\\)\\{{0,3}}/|(?<=%)2[fF]){_SLASH}{{0,7}}+"
SLASHES = _SLASH + r"{1,8}+"
"""An expression for what stands between two components of a path."""

# Where this does not hold a path goes on, or is another than it looked like so far.
ENDS = r"(?![A-Za-z0-9_~-]|\.[A-Za-z0-9_]|%(?!2[fF]|5[cC]))"

DELIMITERS = r"""\s"'`<>|()\[\]{},;&*\x00-\x1f\x7f，。、；：！？「」『』（）【】《》"""
"""Characters that end a path of which nothing is known, as in a set of an expression; also those of languages that
put no space between words."""

STEP = 1 << 16
"""Characters that are looked at in one go: other threads wait for its end."""

LONGEST_SPELLING = 40
"""Characters that one character of a path may be spelled with: eight escaped slashes."""

_SEPARATOR = re.compile(SLASHES)
# Of backslashes a tail takes only those that escape something within it: the one before a quote or an n belongs to
# the text around.
_TAIL = re.compile(rf"(?:[^\\{DELIMITERS}]|\\{{1,4}}[/ ]|\\{{1,4}}u(?!00[0-7])[0-9a-fA-F]{{4}})+")
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")
_LEADING = re.compile(_LEAD)
_ENDS_HERE = re.compile(ENDS)


@lru_cache(64)
def any_of(paths: tuple[str, ...]) -> re.Pattern[str]:
    """An expression for any of these absolute paths, however spelled, the longest first, and whatever is below."""
    ordered = sorted(paths, key=len, reverse=True)
    spelled = ("".join(_spelling(char).pattern for char in path.lstrip("/")) + ENDS for path in ordered)
    return re.compile(f"{_LEAD}(?:{'|'.join(spelled)})")


@lru_cache(256)
def plainest_part(path: str) -> str:
    """The longest part of a path that every spelling has in common: without it in a text the path is not there."""
    return max(_PLAIN.findall(path), key=len, default="")


def end_of(text: str, start: int, path: str) -> int | None:
    """Return the index where the absolute path spelled at ``start`` ends, None if it is another path."""
    lead = _LEADING.match(text, start)
    return None if lead is None else end_of_part(text, lead.end(), path.lstrip("/"))


def end_of_part(text: str, start: int, part: str) -> int | None:
    """The same for a path's last components, which begin at ``start``."""
    at = start
    if text.startswith(part, at):
        at += len(part)
    else:
        for char in part:
            here = _spelling(char).match(text, at)
            if here is None:
                return None
            at = here.end()
    return at if _ENDS_HERE.match(text, at) else None


def behind_slashes(text: str, at: int) -> int | None:
    """Return the index where the next component begins, None if no path goes on at ``at``."""
    here = _SEPARATOR.match(text, at)
    return None if here is None else here.end()


def end_of_tail(text: str, at: int) -> int:
    """Return the index where a path ends that is known only up to ``at``: ``at`` itself if the path ends there."""
    end = at
    # In steps: others wait for the end of each, and it keeps a place for each character of its own.
    while here := _TAIL.match(text, end, end + STEP):
        end = here.end()
    # The stop behind a sentence, or the backslash of an escape behind the path, is not the path's.
    while end > at:
        piece = text[max(at, end - STEP) : end]
        kept = piece.rstrip(".:!?\\")
        end -= len(piece) - len(kept)
        if kept:
            break
    names = any(text[start : min(end, start + STEP)].strip("/\\") for start in range(at, end, STEP))
    return end if names else at


def search(pattern: re.Pattern[str], text: str, at: int, reach: int) -> re.Match[str] | None:
    """As ``pattern.search(text, at)``, for a pattern that looks at no more than ``reach`` characters from where it
    begins to match. No look is at much more than STEP characters.
    """
    while True:
        found = pattern.search(text, at, at + STEP + reach)
        if (found is not None and found.start() <= at + STEP) or at + STEP + reach >= len(text):
            return found
        at += STEP


@lru_cache(4096)
def _spelling(char: str) -> re.Pattern[str]:
    """All ways to spell one character of a path."""
    if char == "/":
        return _SEPARATOR
    if _PLAIN.match(char):
        return re.compile(re.escape(char))
    percent = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    units = char.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\{{1,4}}u{units[at : at + 4]}" for at in range(0, len(units), 4))
    plus = r"|\+" if char == " " else ""
    return re.compile(rf"(?:(?i:{percent}|{escaped})|\\{{0,4}}{re.escape(char)}{plus})")


_LONGEST = 200  # bytes; file systems take 255, and tools put a suffix of their own behind a name
_LONGEST_EXTENSION = 32
_NAMELESS = "file"

_SEPARATORS = frozenset("/\\")
_NOT_ON_WINDOWS = frozenset('<>:"|?*')
_JOINERS = "\u200c\u200d"
_INVISIBLE = ("Cf", "Zl", "Zp")
_UNWRITABLE = ("Cc", "Cs")
_BLANKS = " \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³])", re.IGNORECASE)
_UNQUOTABLE = re.compile(r'[^\x20-\x7e]|["%\\]')

_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[a-z]+[34]?")
_FORMATS = {
    **{
        word: word
        for word in ("csv", "docx", "gif", "html", "jpg", "json", "mp3", "mp4", "pdf", "png", "pptx")
    },
    **{word: word for word in ("svg", "tsv", "txt", "wav", "webm", "webp", "xlsx", "xml", "yaml", "zip")},
    "excel": "xlsx",
    "jpeg": "jpg",
    "markdown": "md",
    "powerpoint": "pptx",
}
_SUBJECTS = {
    **dict.fromkeys(("screenshot", "image", "picture", "photo", "thumbnail", "chart", "plot"), "png"),
    **dict.fromkeys(("spreadsheet", "workbook"), "xlsx"),
    "archive": "zip",
    "log": "txt",
    "text": "txt",
    "video": "mp4",
}
_ANY_FORMAT = "bin"


def stored_name(filename: str) -> str:
    """The name as one path component that every common file system takes: at most 200 bytes of UTF-8.

    Never empty, hidden, ``.``, ``..`` or a device's; a name that is safe already stays as it is.
    """
    name = _legible(filename, _SEPARATORS | _NOT_ON_WINDOWS).strip(_BLANKS)
    if name.startswith("."):
        name = "_." + name.lstrip("." + _BLANKS) if name.strip("." + _BLANKS) else ""
    name = name.rstrip("." + _BLANKS)
    if _DEVICE.fullmatch(name.partition(".")[0].rstrip(_BLANKS)):
        name = "_" + name
    return _shortened(name) or _NAMELESS


def content_disposition(filename: str) -> str:
    """The header that makes a browser save the file under its name (RFC 6266, RFC 8187); plain ASCII.

    The name is as its sender wrote it, but for path separators, control characters and what exceeds 200 bytes.
    """
    name = _shortened(_legible(filename, _SEPARATORS)) or _NAMELESS
    return f"attachment; filename=\"{_UNQUOTABLE.sub('_', name)}\"; filename*=UTF-8''{quote(name, safe='')}"


def default_name(tool: str, argument_value: str | None = None, media_type: str | None = None) -> str:
    """Return the name of an artifact: the last component of the path that the caller gave, else ``<tool>.<ext>``.

    A name of more than 200 bytes, which no tool could have written, is made safe and cut as on disk, because
    each result has several names in its URLs.
    The extension is that of the media type if the type is known. Otherwise it is guessed from the words of the
    tool's name; of several formats the last counts, so that ``csv_to_json`` writes JSON.
    """
    given = _last_component(argument_value or "")
    if names_a_file(argument_value):
        return given if len(given.encode("utf-8", "surrogatepass")) <= _LONGEST else stored_name(given)
    extension = (usual_extension(media_type) if media_type else None) or _guessed_extension(tool)
    return stored_name(f"{stored_name(tool)}.{extension}")


def names_a_file(argument_value: str | None) -> bool:
    """True where the path that a caller gave ends in a name, so that ``default_name`` takes that."""
    return bool(_last_component(argument_value or "").strip("." + _BLANKS))


def _legible(filename: str, unwanted: frozenset[str]) -> str:
    """Without what nobody can see or write; what is unwanted leaves a ``_`` where it stood."""
    if filename.isascii() and filename.isprintable() and unwanted.isdisjoint(filename):
        return filename
    kept = []
    for character in filename:
        category = unicodedata.category(character)
        if character in unwanted or category in _UNWRITABLE:
            kept.append("_")
        # Marks of direction make "gpj.exe" look like "exe.jpg"; joiners are part of how scripts are written.
        elif category not in _INVISIBLE or character in _JOINERS:
            kept.append(character)
    return "".join(kept)


def _shortened(name: str) -> str:
    """At most 200 bytes: the extension stays, the end of what is before it goes."""
    if len(name.encode()) <= _LONGEST:
        return name
    stem, dot, extension = name.rpartition(".")
    if not stem or len(extension.encode()) > _LONGEST_EXTENSION:
        return _cut(name, _LONGEST).rstrip("." + _BLANKS)
    ending = dot + extension
    return _cut(stem, _LONGEST - len(ending.encode())) + ending


def _cut(text: str, size: int) -> str:
    """As many whole characters as fit into ``size`` bytes."""
    return text.encode()[:size].decode("utf-8", "ignore")


def _last_component(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _guessed_extension(tool: str) -> str:
    words = _WORD.findall(_WORD_BEGINS.sub(" ", tool).lower())
    for known in (_FORMATS, _SUBJECTS):
        for word in reversed(words):
            if (extension := known.get(word) or known.get(word.removesuffix("s"))) is not None:
                return extension
    return _ANY_FORMAT
