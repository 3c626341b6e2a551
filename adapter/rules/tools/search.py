"""Finding tools by words: a lexical ranking over names, titles, parameters and descriptions. Pure.

The same words against the same catalogue rank the same way everywhere: nothing here learns or samples.
"""

from __future__ import annotations

import heapq
import math
import re
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from adapter.rules.text.unicode import nfkc, visible
from adapter.wire.envelope import parse
from adapter.wire.piecewise import Piecewise, one_piece

LONGEST_QUERY = 1000
"""Characters of a query that are read; of them at most ``MOST_WORDS`` words count."""

MOST_WORDS = 32

MOST_KNOWN = 100_000
"""Words of one catalogue that are indexed; ten thousand usual tools have a few thousand."""

ONE_LINE = 200
"""Characters of a description in the list of hits."""

_READ_TEXT = 1000
_MOST_PARAMETERS = 200
_MOST_ALIKE = 64
_SHORTEST_STEM = 3

# A word of a tool's name says most of its purpose, a word of its description least. There are hundreds of thousands of
# entries in the index, so each is one number: the place of the tool, and behind it the sum of these weights.
_OF_NAME, _OF_TITLE, _OF_PARAMETER, _OF_DESCRIPTION = 8, 6, 3, 2
_BITS = 5
_SUM = (1 << _BITS) - 1
_ALIKE = 0.5
_SAME_NAME = 100.0

_LETTERS_AND_DIGITS = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Scripts without spaces between words: there two neighbouring characters count as a word.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


class SearchHit(NamedTuple):
    """A tool that a query found. ``score`` compares tools of one answer and means nothing beyond."""

    name: str
    title: str | None
    line: str
    score: float


class Index:
    """The words of one catalogue, whose tools have these ``names``; see ``index_of``."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names, key=_sortable)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._shown: list[tuple[str | None, str]] = []
        self._tools_of: defaultdict[str, array[int]] = defaultdict(_entries)
        self._of_name: dict[str, list[int]] = {}
        self._words: list[str] = []

    def fill(self, definitions: Mapping[str, bytes]) -> Piecewise[None]:
        """Index the definitions of the tools, by their names; each takes up to 0.1 ms."""
        for place, name in enumerate(self._names):
            definition = definitions[name]
            yield from one_piece(partial(self._add, place, name, definition), len(definition))
        self._words = sorted(self._tools_of)

    def __repr__(self) -> str:
        return f"<Index of {len(self._names)} tools: {len(self._words)} words>"

    def search(
        self, query: str, limit: int, allowed: Collection[str] | None = None
    ) -> Piecewise[tuple[list[SearchHit], int]]:
        """The best ``limit`` tools for a query, and how many it found. ``allowed`` are those that may be found.

        A query without any word finds every tool, in the order of names.
        """
        scores = yield from self._scores(query[:LONGEST_QUERY])
        if allowed is not None:
            may = {self._places[name] for name in allowed if name in self._places}
            yield None
            scores = {place: score for place, score in scores.items() if place in may}
        yield None
        best = heapq.nsmallest(limit, scores.items(), key=lambda item: (-item[1], item[0]))
        return [self._found(place, score) for place, score in best], len(scores)

    def _scores(self, query: str) -> Piecewise[dict[int, float]]:
        wanted = list(dict.fromkeys(islice(words(query), MOST_WORDS)))
        if not wanted:
            return dict.fromkeys(range(len(self._names)), 0.0)
        scores: dict[int, float] = {}
        for word in wanted:
            # A tool with several words like this one counts with the best of them.
            best: dict[int, float] = {}
            for alike, likeness in self._alike(word):
                tools = self._tools_of[alike]
                weight = likeness * math.log1p(len(self._names) / len(tools))
                for entry in tools:
                    place, score = entry >> _BITS, weight * (entry & _SUM)
                    if score > best.get(place, 0.0):
                        best[place] = score
                # In a hostile catalogue all tools have a hundred words that begin alike, and each of them takes a walk.
                yield None
            for place, score in best.items():
                scores[place] = scores.get(place, 0.0) + score
        for place in self._of_name.get(_folded(query.strip()), ()):
            scores[place] = scores.get(place, 0.0) + _SAME_NAME
        return {place: round(score, 3) for place, score in scores.items()}

    def _alike(self, word: str) -> Iterator[tuple[str, float]]:
        """The words of the catalogue that a query's word matches, and how alike each is: itself, longer ones, stems."""
        if word in self._tools_of:
            yield word, 1.0
        if len(word) < _SHORTEST_STEM:
            return
        first = bisect_left(self._words, word)
        for longer in islice(self._words, first, first + _MOST_ALIKE):
            if not longer.startswith(word):
                break
            if longer != word:
                yield longer, _ALIKE
        for length in range(_SHORTEST_STEM, min(len(word), _MOST_ALIKE)):
            if word[:length] in self._tools_of:
                yield word[:length], _ALIKE * length / len(word)

    def _found(self, place: int, score: float) -> SearchHit:
        title, line = self._shown[place]
        return SearchHit(self._names[place], title, line, score)

    # --- building ---------------------------------------------------------------------------------------------

    def _add(self, place: int, name: str, definition: bytes) -> None:
        value = parse(definition)
        title, description = _text(value, "title"), _text(value, "description")
        self._shown.append((title or None, one_line(description)))
        self._of_name.setdefault(_folded(name), []).append(place)
        weights: dict[str, int] = {}
        for text, weight in (
            (name, _OF_NAME),
            (title, _OF_TITLE),
            (" ".join(_parameters(value)), _OF_PARAMETER),
            (description, _OF_DESCRIPTION),
        ):
            # A word counts once in a text, however often it stands there.
            for word in set(words(text[:_READ_TEXT])):
                weights[word] = weights.get(word, 0) + weight
        tools_of, shifted = self._tools_of, place << _BITS
        for word, weight in weights.items():
            if word in tools_of or len(tools_of) < MOST_KNOWN:
                tools_of[word].append(shifted | weight)


