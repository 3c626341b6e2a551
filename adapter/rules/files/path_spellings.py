"""The spellings of a path in a text: plain, percent-encoded, or with the backslashes of JSON (also JSON within
JSON) or of a shell. Pure; work is linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from functools import lru_cache

# A run of slashes is bounded, and a path begins at the first of them only: a text of nothing else is read once. The
# first character stands alone in the pattern so that the search runs from one to the next.
_SLASH = r"(?:\\{0,4}/|%2[fF])"
_LEAD = rf"[/\\%](?<![/\\].)(?<!2[fF].)(?:(?<=/)|(?<=\\)\\{{0,3}}/|(?<=%)2[fF]){_SLASH}{{0,7}}+"
SLASHES = _SLASH + r"{1,8}+"
"""An expression for what stands between two components of a path."""

# Where this does not hold a path goes on, or is another than it looked like so far.
ENDS = r"(?![A-Za-z0-9_~-]|\.[A-Za-z0-9_]|%(?!2[fF]|5[cC]))"

DELIMITERS = r"""\s"'`<>|()\[\]{},;&*\x00-\x1f\x7f，。、；：！？「」『』（）【】《》"""
"""Characters that end a path of which nothing is known, as in a set of an expression; also those of languages that
put no space between words."""

_SEPARATOR = re.compile(SLASHES)
_ANY_SEPARATOR = re.compile(r"(?:\\{0,4}/|\\{1,4}|%2[fF]|%5[cC]){1,8}+")
# Of backslashes a tail takes only those that escape something within it: the one before a quote or an n belongs to
# the text around.
_TAIL = re.compile(rf"(?:[^\\{DELIMITERS}]|\\{{1,4}}[/ ]|\\{{1,4}}u(?!00[0-7])[0-9a-fA-F]{{4}})+")
_WINDOWS_TAIL = re.compile(rf"[^{DELIMITERS}]+")
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")
_LEADING = re.compile(_LEAD)
_ENDS_HERE = re.compile(ENDS)


def is_windows(path: str) -> bool:
    return not path.startswith("/")


@lru_cache(64)
def any_of(paths: tuple[str, ...]) -> re.Pattern[str]:
    """An expression for any of these absolute paths, however spelled, the longest first, and whatever is below."""
    posix: list[str] = []
    windows: list[str] = []
    for path in sorted(paths, key=len, reverse=True):
        on_windows = is_windows(path)
        spelled = "".join(_spelling(char, on_windows).pattern for char in path.lstrip("/"))
        (windows if on_windows else posix).append(spelled + ENDS)
    choices = [f"{_LEAD}(?:{'|'.join(posix)})"] * bool(posix) + windows
    return re.compile("|".join(choices))


@lru_cache(256)
def plainest_part(path: str) -> str:
    """The longest part of a path that every spelling has in common: without it in a text the path is not there."""
    return max(_PLAIN.findall(path), key=len, default="")


def end_of(text: str, start: int, path: str) -> int | None:
    """Return the index where the absolute path spelled at ``start`` ends, None if it is another path."""
    windows = is_windows(path)
    if windows:
        return end_of_part(text, start, path, windows=True)
    lead = _LEADING.match(text, start)
    return None if lead is None else end_of_part(text, lead.end(), path.lstrip("/"))


def end_of_part(text: str, start: int, part: str, *, windows: bool = False) -> int | None:
    """The same for a path's last components, which begin at ``start``."""
    at = start
    if text.startswith(part, at):
        at += len(part)
    else:
        for char in part:
            here = _spelling(char, windows).match(text, at)
            if here is None:
                return None
            at = here.end()
    return at if _ENDS_HERE.match(text, at) else None


def behind_slashes(text: str, at: int, *, windows: bool = False) -> int | None:
    """Return the index where the next component begins, None if no path goes on at ``at``."""
    here = (_ANY_SEPARATOR if windows else _SEPARATOR).match(text, at)
    return None if here is None else here.end()


def end_of_tail(text: str, at: int, *, windows: bool = False) -> int:
    """Return the index where a path ends that is known only up to ``at``: ``at`` itself if the path ends there."""
    tail = (_WINDOWS_TAIL if windows else _TAIL).match(text, at)
    # The stop behind a sentence, or the backslash of an escape behind the path, is not the path's.
    below = tail[0].rstrip(".:!?\\") if tail else ""
    return at + len(below) if below.strip("/\\") else at


@lru_cache(4096)
def _spelling(char: str, windows: bool) -> re.Pattern[str]:
    """All ways to spell one character of a path."""
    if windows and char in "/\\":
        return _ANY_SEPARATOR
    if char == "/":
        return _SEPARATOR
    if _PLAIN.match(char):
        return re.compile(re.escape(char))
    percent = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    units = char.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\{{1,4}}u{units[at : at + 4]}" for at in range(0, len(units), 4))
    plus = r"|\+" if char == " " else ""
    return re.compile(rf"(?:(?i:{percent}|{escaped})|\\{{0,4}}{re.escape(char)}{plus})")
