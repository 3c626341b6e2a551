"""The trace of a call: told to callers over HTTP, where there is one, and to nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.raw import RawClient
from tests.pipeline.end_to_end.living import Living, living

SETTINGS = """
console: {enabled: true, allow_execute: true}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - {name: traced, handler: "work.py#traced", inputs: {trace: {type: string, optional: true}}}
"""

WORK = """
def traced(payload, context):
    context.trace_id = payload["inputs"].get("trace")
    return 1
"""


async def over_http(served: Living, arguments: dict[str, Any]) -> Any:
    async with RawClient(served.port) as client:
        path = "/explorer/shop/tools/traced/call"
        _, body = await client.request("POST", orjson.dumps(arguments), path, accept="application/json")
        return orjson.loads(body)


@pytest.mark.parametrize("arguments", [{}, {"trace": ""}])
async def test_e5_no_trace_is_no_member(tmp_path: Path, arguments: dict[str, str]) -> None:
    """Without a trace, or with an empty one, there is no ``_meta`` at all."""
    async with living(tmp_path, SETTINGS, scripts={"work": WORK}) as served:
        assert "_meta" not in await over_http(served, arguments)


async def test_e5_a_script_may_name_the_trace(tmp_path: Path) -> None:
    """What a script puts into its context stands in the answer over HTTP, and not in MCP's."""
    async with living(tmp_path, SETTINGS, scripts={"work": WORK}) as served:
        assert (await over_http(served, {"trace": "t-1"}))["_meta"] == {"_trace_id": "t-1"}
        assert "_meta" not in (await served.call("traced", {"trace": "t-1"})).result
