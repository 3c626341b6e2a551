"""What of the store's paths a text may show: the URI of a file that is known, nothing of any other. Pure.

A path is recognised as programs spell it: plain, as a ``file:`` URL, percent-encoded, or with the backslashes of JSON
(also JSON within JSON) or of a shell. Work is linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

WITHHELD = "[withheld path]"


def withhold(text: str, roots: Sequence[str], replacements: Mapping[str, str]) -> str:
    """``text`` with every path in ``replacements`` as its URI, and every other path below a root withheld.

    ``roots`` are absolute paths, ``replacements`` maps absolute paths to URIs. A path of which one of them is but a
    part, at its end or in its middle, is another path and stays. A root by itself is withheld when it has several
    components: one such as ``/data`` is as likely a page of some site.
    """
    own = tuple(sorted({root.rstrip("/\\") for root in roots} - {""}, key=len, reverse=True))
    known = sorted(replacements, key=len, reverse=True)
    below = tuple(root + slash for root in own for slash in "/\\")
    sought = (*own, *(path for path in known if not path.startswith(below)))
    if not any(_plainest_part(path) in text for path in sought):
        return text
    pieces: list[str] = []
    done = at = 0
    while found := _any_of(sought).search(text, at):
        at = found.end()
        begin = _beginning(text, done, found.start())
        if begin is None:
            continue
        seen = _known(text, found.start(), known, replacements) or _withheld(text, found.start(), own)
        if seen is not None:
            pieces += (text[done:begin], seen.shown)
            done = at = seen.end
    return "".join((*pieces, text[done:]))


class _Seen(NamedTuple):
    """What is shown instead of a path, and where that path ends."""

    shown: str
    end: int


def _known(text: str, start: int, known: Sequence[str], replacements: Mapping[str, str]) -> _Seen | None:
    for path in known:
        end = _end_of(text, start, path)
        if end is not None and not _SEPARATOR.match(text, end):
            return _Seen(replacements[path], end)
    return None


def _withheld(text: str, start: int, roots: Sequence[str]) -> _Seen | None:
    for root in roots:
        end = _end_of(text, start, root)
        if end is None:
            continue
        windows = _is_windows(root)
        if (_ANY_SEPARATOR if windows else _SEPARATOR).match(text, end):
            tail = (_WINDOWS_TAIL if windows else _TAIL).match(text, end)
            # The stop behind a sentence, or the backslash of an escape behind the path, is not the path's.
            below = tail[0].rstrip(".:!?\\") if tail else ""
            if below.strip("/\\"):
                return _Seen(WITHHELD, end + len(below))
        if root.count("/") > 1 or root.count("\\") > 1:
            return _Seen(WITHHELD, end)
    return None


# --- how a path is spelled ------------------------------------------------------------------------------------

# A run of slashes is bounded, and a path begins at the first of them only: a text of nothing else is read once. The
# first character stands alone in the pattern so that the search runs from one to the next.
_RUN = r"(?:\\{0,4}/|%2[fF])"
_LEAD = rf"[/\\%](?<![/\\].)(?<!2[fF].)(?:(?<=/)|(?<=\\)\\{{0,3}}/|(?<=%)2[fF]){_RUN}{{0,7}}+"
_SEPARATOR = re.compile(_RUN + r"{1,8}+")
_ANY_SEPARATOR = re.compile(r"(?:\\{0,4}/|\\{1,4}|%2[fF]|%5[cC]){1,8}+")

# Where this does not hold a path goes on, or is another than it looked like so far.
_ENDS = r"(?![A-Za-z0-9_~-]|\.[A-Za-z0-9_]|%(?!2[fF]|5[cC]))"

# Delimiters end a tail, also those of languages that put no space between words. Of backslashes a tail takes only
# those that escape something within it: the one before a quote or an n belongs to the text around.
_DELIMITERS = r"""\s"'`<>|()\[\]{},;&*\x00-\x1f\x7f，。、；：！？「」『』（）【】《》"""
_TAIL = re.compile(rf"(?:[^\\{_DELIMITERS}]|\\{{1,4}}[/ ]|\\{{1,4}}u(?!00[0-7])[0-9a-fA-F]{{4}})+")
_WINDOWS_TAIL = re.compile(rf"[^{_DELIMITERS}]+")

_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")


def _is_windows(path: str) -> bool:
    return not path.startswith("/")


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


@lru_cache(64)
def _any_of(paths: tuple[str, ...]) -> re.Pattern[str]:
    """Any of these paths, however spelled, the longest first, and whatever is below it."""
    posix: list[str] = []
    windows: list[str] = []
    for path in sorted(paths, key=len, reverse=True):
        on_windows = _is_windows(path)
        spelled = "".join(_spelling(char, on_windows).pattern for char in path.lstrip("/"))
        (windows if on_windows else posix).append(spelled + _ENDS)
    choices = [f"{_LEAD}(?:{'|'.join(posix)})"] * bool(posix) + windows
    return re.compile("|".join(choices))


_LEADING = re.compile(_LEAD)
_ENDS_HERE = re.compile(_ENDS)


def _end_of(text: str, start: int, path: str) -> int | None:
    """Where the path that is spelled at ``start`` ends, None if another one stands there."""
    at = start
    windows = _is_windows(path)
    if not windows:
        lead = _LEADING.match(text, start)
        if lead is None:
            return None
        at = lead.end()
        path = path.lstrip("/")
    if text.startswith(path, at):
        at += len(path)
    else:
        for char in path:
            here = _spelling(char, windows).match(text, at)
            if here is None:
                return None
            at = here.end()
    return at if _ENDS_HERE.match(text, at) else None


@lru_cache(256)
def _plainest_part(path: str) -> str:
    """The longest part of a path that every spelling has in common: without it in a text the path is not there."""
    return max(_PLAIN.findall(path), key=len, default="")


# --- where a path begins --------------------------------------------------------------------------------------

_LOOK_BACK = 32
_FILE_SCHEME = re.compile(
    r"(?<![A-Za-z0-9])file(?::|%3a)(?:(?:/|%2f){2}localhost)?(?:[/\\]|%2f){0,3}\Z", re.IGNORECASE
)
_SCHEME = re.compile(r"(?::|%3a)\Z", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\\{0,4}/|%2f){2}", re.IGNORECASE)
_IN_A_WORD = re.compile(r"[A-Za-z0-9_.~+}-]\Z")
# The end of an escape, a terminal's colour or a short option is no word that a path goes on.
_BEHIND_A_MARK = re.compile(
    r"(?:\\[nrtbfv]|\\u00[0-2][0-9a-f]|%[0-9a-f]{2}|(?:\x1b|\\u001b|\\x1b|\\e|\\033)\[[0-9;]*m"
    r"|(?<!\S)-[a-z])\Z",
    re.IGNORECASE,
)


def _beginning(text: str, done: int, start: int) -> int | None:
    """Where the path found at ``start`` begins, with the scheme before it; None in the midst of another path or URL.

    What lies before ``done`` has been dealt with.
    """
    before = text[max(done, start - _LOOK_BACK) : start]
    scheme = _FILE_SCHEME.search(before)
    if scheme is not None:
        return start - len(scheme[0])
    if _SCHEME.search(before) and _AUTHORITY.match(text, start):
        return None
    if _IN_A_WORD.search(before) and not _BEHIND_A_MARK.search(before):
        return None
    return start
