"""What requests of the modern era have to say to a merged mount."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from adapter.rules.mounts.own_answers import refusal_of

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def asked(meta: object) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})


def test_a_request_with_version_and_capabilities_is_served() -> None:
    """Both are all that is needed."""
    assert refusal_of(asked({VERSION: "2026-07-28", CAPABILITIES: {}})) is None


@pytest.mark.parametrize("meta", [None, [], {}, {VERSION: "2026-07-28"}, {CAPABILITIES: {}}])
def test_what_is_missing_is_named(meta: Any) -> None:
    """The client reads which member it has to add."""
    refused = refusal_of(asked(meta))
    assert refused is not None
    assert refused.code == -32602
    for key in (VERSION, CAPABILITIES):
        assert (key in refused.message) == (not isinstance(meta, dict) or key not in meta)


@pytest.mark.parametrize("version", ["2099-01-01", "", 1, None, ["2026-07-28"], {}])
def test_another_version_is_refused_with_those_that_are_served(version: Any) -> None:
    """The client can choose one of them."""
    refused = refusal_of(asked({VERSION: version, CAPABILITIES: {}}))
    assert refused is not None
    assert (refused.code, refused.data) == (-32022, {"supported": ["2026-07-28"], "requested": version})
