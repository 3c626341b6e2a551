"""Playwright MCP with the browser of the system."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.provision import packages

# No request leaves the machine: chromium would look for updates, and try QUIC and its variations service.
QUIET = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def playwright_argv(node: Path, chromium: Path, place: Path) -> list[str]:
    """The command of the server, whose settings and output lie in ``place``."""
    config = place / "playwright.json"
    config.write_text(json.dumps({"browser": {"launchOptions": {"args": QUIET}}}))
    script = packages() / "@playwright" / "mcp" / "cli.js"
    options = ["--headless", "--no-sandbox", "--isolated", "--executable-path", str(chromium)]
    return [str(node), str(script), *options, "--config", str(config), "--output-dir", str(place / "output")]
