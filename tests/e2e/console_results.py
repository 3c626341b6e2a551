"""What the scripted tools answer: texts, charts, tables, files, and whatever could hurt a page that believes it."""

from __future__ import annotations

import base64
import json
import math
import struct
import time
import zlib

from tests.e2e.console_tools import HOSTILE_TEXT, Json, data

LONG = 10 * 1024 * 1024
"""Bytes of the longest text."""


def picture(width: int, height: int) -> bytes:
    """A PNG of soft hills under a morning sky."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            sky = (246 - 40 * y // height, 222 - 20 * y // height, 196 + 30 * y // height)
            color = sky
            for hill, shade in enumerate(((150, 186, 170), (92, 146, 128), (38, 92, 80))):
                top = height * (0.45 + 0.17 * hill) + 0.06 * height * math.sin(
                    x / width * (5 + 3 * hill) + hill * 2
                )
                if y > top:
                    color = shade
            rows += bytes(color)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


PICTURE = picture(480, 270)
PICTURE_URI = "artifact://sessions/4be1/77aa/morning.png"


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def _plot(title: str, chart: Json) -> str:
    """A chart as servers write one into their texts."""
    content = f"```echarts\n{json.dumps(chart)}\n```"
    return f'<ui_passthrough type="echarts" title="{title}">\n{content}\n</ui_passthrough>'


def weekly() -> Json:
    """Sentences, a chart, a diagram and a table."""
    answers = data("answers")
    found: Json = answers["weekly"]
    found["content"][1] = text(_plot("Prints and frames", answers["plot"]))
    found["structuredContent"]["days"] = [
        {"day": day, "prints": 12 + 5 * at, "frames": 5 + 2 * at, "revenue": 210.5 + 31 * at}
        for at, day in enumerate(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    ]
    return found


def landscape(filename: str, base: str) -> Json:
    """A picture."""
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    found: Json = data("answers", filename=filename, base=base, expires=expires, picture=PICTURE_URI)
    found["landscape"]["_meta"]["artifact"]["size_bytes"] = len(PICTURE)
    return dict(found["landscape"])


def orders() -> Json:
    """Rows."""
    rows = [
        {
            "order": 4100 + at,
            "placed": f"2026-07-{28 - at:02d}",
            "items": 1 + at % 4,
            "total": 19.9 * (1 + at % 4),
            "paid": at % 3 != 1,
        }
        for at in range(25)
    ]
    return {"content": [text(json.dumps(rows))], "isError": False}


def strike() -> Json:
    """Markup wherever a string can stand, and media that say they are more than they are."""
    marks = {
        "pixel": PICTURE,
        "svg": f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE_TEXT}</svg>".encode(),
    }
    chart = json.dumps(data("answers")["hostile_chart"])
    media = {name: base64.b64encode(content).decode() for name, content in marks.items()}
    found: Json = data("answers", chart=chart, **media)["strike"]
    return found
