"""The page of the console and the OpenAPI document, as they are served with the fields that keep them harmless."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

import yaml

from adapter.edge.http.request import Branch, FieldLines, Names, Request
from adapter.errors import NotFound
from adapter.relay.files.signed_urls import DOWNLOADS
from adapter.rules.access.headers import prefers
from adapter.wire.envelope import dump
from adapter.wire.http_ranges import not_modified

_METHODS = ("GET", "HEAD")
_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_PACKED_ALREADY = frozenset({"woff2"})
_INDEX = "index.html"
_FRAME = "frame.html"
_MODULES_HERE = "<!-- modules -->"
_LONGEST_PATH = 3

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src blob:; "
    "connect-src 'self'; font-src 'self'; worker-src 'self'; frame-src 'self'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
FRAME_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; "
    "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
"""Plot libraries write markup with styles in it, so their frame has no origin, and nowhere to connect to."""

_SAFE: FieldLines = [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")]
# No Cross-Origin-Resource-Policy: the plot frame has no origin, so to it all of these come from elsewhere.


@dataclass(frozen=True)
class Asset:
    """One file. ``tag`` is its strong entity tag; the packed variant has one of its own (RFC 9110 §8.8.3.3)."""

    body: bytes
    media_type: str
    packable: bool
    tag: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", _digest(self.body))

    @cached_property
    def packed(self) -> bytes:
        """The file in gzip, compressed at the first request: plot libraries are megabytes, and often nobody plots."""
        return gzip.compress(self.body, 6, mtime=0)


class PageFiles:
    """The files of the page. ``version`` is in the path of each, and changes when any of them does."""

    def __init__(self) -> None:
        read = {name: found.read_bytes() for name, found in _walk(files("adapter.edge.console") / "page")}
        index = read.pop(_INDEX)
        self.version = _digest(b"\0".join(name.encode() + b"\0" + read[name] for name in sorted(read)))[1:13]
        self._assets = {name: _asset(name, body) for name, body in read.items()}
        self._index = _asset(_INDEX, self._placed(index.decode()).encode())

    def __repr__(self) -> str:
        return f"<PageFiles {self.version}: {len(self._assets)} files>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._assets)

    async def page(self, headers: Mapping[str, str]) -> tuple[int, FieldLines, bytes]:
        """Status, fields and body of the page itself, for a request with these header fields.

        It names its assets relative to its own directory, so it works below any mount, and behind any proxy.
        """
        fields = [("Content-Security-Policy", PAGE_POLICY), ("X-Frame-Options", "DENY")]
        return await _answer(self._index, headers, [*fields, ("Cache-Control", "no-cache")])

    async def file(self, path: Names, headers: Mapping[str, str]) -> tuple[int, FieldLines, bytes]:
        """The same for ``{version}/{name}``. Raises NotFound for unknown names.

        A page that is still open may ask for a file of another version: it gets the file of this one, without caching.
        """
        version, *parts = path
        name = "/".join(parts)
        asset = self._assets.get(name)
        if asset is None:
            raise NotFound()
        policy = FRAME_POLICY if name == _FRAME else "default-src 'none'; sandbox"
        # A worker takes the policy of its own file, and would not get its module from a sandbox.
        if name.endswith(".js"):
            policy = "default-src 'none'; script-src 'self'"
        caching = "public, max-age=31536000, immutable" if version == self.version else "no-cache"
        fields = [("Content-Security-Policy", policy), ("Cache-Control", caching)]
        if name == _FRAME:
            fields.append(("X-Frame-Options", "SAMEORIGIN"))
        return await _answer(asset, headers, fields)

    def _placed(self, html: str) -> str:
        """The page with the version of its assets, and its modules by name, so that they are fetched in parallel."""
        modules = sorted(name for name in self._assets if name.startswith("js/") and name not in _NOT_AT_ONCE)
        links = "\n".join(f'<link rel="modulepreload" href="assets/{name}">' for name in modules)
        return html.replace(_MODULES_HERE, links).replace('"assets/', f'"assets/{self.version}/')


_NOT_AT_ONCE = frozenset({"js/theme.js", "js/frame.js", "js/markdown_worker.js", "js/main.js"})


@dataclass(frozen=True, slots=True)
class ServerPages(Branch):
    """The branch of the pages of ``servers`` (ids); all else below the prefix is left to others."""

    servers: frozenset[str]

    def names(self, request: Request) -> Names | None:
        # Not super(): a dataclass with slots is another class than the one that its methods close over.
        found = Branch.names(self, request)
        return found if found is not None and found[0] in self.servers else None


def pages(path: str, servers: Collection[str], page_files: PageFiles) -> tuple[Branch, ...]:
    """The branches ``{path}/``, ``{path}/{server_id}`` and ``{path}/assets/…``: the page and its files.

    Nothing in them is secret, so they need no credential. Branches may raise NotFound and ClientGone.
    """

    prefix = path.rstrip("/")

    async def show(request: Request, names: Names) -> None:
        if not names and not request.path.endswith("/"):
            # Relative, so that a proxy may have taken a part of the path off.
            request.reply.send(308, [("Location", prefix.rpartition("/")[2] + "/")])
            return
        status, fields, body = await page_files.page(request.headers)
        request.reply.send(status, fields, body)

    async def send(request: Request, names: Names) -> None:
        status, fields, body = await page_files.file(names, request.headers)
        request.reply.send(status, fields, body)

    # The plot frame has no origin: browsers send "Origin: null" along when it loads its script.
    assets = (
        Branch(f"{prefix}/assets", depth, _METHODS, (), send, public=True)
        for depth in range(2, _LONGEST_PATH + 1)
    )
    return (
        Branch(prefix, 0, _METHODS, (), show),
        ServerPages(prefix, 1, _METHODS, (), show, frozenset(servers)),
        *assets,
    )


async def _answer(
    asset: Asset, headers: Mapping[str, str], fields: FieldLines
) -> tuple[int, FieldLines, bytes]:
    packed = asset.packable and prefers(headers.get("Accept-Encoding", ""), "gzip", "identity")
    tag = f'{asset.tag[:-1]}-gzip"' if packed else asset.tag
    fields = [*fields, ("ETag", tag), *([("Vary", "Accept-Encoding")] if asset.packable else []), *_SAFE]
    if not_modified(headers.get("If-None-Match"), tag):
        return 304, fields, b""
    fields.append(("Content-Type", asset.media_type))
    if not packed:
        return 200, fields, asset.body
    return 200, [*fields, ("Content-Encoding", "gzip")], await asyncio.to_thread(lambda: asset.packed)


def _asset(name: str, body: bytes) -> Asset:
    ending = name.rpartition(".")[2]
    return Asset(body, _TYPES[ending], ending not in _PACKED_ALREADY)


def _walk(place: Traversable, before: str = "") -> Iterator[tuple[str, Traversable]]:
    """The files below a directory that are served, by their path; notes and licences are not."""
    for found in place.iterdir():
        if found.is_dir():
            yield from _walk(found, f"{before}{found.name}/")
        elif found.name.rpartition(".")[2] in _TYPES:
            yield f"{before}{found.name}", found


def _digest(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


_GRANTS = "/explorer/-/grants"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ServedPaths(NamedTuple):
    """What an adapter serves: ``uploads`` is the path of uploads, None without any."""

    console: str
    uploads: str | None = None
    downloads: bool = False
    grants: bool = False


def document(served: ServedPaths, version: str) -> bytes:
    """The document as JSON, with the routes that are served."""
    text = files("adapter.edge").joinpath("openapi.yaml").read_text(encoding="utf-8")
    told: dict[str, Any] = yaml.load(text, _LOADER)  # noqa: S506 (both are safe loaders)
    homes = {"explorer": served.console, "upload": served.uploads}
    homes["artifacts"] = DOWNLOADS if served.downloads else None
    paths = {}
    for path, methods in told["paths"].items():
        first, *rest = path[1:].split("/", 1)
        home = homes.get(first, f"/{first}")
        if home is not None and (served.grants or not path.startswith(_GRANTS)):
            paths["/".join((home.rstrip("/"), *rest))] = methods
    told["paths"] = paths
    told["info"]["version"] = version
    return dump({name: member for name, member in told.items() if not name.startswith("x-")})
