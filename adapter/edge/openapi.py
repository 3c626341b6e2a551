"""The HTTP routes as an OpenAPI 3.1 document: ``openapi.yaml`` beside this, with the paths of an adapter."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from adapter.relay.files.signed_urls import DOWNLOADS
from adapter.wire.envelope import dump

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
