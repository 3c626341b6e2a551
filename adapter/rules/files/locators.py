"""The files in a tool's result: paths it names, files it holds, resources it links to. Pure.

A path found here is only a claim of the upstream. The code that opens it decides whether it counts.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from adapter.rules.calls.arguments import PathStep, steps
from adapter.rules.text.expressions import Expression

Mode = Literal["structured", "regex", "embedded", "resource", "none"]
Result = Mapping[str, Any]
"""The ``result`` of a response to ``tools/call``, decoded."""

_MOST_TEXT = 1 << 20
_MOST_CANDIDATES = 100
_MOST_WORK = 1 << 27  # instructions times characters: a tenth of a second as a rule, one at worst
_WINDOWS = re.compile(r"/[A-Za-z]:[/\\]")
_LONGEST_PATH = 4096  # bytes, with the NUL at its end

_ENDS = r"""\s"'`<>|()\[\]{},;*?\x00-\x1f，。、；：！？「」（）"""
_BUILT_IN = (
    re.compile(r"""(?<![A-Za-z0-9])(?i:file):/[^\s"'`<>|()\[\]{}]+"""),
    # In quotes a path may hold spaces.
    re.compile(r"""(?<=")(?:/|[A-Za-z]:[/\\])[^"\n\r]{1,4096}(?=")"""),
    re.compile(r"(?<=[`'])(?:/|[A-Za-z]:[/\\])[^`'\n\r]{1,4096}(?=[`'])"),
    re.compile(rf"(?<![A-Za-z0-9_.~/\\-])[A-Za-z]:[/\\][^{_ENDS}]+"),
    re.compile(rf"(?<![A-Za-z0-9_.~/\\-])(?<!(?i:file):)(?<!\b[A-Za-z]:)/(?!/)[^{_ENDS}]+"),
)
_BEHIND_A_PATH = ".:!"


class Embedded(NamedTuple):
    """A file that a result holds; ``name`` is the last part of its URI, None where it has none."""

    name: str | None
    media_type: str
    data: bytes


class Locator:
    """Finds the paths that one adapter's results name; its expressions are compiled once.

    ``structured`` reads what is at ``key``, a dotted path through objects and lists, in structuredContent. ``regex``
    takes the first group, else the whole match, of each of ``regexes`` in the text blocks; when there are none,
    built-in ones find absolute paths of POSIX and Windows and ``file:`` URLs. Other modes name none. ``every``: each
    file that a result names is kept, and a result may name none. Raises ExpressionInvalid for an expression that is
    none.
    """

    def __init__(
        self, mode: Mode, key: str | None = None, regexes: Sequence[str] = (), every: bool = False
    ) -> None:
        self.mode: Mode = mode
        self.every = every
        self._key = key
        self._regexes = tuple(map(Expression, regexes))

    def __repr__(self) -> str:
        return f"<Locator {self.mode}: {self._key or len(self._regexes)}>"

    def located(self, result: Result) -> list[str]:
        """Paths that a result names, each once, the likeliest first; ``file:`` URLs as the paths they stand for.

        At most 1 MiB of text is read, less for expressions of many instructions, and 100 candidates are returned.
        """
        if self.mode == "structured" and self._key is not None:
            found = _texts_at(result.get("structuredContent"), steps(self._key))
        elif self.mode == "regex":
            texts = list(_texts(result))
            found = _claims(self._regexes, texts) if self._regexes else _built_in(texts)
        else:
            return []
        paths = (path for claim in found if (path := _path(claim)) is not None)
        return list(dict.fromkeys(islice(paths, _MOST_CANDIDATES)))


def length(result: Result) -> int:
    """Return the number of characters of text in a result's blocks, as far as the text is read."""
    return sum(map(len, _texts(result)))


def embedded(result: Result) -> list[Embedded]:
    """The files in a result's image, audio and resource blocks, in order, at most 100; damaged base64 is no file."""
    found = (file for block in _blocks(result) if (file := _file(block)) is not None)
    return list(islice(found, _MOST_CANDIDATES))


