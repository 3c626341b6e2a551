"""What the scripted console tells of itself: its servers, pins, files, sessions, exchanges and settings."""

from __future__ import annotations

import math
import time

from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import CLIENTS, USUAL_VARIABLE, ServerAddress, link_to, placeholder
from tests.e2e.console_results import PICTURE, PICTURE_URI
from tests.e2e.console_tools import TOOLS, Json, data

REFUSAL = 'HTTP 403: {"error": "insufficient_scope", "scope": "browse"}'
GRANT = "https://tools.example.com/authorize/gated/abc"
NO_GRANT = (
    f"The server needs your authorization. Open this link in a browser: {GRANT}, then try again. Not "
    "http://tools.example.com/, javascript:alert(1), https://me@evil.example/ or https://[."
)
"""A refusal with one link that can be opened, and some that cannot."""

HOSTILE_CLIENT = "<img src=x onerror=alert(1)>"


def _state(principal: str = "") -> Json:
    """All that is kept in ``console/state.yaml``."""
    found: Json = data("state", principal=principal, picture=PICTURE_URI)
    return found


def activity() -> Json:
    """An hour as it is after a day: a wave of calls, a few others, and errors in the middle."""
    first = int(time.time() // 60) - 59
    minutes = [
        [
            (first + at) * 60,
            round(14 + 9 * math.sin(at / 7) + at * 7 % 5),
            3 + at % 4,
            4 if 31 < at < 36 else int(at == 50),
        ]
        for at in range(60)
    ]
    return {
        "whose": "all",
        "since": first * 60 - 80_000,
        "minutes": minutes,
        "replica": "a",
        "heard": ["b"],
        "silent": ["c"],
    }


def connect(server: str, url: str) -> Json:
    """What the adapter tells of a server under tokens, and of the merged mount that has it."""
    merged = [connection("all", "https://tools.example.com/mcp/all")]
    return {**connection(server, url), "merged": merged}


def mounts() -> list[Json]:
    """A merged mount of which one server is down."""
    found: list[Json] = _state()["mounts"]
    return found


def connection(server: str, url: str) -> Json:
    """The address of a server or mount and the entries for it."""
    address = ServerAddress(server, url, USUAL_VARIABLE)
    clients = [
        {
            "id": name,
            "title": client.title,
            "file": client.file.shown,
            "folder": client.file.folder,
            "format": client.format,
            "text": entry_text(client.format, client.keys, server, client.entry(address)),
            "note": client.note,
            "command": f"mcp-adapter install {name} --url {url} --name {server}",
            "link": link_to(name, address),
            "placeholder": None if client.expands else placeholder(USUAL_VARIABLE),
        }
        for name, client in CLIENTS.items()
    ]
    return {"id": server, "url": url, "token": USUAL_VARIABLE, "signs_in": False, "clients": clients}


def servers(*, rough: bool) -> list[Json]:
    """``rough`` adds the server that nobody wants to meet."""
    state, found = _state(), []
    for own in state["servers"][: None if rough else -1]:
        name, wave = own["id"], _wave()
        usual = {"mount": f"/{name}/mcp", "latency_ms": wave[-1][1], "tools": len(TOOLS[name])}
        lost = own.get("latency_ms", 0) is None
        history = [[at, None if lost and number > 51 else ms] for number, (at, ms) in enumerate(wave)]
        found.append({**state["server"], **usual, "history": history, **own})
    return found


def _wave() -> list[list[float]]:
    """Half an hour of pings: times and milliseconds."""
    return [
        [
            int(time.time()) - 30 * (60 - at),
            round(4 + 2.2 * math.sin(at / 4) + (at * 7 % 5) / 2 + (9 if at == 41 else 0), 1),
        ]
        for at in range(60)
    ]


def pins(*, drifted: bool) -> Json:
    found: Json = _state()["pins"]["drifted" if drifted else "calm"]
    return found


def files() -> Json:
    found: Json = _state()["files"]
    found["scopes"][0]["files"][1]["size"] = len(PICTURE)
    return found


def sessions(principal: str) -> list[Json]:
    return [{**each, "own": each["principal"] == principal} for each in _state(principal)["sessions"]]


_CALLS = (
    ("studio", "count_words", 14.2, "ok"),
    ("browser", "browser_navigate", 812.0, "ok"),
    ("studio", "draw_landscape", 96.4, "ok"),
    ("warehouse", "list_orders", 5004.0, "upstream_timeout"),
    ("studio", "report/weekly", 41.0, "ok"),
    ("browser", "browser_snapshot", 122.7, "ok"),
    ("studio", "say_no", 7.9, "tool_error"),
)


def exchange(number: int, at: float) -> Json:
    server, tool, ms, outcome = _CALLS[number % len(_CALLS)]
    ms = round(ms * (1 + (number * 13 % 7) / 20), 1)
    cuts = (
        (0.0, 0.04, "gate"),
        (0.04, 0.03, "pins"),
        (0.07, 0.08, "uploads"),
        (0.15, 0.74, "upstream"),
        (0.89, 0.09, "artifacts"),
    )
    stages = [
        {
            "name": name,
            "start_ms": round(ms * start, 2),
            "ms": round(ms * part, 2),
            "outcome": outcome if name == "upstream" else "ok",
        }
        for start, part, name in cuts
    ]
    status = {"ok": 200, "tool_error": 200}.get(outcome, 504)
    return {
        "at": at,
        "server": server,
        "method": "tools/call",
        "tool": tool,
        "entrance": "http" if number % 3 else "mcp",
        "outcome": outcome,
        "status": status,
        "ms": ms,
        "stages": stages,
        "own": number % 3 > 0,
    }


CONFIG = str(_state()["config"])
