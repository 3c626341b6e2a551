"""What requests of the modern era have to say to a merged mount."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from adapter.relay.mounts.merged import require_meta
from adapter.wire.rpc_refusals import RpcRefused

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


def refused(meta: object) -> RpcRefused:
    with pytest.raises(RpcRefused) as refused:
        require_meta(orjson.dumps({"id": 1, "method": "tools/list", "params": {"_meta": meta}}))
    return refused.value


def test_a_request_with_version_and_capabilities_is_served() -> None:
    """Both are all that is needed."""
    require_meta(
        b'{"params":{"_meta":{"%b":"2026-07-28","%b":{}}}}' % (VERSION.encode(), CAPABILITIES.encode())
    )


@pytest.mark.parametrize("meta", [None, [], {}, {VERSION: "2026-07-28"}, {CAPABILITIES: {}}])
def test_what_is_missing_is_named(meta: Any) -> None:
    """The client reads which member it has to add."""
    assert refused(meta).code == -32602
    for key in (VERSION, CAPABILITIES):
        assert (key in str(refused(meta))) == (not isinstance(meta, dict) or key not in meta)


@pytest.mark.parametrize("version", ["2099-01-01", "", 1, None, ["2026-07-28"], {}])
def test_another_version_is_refused_with_those_that_are_served(version: Any) -> None:
    """The client can choose one of them."""
    why = refused({VERSION: version, CAPABILITIES: {}})
    assert (why.code, why.data) == (-32022, {"supported": ["2026-07-28"], "requested": version})
