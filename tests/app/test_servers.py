"""A transport that the settings take is known to everything that asks for one by its name."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from adapter.app import build, running
from adapter.app.servers import UPSTREAMS
from adapter.settings.file.load import load
from adapter.settings.servers import server
from tests.e2e.provision import ROOT
from tests.ports import free_port

TRANSPORTS: tuple[str, ...] = get_args(server.Transport)

UPSTREAM: dict[str, dict[str, Any]] = {
    "streamable_http": {"url": "http://127.0.0.1:9/mcp"},
    "sse": {"url": "http://127.0.0.1:9/sse"},
    "stdio": {"command": sys.executable, "args": ["-c", ""]},
    "hosted": {},
}
"""What a server of each transport needs."""


def test_each_transport_has_a_maker_and_its_names() -> None:
    """Nobody learns at the start of a server, or in the console, that a transport has no entry."""
    terms = (ROOT / "adapter" / "edge" / "console" / "page" / "js" / "terms.js").read_text(encoding="utf-8")
    (shown,) = re.findall(r"const TRANSPORTS = \{(.*?)\n\};", terms, re.DOTALL)
    named = {
        "makers": set(UPSTREAMS),
        "kinds": set(server.TRANSPORTS),
        "console": set(re.findall(r"^\s+(\w+): \[", shown, re.MULTILINE)) & set(TRANSPORTS),
        "tests": set(UPSTREAM),
    }
    assert named == {key: set(TRANSPORTS) for key in named}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_adapter_that_measures_starts_with_each_transport(transport: str, tmp_path: Path) -> None:
    """With metrics and traces, which name the transport."""
    overrides: dict[str, Any] = {
        "core.port": free_port(),
        "core.max_start_wait_seconds": 0,
        "storage.root": str(tmp_path),
        "telemetry.enabled": True,
        "telemetry.endpoint": "http://127.0.0.1:9",
        "telemetry.prometheus.enabled": True,
        "servers.0.id": "one",
        "servers.0.upstream.transport": transport,
        **{f"servers.0.upstream.{key}": value for key, value in UPSTREAM[transport].items()},
    }
    if transport == "hosted":
        script = tmp_path / "hello.py"
        script.write_text("def hello(args, context):\n    return {}\n")
        overrides["servers.0.tools"] = {"define": [{"name": "hello", "handler": f"{script}#hello"}]}
    settings = load(None, overrides=overrides, environ={})
    async with running(build(settings)):
        assert settings.servers[0].upstream.transport == transport
