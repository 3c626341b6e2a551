"""``python -m tests.e2e.console_screenshots``: writes ``docs/images/console-*.png``, the console in front of scripted
servers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.e2e.console_backend import Backend, serving
from tests.e2e.provision import ROOT, chromium, node, packages
from tests.missing import Missing

IMAGES = ROOT / "docs" / "images"
SCRIPT = Path(__file__).parent / "console" / "screenshots.mjs"


async def shoot() -> int:
    """The status of the script that draws them; 1 where something cannot be had on this machine."""
    try:
        environment = {**os.environ, "NODE_MODULES": str(packages()), "CHROMIUM": str(chromium())}
        command = [str(node()), str(SCRIPT)]
    except Missing as missing:
        print(f"screenshots: {missing}", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    async with serving(Backend()) as url:
        drawing = await asyncio.create_subprocess_exec(*command, url, str(IMAGES), env=environment)
        return await drawing.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(shoot()))
