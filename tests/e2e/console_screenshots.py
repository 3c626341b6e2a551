"""``python -m tests.e2e.console_screenshots``: writes ``docs/images/*.png``, the console in front of scripted servers
and the page where a person uploads.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.console_backend import Backend, serving
from tests.e2e.console_house import theatre
from tests.e2e.provision import ROOT, chromium, node, packages
from tests.edge.filing import filing
from tests.missing import Missing

IMAGES = ROOT / "docs" / "images"
PAGES = Path(__file__).parent / "console" / "link_pages.mjs"
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
        if status := await drawing.wait():
            return status
    with TemporaryDirectory() as place:
        async with filing(Path(place)) as desk, theatre(node(), chromium(), Path(place), PAGES) as phone:
            _, scope = await desk.session()
            link = f"http://127.0.0.1:{desk.port}{desk.upload_path(scope)}"
            await phone.play("phone", link, words=[str(IMAGES)])
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(shoot()))