def linked(result: Result) -> list[str]:
    """The URIs of a result's resource_link blocks, each once, in order, at most 100."""
    links = (block.get("uri") for block in _blocks(result) if block.get("type") == "resource_link")
    return list(islice(dict.fromkeys(uri for uri in links if isinstance(uri, str)), _MOST_CANDIDATES))


# --- claims of paths ------------------------------------------------------------------------------------------


def _texts_at(value: Any, path: Sequence[PathStep]) -> Iterator[str]:
    values = [value]
    for step in path:
        inner = (value[step.name] for value in values if isinstance(value, dict) and step.name in value)
        values = [item for value in inner for item in _items(value, step.levels)]
    return (value for value in values if isinstance(value, str))


def _items(value: Any, levels: int) -> Iterator[Any]:
    if levels == 0 or not isinstance(value, list):
        yield value
        return
    for item in value:
        yield from _items(item, levels - 1)


def _texts(result: Result) -> Iterator[str]:
    left = _MOST_TEXT
    for block in _blocks(result):
        text = block.get("text")
        if block.get("type") == "text" and isinstance(text, str) and left > 0:
            yield text[:left]
            left -= len(text)


def _claims(regexes: Iterable[Expression], texts: Sequence[str]) -> Iterator[str]:
    for regex in regexes:
        left = _MOST_WORK // regex.size
        for text in texts:
            # Each match may look ahead to the end of the text, so they are counted too.
            yield from filter(None, islice(regex.claims(text[:left]), _MOST_CANDIDATES))
            left = max(0, left - len(text))


def _built_in(texts: Sequence[str]) -> Iterator[str]:
    for regex in _BUILT_IN:
        for text in texts:
            yield from (found[0].rstrip(_BEHIND_A_PATH) for found in regex.finditer(text))


def _path(claim: str) -> str | None:
    """The path that is claimed, None for what can be none on this machine."""
    if claim[:5].lower() == "file:":
        try:
            url = urlsplit(claim)
            host, path = url.netloc, unquote(url.path, errors="surrogateescape")
        except ValueError:
            return None
        if host.lower() not in ("", "localhost"):
            return None
        claim = path[1:] if _WINDOWS.match(path) else path
    return claim if claim and _fits_a_system_call(claim) else None


def _fits_a_system_call(path: str) -> bool:
    try:
        encoded = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return len(encoded) < _LONGEST_PATH and b"\0" not in encoded


# --- blocks ---------------------------------------------------------------------------------------------------


def _blocks(result: Result) -> Iterator[Mapping[str, Any]]:
    content = result.get("content")
    return (block for block in content if isinstance(block, dict)) if isinstance(content, list) else iter(())


def _file(block: Mapping[str, Any]) -> Embedded | None:
    kind, resource = block.get("type"), block.get("resource")
    if kind in ("image", "audio"):
        return _held(None, block.get("mimeType"), _bytes(block.get("data")))
    if kind != "resource" or not isinstance(resource, dict):
        return None
    name, media_type, text = _name(resource.get("uri")), resource.get("mimeType"), resource.get("text")
    if isinstance(text, str):
        return _held(name, media_type or "text/plain", text.encode("utf-8", "replace"))
    return _held(name, media_type, _bytes(resource.get("blob")))


def _held(name: str | None, media_type: Any, data: bytes | None) -> Embedded | None:
    if data is None:
        return None
    return Embedded(name, media_type if isinstance(media_type, str) else "application/octet-stream", data)


def _bytes(text: Any) -> bytes | None:
    """Decode base64, also with line breaks, in the alphabet for URLs or without padding; None if it is invalid."""
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    bare = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except ValueError:
        return None


def _name(uri: Any) -> str | None:
    if not isinstance(uri, str):
        return None
    try:
        path = urlsplit(uri).path
    except ValueError:
        return None
    return unquote(path.rpartition("/")[2]) or None
