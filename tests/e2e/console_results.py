"""What the scripted tools answer: texts, charts, tables, files, and whatever could hurt a page that believes it."""

from __future__ import annotations

import base64
import json
import math
import struct
import time
import zlib

from tests.e2e.console_tools import HOSTILE_TEXT, Json

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


_CHART = {
    "xAxis": {"type": "category", "data": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]},
    "yAxis": {"type": "value"},
    "legend": {},
    "series": [
        {
            "name": "prints",
            "type": "bar",
            "data": [12, 18, 9, 22, 31, 44, 27],
            "itemStyle": {"color": "#2f8f78"},
        },
        {
            "name": "frames",
            "type": "line",
            "smooth": True,
            "data": [5, 9, 8, 12, 14, 21, 13],
            "itemStyle": {"color": "#d98c3f"},
        },
    ],
}
_DIAGRAM = """flowchart LR
  shop[Shop] --> cart{Cart}
  cart -->|paid| print[Print]
  cart -->|left| mail[Reminder]
  print --> post[Post]"""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def _block(kind: str, title: str, content: str) -> Json:
    return text(
        f'<ui_passthrough type="{kind}" title="{title}">\n```{kind}\n{content}\n```\n</ui_passthrough>'
    )


_SENTENCES = """## Week 32

The **best week** since spring: Saturday alone brought 44 prints.

- frames follow prints
- [the shop](https://shop.example/)
"""


def weekly() -> Json:
    rows = [
        {"day": day, "prints": 12 + 5 * at, "frames": 5 + 2 * at, "revenue": 210.5 + 31 * at}
        for at, day in enumerate(_DAYS)
    ]
    return {
        "content": [
            text(_SENTENCES),
            _block("echarts", "Prints and frames", json.dumps(_CHART)),
            _block("mermaid", "How an order goes", _DIAGRAM),
            text("<action_suggestions>\n- plan_trip: the fair is in September\n</action_suggestions>"),
        ],
        "structuredContent": {"week": 32, "days": rows},
        "isError": False,
        "_meta": {"_trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"},
    }


def landscape(filename: str, base: str) -> Json:
    artifact = {
        "artifact_uri": PICTURE_URI,
        "filename": filename,
        "mime_type": "image/png",
        "size_bytes": len(PICTURE),
        "sha256": "0" * 64,
        "expires_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600)),
        "download_url": f"{base}/artifacts/morning.png?sig=0",
    }
    link = {"type": "resource_link", "uri": PICTURE_URI, "name": filename, "mimeType": "image/png"}
    return {
        "content": [text("Painted: hills, and fog between them."), link],
        "isError": False,
        "_meta": {"artifact": artifact},
    }


def orders() -> Json:
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


_HOSTILE_SVG = f"<svg xmlns='http://www.w3.org/2000/svg'>{HOSTILE_TEXT}</svg>"
_HOSTILE_PROSE = f"""# {HOSTILE_TEXT}

{HOSTILE_TEXT}

[go](javascript:window.harmed=1) ![x](javascript:window.harmed=1)

<b onclick='window.harmed=1'>b</b>
"""
_HOSTILE_DIAGRAM = """flowchart LR
  a["<img src=x onerror=window.harmed=1>"] --> b
  click a "javascript:window.harmed=1"
"""


def strike() -> Json:
    """Markup wherever a string can stand, and media that say they are more than they are."""
    pixel = base64.b64encode(PICTURE).decode()
    return {
        "content": [
            text(HOSTILE_TEXT),
            text(_HOSTILE_PROSE),
            {"type": "image", "mimeType": 'image/png" onerror="window.harmed=1', "data": pixel},
            {
                "type": "image",
                "mimeType": "image/svg+xml",
                "data": base64.b64encode(_HOSTILE_SVG.encode()).decode(),
            },
            {"type": "image", "mimeType": "image/png", "data": 'x" onerror="window.harmed=1'},
            {"type": "image", "mimeType": "image/png", "data": pixel},
            {
                "type": "resource_link",
                "uri": "javascript:window.harmed=1",
                "name": HOSTILE_TEXT,
                "mimeType": HOSTILE_TEXT,
            },
            {
                "type": "resource",
                "resource": {"uri": HOSTILE_TEXT, "mimeType": "text/html", "text": HOSTILE_TEXT},
            },
            {"type": HOSTILE_TEXT, "text": HOSTILE_TEXT},
            _block("echarts", HOSTILE_TEXT, json.dumps(_hostile_chart())),
            text(f"```mermaid\n{_HOSTILE_DIAGRAM}\n```"),
            text(json.dumps([{HOSTILE_TEXT: HOSTILE_TEXT}, {HOSTILE_TEXT: 1}])),
        ],
        "structuredContent": {"__proto__": {"harmed": 1}, HOSTILE_TEXT: HOSTILE_TEXT},
        "isError": True,
        "_meta": {
            "_trace_id": HOSTILE_TEXT,
            "artifact": {
                "artifact_uri": HOSTILE_TEXT,
                "filename": HOSTILE_TEXT,
                "mime_type": "image/png",
                "download_url": "javascript:window.harmed=1",
            },
        },
    }


def _hostile_chart() -> Json:
    return {
        "title": {"text": HOSTILE_TEXT, "link": "javascript:parent.harmed=1"},
        "tooltip": {"show": True, "alwaysShowContent": True, "formatter": HOSTILE_TEXT, "renderMode": "html"},
        "xAxis": {"type": "category", "data": [HOSTILE_TEXT]},
        "yAxis": {},
        "series": [{"type": "bar", "data": [1], "name": HOSTILE_TEXT}],
    }
