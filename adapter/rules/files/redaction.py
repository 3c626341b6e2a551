"""The part of the store's paths that a text may show: the URI of a known file, nothing of any other path. Pure.

A path is recognised in every spelling (see ``filenames``), as a ``file:`` URL too. A path below a root of the
store is recognised by the root. A path that is relative to some directory, or under a root as another machine
mounts it, is recognised by the ids that lead to a file. Work is linear in the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import AnyStr, NamedTuple

from adapter.rules.files.file_records import AREAS
from adapter.rules.files.filenames import (
    DELIMITERS,
    ENDS,
    LONGEST_SPELLING,
    SLASHES,
    any_of,
    behind_slashes,
    end_of,
    end_of_part,
    end_of_tail,
    plainest_part,
    search,
)

WITHHELD = "[withheld path]"

LOOK = 1 << 20
"""Bytes, or characters, that are searched for a word at once."""

LONGEST_RUN = 1 << 16
"""Characters before a place that are taken for its path, at most: no system has such paths."""

_AREA = "|".join(AREAS.values())
_ID = "[0-9a-f]{32}"
_PLACE = re.compile(rf"(?:{_AREA})/({_ID}/{_ID})(?:/{_ID})?/[^/]+")
"""A stored file, or a copy of it."""


class _Held(NamedTuple):
    """A known file: its place below a root, and what is shown instead."""

    place: str
    shown: str


class _Seen(NamedTuple):
    """The text that is shown instead of a path, and the index where that path ends."""

    shown: str
    end: int


class Redaction:
    """Called with a text, gives it with every path in ``replacements`` as its URI, and every other path of the store
    withheld.

    ``roots`` are absolute paths, spellings of the store's one root; ``replacements`` maps absolute paths, in any of
    these spellings, to URIs; one that is not below a root is not the store's and stays. A path of which one of them
    is but a part, at its end or in its middle, is another path. A root by itself is withheld when it has several
    components: one such as ``/data`` is as likely a page of some site.
    """

    def __init__(self, roots: Sequence[str], replacements: Mapping[str, str]) -> None:
        self._roots, self._parts_with_gaps, self._needles = _sought(tuple(roots))
        self._replacements = replacements
        self._held: dict[str, _Held] = {}
        self._others: dict[str, str] = {}
        self._ready = False

    def __repr__(self) -> str:
        return f"<Redaction of {len(self._roots)} roots: {len(self._replacements)} paths known>"

    def _get_ready(self) -> None:
        """Put in order what is known. Not before it is needed: most calls have one of these, and few texts a path."""
        self._ready = True
        for path in sorted(self._replacements, key=len, reverse=True):
            root = next((root for root in self._roots if path.startswith(root + "/")), None)
            if root is None:
                continue
            # By its ids, because there may be thousands, and a text may name each.
            if ids := _PLACE.fullmatch(path, len(root) + 1):
                self._held[ids[1]] = _Held(ids[0], self._replacements[path])
            else:
                self._others |= {each + path[len(root) :]: self._replacements[path] for each in self._roots}

    def spares(self, message: bytes) -> bool:
        r"""Tell whether no text in this JSON changes, if a search of its bytes can prove that: False proves nothing.

        The search is for letters that are the same in every spelling; JSON can hide them only in a ``\u00``.
        """
        return not _holds(message, self._needles)

    def __call__(self, text: str) -> str:
        if not self._ready:
            self._get_ready()
        if _holds(text, map(plainest_part, self._roots)):
            text = self._without_paths(text)
        if _holds(text, AREAS.values()):
            text = self._without_places(text)
        return text

    # --- below a root -----------------------------------------------------------------------------------------

    def _without_paths(self, text: str) -> str:
        pieces: list[str] = []
        done = at = 0
        reach = LONGEST_SPELLING * (len(self._roots[0]) + 2)
        while found := search(any_of(self._roots), text, at, reach):
            at = found.end()
            begin = _beginning(text, done, found.start())
            if begin is None:
                continue
            seen = self._seen(text, found.start())
            if seen is not None:
                pieces += (text[done:begin], seen.shown)
                done = at = seen.end
        return "".join((*pieces, text[done:]))

    def _seen(self, text: str, start: int) -> _Seen | None:
        for path, shown in self._others.items():
            end = end_of(text, start, path)
            if end is not None and behind_slashes(text, end) is None:
                return _Seen(shown, end)
        for root in self._roots:
            end = end_of(text, start, root)
            if end is not None and (seen := self._below(text, end, root)) is not None:
                return seen
        return None

    def _below(self, text: str, end: int, root: str) -> _Seen | None:
        """Return what is shown for the path behind a root that ends at ``end``.

        None for a root by itself that may be anything.
        """
        behind = behind_slashes(text, end)
        if behind is not None:
            place = _PLACE_IN_TEXT.match(text, behind)
            known = None if place is None else self._held_at(text, place)
            if known is not None:
                return known
            tail = end_of_tail(text, end)
            if tail > end:
                return _Seen(WITHHELD, tail)
        return _Seen(WITHHELD, end) if root.count("/") > 1 else None

    # --- anywhere ---------------------------------------------------------------------------------------------

    def _without_places(self, text: str) -> str:
        pieces: list[str] = []
        done = at = 0
        while found := search(_PLACE_IN_TEXT, text, at, _REACH):
            begin = self._prefix(text, at, found.start())
            seen = self._held_at(text, found) or _Seen(WITHHELD, end_of_tail(text, found.end()))
            at = seen.end
            if begin is not None:
                pieces += (text[done:begin], seen.shown)
                done = at
        return "".join((*pieces, text[done:]))

    def _held_at(self, text: str, place: re.Match[str]) -> _Seen | None:
        """The known file whose place is spelled there, and not only the beginning of another path."""
        held = self._held.get(f"{place[1]}/{place[2]}")
        end = None if held is None else end_of_part(text, place.start(), held.place)
        if held is None or end is None or behind_slashes(text, end) is not None:
            return None
        return _Seen(held.shown, end)

    def _prefix(self, text: str, done: int, start: int) -> int | None:
        """Return the index where the path to the place at ``start`` begins; None in the middle of a URL.

        The text before ``done`` is already handled.
        """
        gap = next((part for part in self._parts_with_gaps if text.endswith(part, done, start)), "")
        start -= len(gap)
        reversed_run = _UNDELIMITED.match(text[max(done, start - LONGEST_RUN) : start][::-1])
        assert reversed_run is not None, "it may be empty"
        run = reversed_run[0][::-1]
        url = _URL.search(run)
        cut = max(run.rfind(mark) for mark in ":=?#") + 1
        if url is not None and max(run.rfind(mark, url.end()) for mark in "=?#") < 0:
            return None
        if _FILE.search(run, 0, cut):
            return start - len(run) + cut - len("file:")
        begins = _BEGINS.search(run, cut)
        return start if begins is None else start - len(run) + begins.start()


_PLACE_IN_TEXT = re.compile(
    rf"(?:(?<![A-Za-z0-9_.~+-])|(?<=%[0-9a-fA-F]{{2}})|(?<=\\[nrtbfv]))"
    rf"(?:{_AREA}){SLASHES}({_ID}){SLASHES}({_ID})(?={SLASHES}|{ENDS})"
)
_REACH = 64 * 2 + LONGEST_SPELLING * 3
_UNDELIMITED = re.compile(rf"[^{DELIMITERS}]*+")
_FILE = re.compile(r"(?i)(?<![a-z0-9])file:\Z")
_URL = re.compile(r"(?i)(?<![a-z0-9+.-])(?!file:)[a-z][a-z0-9+.-]*+(?::|%3a)(?:\\{0,4}/|%2f){2}")

# In languages without spaces a word may stand right before a path: it begins where it looks like one. The (?!) is for
# Python before 3.11.5, which would not go back to the % of a %2F (CPython issue 106052).
_BEGINS = re.compile(
    r"(?:(?<=\\[nrtbfv])|(?<![A-Za-z0-9._~+@%\\-]))"
    rf"(?:[A-Za-z0-9._~+@-]|%(?!2[fF])|(?!))*+{SLASHES}"
)


@lru_cache(64)
def _sought(roots: tuple[str, ...]) -> tuple[tuple[str, ...], list[str], tuple[bytes, ...]]:
    """Roots without a slash at their ends, the longest first; ``_parts_with_gaps`` of them; and what stands in every
    JSON that names a path of the store, or may stand for it."""
    own = tuple(sorted({root.rstrip("/") for root in roots} - {""}, key=len, reverse=True))
    needles = ("\\u00", *(plainest_part(root) for root in own), *AREAS.values())
    return own, _parts_with_gaps(own), tuple(needle.encode() for needle in needles)


def _holds(text: AnyStr, parts: Iterable[AnyStr]) -> bool:
    """Tell whether one of the parts is in the text. Other threads wait for the end of each look."""
    looks = range(0, len(text) or 1, LOOK)
    for part in parts:
        for start in looks:
            if text.find(part, start, start + LOOK + len(part)) >= 0:
                return True
    return False


def _parts_with_gaps(roots: Sequence[str]) -> list[str]:
    """The last components of roots that a path to a place may go through and that a delimiter would end, the
    longest first."""
    parts = [root.strip("/").split("/") for root in roots]
    ends = ("/".join(each[at:]) + "/" for each in parts for at in range(len(each)))
    return sorted((end for end in ends if re.search(rf"[{DELIMITERS}]", end)), key=len, reverse=True)


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
    """Return the index where the path found at ``start`` begins, with the scheme before it.

    None in the middle of another path or URL. The text before ``done`` is already handled.
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
