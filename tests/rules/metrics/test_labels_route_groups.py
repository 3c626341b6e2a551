"""Groups of routes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.metrics.labels import (
    METHODS,
    RouteGroup,
    RouteGroups,
    method_label,
    status_class,
)

GROUPS = RouteGroups(
    {"/mcp/shop": RouteGroup("mcp", "shop"), "/healthz": RouteGroup("health")},
    {"/upload": "upload", "/upload/deep": "artifact", "/console": "console"},
    frozenset({"shop"}),
)


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/mcp/shop", RouteGroup("mcp", "shop")),
        ("/mcp/shop/", RouteGroup("mcp", "shop")),
        ("/mcp/shop/x", RouteGroup("other")),
        ("/healthz", RouteGroup("health")),
        ("/upload/shop", RouteGroup("upload", "shop")),
        ("/upload/stranger", RouteGroup("upload")),
        ("/upload/deep/shop", RouteGroup("artifact", "shop")),
        ("/uploads", RouteGroup("other")),
        ("/console", RouteGroup("console")),
        ("/console/shop", RouteGroup("console", "shop")),
        ("/console/shop/tools/x", RouteGroup("api", "shop")),
        ("/console/data/status", RouteGroup("console")),
    ],
)
def test_a_path_belongs_to_a_group(path: str, group: RouteGroup) -> None:
    """The longest prefix counts, and only servers of the settings are named."""
    assert GROUPS.of(path) == group
    assert repr(GROUPS) == "<RouteGroups: 2 paths, 3 prefixes>"


@given(st.text(), st.text(), st.integers(100, 999))
def test_labels_are_few_whatever_comes(path: str, method: str, status: int) -> None:
    """A stranger's path and method make no new label."""
    name, server = GROUPS.of("/" + path)
    assert name in {"mcp", "health", "upload", "artifact", "console", "api", "other"}
    assert server in {"", "shop"}
    assert method_label(method) in METHODS | {"other"}
    assert status_class(status) in {f"{hundred}xx" for hundred in range(1, 10)}


def test_an_answer_that_never_began_has_no_status() -> None:
    """Its client left, or it was cut."""
    assert status_class(None) == "none"
    assert method_label("GET") == "GET"