def index_of(definitions: Mapping[str, bytes]) -> Piecewise[Index]:
    """The index of one catalogue, by the definitions of its tools."""
    index = Index(definitions)
    yield None
    yield from index.fill(definitions)
    return index


def _entries() -> array[int]:
    return array("L")


def words(text: str) -> Iterator[str]:
    """The words of a text in lower case: parts of camelCase and snake_case are words, CJK text counts by pairs."""
    found = _LETTERS_AND_DIGITS.findall(_HUMPS.sub(" ", nfkc(text)).casefold())
    if text.isascii():
        return iter(found)
    return (each for word in found for each in _spaced(word))


def one_line(description: str) -> str:
    """A description in one line of at most ``ONE_LINE`` characters, without invisible ones."""
    line = " ".join(visible(description[: 4 * ONE_LINE]).split())
    return line if len(line) <= ONE_LINE else line[: ONE_LINE - 1].rstrip() + "…"


def _spaced(word: str) -> Iterator[str]:
    at = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > at:
            yield word[at : run.start()]
        characters = run[0]
        if len(characters) == 1:
            yield characters
        yield from (characters[place : place + 2] for place in range(len(characters) - 1))
        at = run.end()
    if at < len(word):
        yield word[at:]


def _parameters(value: Any) -> Iterator[str]:
    """The names of a tool's parameters, the outer ones first."""
    todo: list[Any] = [value.get("inputSchema") if isinstance(value, dict) else None]
    left = _MOST_PARAMETERS
    for schema in todo:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if not isinstance(properties, dict):
            continue
        for name, inner in islice(properties.items(), left):
            yield name
            todo.append(inner)
            left -= 1


def _text(value: Any, key: str) -> str:
    text = value.get(key) if isinstance(value, dict) else None
    return text if isinstance(text, str) else ""


def _folded(name: str) -> str:
    return nfkc(name).casefold()


def _sortable(name: str) -> bytes:
    # The order depends on no locale or version of Unicode; a name may hold a lone surrogate.
    return name.encode("utf-8", "surrogatepass")
