"""What calls of a plan are compared: adapters in which every tool has one stage, all of them, or is hosted."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.bench.fronts import adapter_settings
from tests.bench.load import Address

PLAIN, FACTORY, TRACED, FULL = "plain", "factory", "traced", "full"
"""The adapters: nothing of their own, a context factory, telemetry, both."""

KEY, SECRET = "the bench's key", "the bench's secret of more than 32 bytes"
RSA_BITS = 2048

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": "integer"}},
    "required": ["a"],
}

CODE = """\
async def factory(request):
    return {"tenant": request.headers.get("X-Tenant")}

async def inputs(payload, context):
    return payload["inputs"]

async def outputs(payload, context):
    return payload["results"]

async def around(context, arguments, next):
    return await next()

async def derive(context):
    return {"region": "north"}

async def answer(payload, context):
    return payload["inputs"]

def threaded(payload, context):
    return payload["inputs"]
"""

CODE_FILE, DATABASE = "bench_tools.py", "bench.sqlite3"
STATEMENT = "SELECT sku, name, price, stock FROM products WHERE stock >= {{ inputs.a }} ORDER BY sku LIMIT 10"

API_KEY: dict[str, Any] = {"auth": {"plugin": "api_key", "policy": {"value": KEY}}}
RATE: dict[str, Any] = {"rate": {"window": 60, "max": 1_000_000}}
CONCURRENCY: dict[str, Any] = {"concurrency": {"max_active": 10, "max_queue": 10}}
MAPPERS = {"input": f"{CODE_FILE}#inputs", "output": f"{CODE_FILE}#outputs"}
SYNC: dict[str, Any] = {"invalidates": ["other.*"]}
"""Somebody else's tools, so that no row makes another's results stale."""

PRESENTER: dict[str, Any] = {
    "schema": {"a": "int", "b": "int"},
    "redact": {"paths": ["b"], "censor": "[hidden]"},
}


@dataclass(frozen=True)
class Row:
    """One kind of call: ``tool`` is called at ``mount`` of the adapter ``front``, ``share`` of the usual count.

    ``stages`` are what the settings say of the tool of the upstream, None where that is nothing. ``token`` is the
    algorithm of the token that is sent.
    """

    title: str
    tool: str
    stages: Mapping[str, Any] | None = None
    front: str = PLAIN
    mount: str = "bench"
    token: str | None = None
    share: float = 1.0


PIPED = Row("piped", "echo")
HIT = Row("SQLite statement, cache hit", "kept", mount="hosted")
ROWS = (
    PIPED,
    Row("planned, without a stage", "planned", {"errors": {"mode": "result"}}),
    Row("context", "planned", front=FACTORY),
    Row("auth api_key", "api_key", API_KEY),
    Row(
        "auth jwt HS256",
        "jwt_hs256",
        {"auth": {"plugin": "jwt", "policy": {"secret": SECRET}}},
        token="HS256",
    ),
    Row("auth jwt RS256", "jwt_rs256", {"auth": {"plugin": "jwt"}}, token="RS256"),
    Row("rate", "rate", {"limits": RATE}),
    Row("concurrency", "concurrency", {"limits": CONCURRENCY}),
    Row("input mapper", "mapped_in", {"mappers": {"input": MAPPERS["input"]}}),
    Row("validate", "validated", {"validate": True}),
    Row("middleware, raw", "around", {"middleware": [f"{CODE_FILE}#around"]}),
    Row("middleware, deriving", "derived", {"middleware": [f"{CODE_FILE}#derive"]}),
    Row("cache, hit", "cached", {"cache": {"enabled": True}}),
    Row("output mapper", "mapped_out", {"mappers": {"output": MAPPERS["output"]}}),
    Row("presenter, schema and redaction", "presented", {"presenter": "shown"}),
    Row("state_sync", "synced", {"state_sync": SYNC}),
    Row("egress", "egress", {"limits": {"egress": "1Mi"}}),
    Row("telemetry", "planned", front=TRACED),
    Row(
        "all of these but the cache",
        "everything",
        {
            "auth": {"plugin": "jwt"},
            "limits": {**RATE, **CONCURRENCY, "egress": "1Mi"},
            "mappers": MAPPERS,
            "validate": True,
            "middleware": [f"{CODE_FILE}#around", f"{CODE_FILE}#derive"],
            "presenter": "shown",
            "state_sync": SYNC,
        },
        front=FULL,
        token="RS256",
    ),
    Row("SQLite statement", "asked", mount="hosted"),
    HIT,
    Row("script in process, async", "answer", mount="hosted"),
    Row("script in process, sync", "threaded", mount="hosted"),
    Row("script as a subprocess", "subprocess", mount="hosted", share=0.05),
)
FRONTS = (PLAIN, FACTORY, TRACED, FULL)


def definitions() -> list[dict[str, Any]]:
    """What the upstream lists: every proxied tool reads, and says what it takes."""
    return [
        {"name": tool, "description": "Echoes.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
        for tool in sorted({row.tool for row in ROWS if row.mount == "bench"})
    ]


@dataclass(frozen=True)
class Tokens:
    """The tokens that calls bring, by their algorithm."""

    rsa: RSAPrivateKey = field(default_factory=lambda: generate_private_key(65537, RSA_BITS))

    @property
    def public_key(self) -> str:
        encoded = self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return encoded.decode()

    def of(self, algorithm: str) -> str:
        claims = {"sub": "bench", "exp": int(time.time()) + 24 * 3600}
        return jwt.encode(claims, SECRET if algorithm == "HS256" else self.rsa, algorithm)

    def fields(self, row: Row, bearer: str) -> list[str]:
        """The header lines of a row's calls; where a token takes the usual place, the adapter's has another."""
        fields = [f"X-API-Key: {KEY}"] if row.tool == "api_key" else []
        if row.token is None:
            return [*fields, f"Authorization: Bearer {bearer}"]
        return [
            *fields,
            f"X-Mcp-Adapter-Auth-Token: {bearer}",
            f"Authorization: Bearer {self.of(row.token)}",
        ]


def settings_of(front: str, upstream: int, address: Address, place: Path, tokens: Tokens) -> dict[str, Any]:
    """The settings of one adapter, and beside them what they name: code and a database."""
    (place / CODE_FILE).write_text(CODE)
    make_database(place / DATABASE)
    settings: dict[str, Any] = adapter_settings(upstream, address.port, address.bearer, place)
    settings["presenters"] = {"shown": PRESENTER}
    settings["connectors"] = [
        {"name": "shop", "connector": "sqlite", "connection_string": str(place / DATABASE)}
    ]
    settings["servers"][0]["stages"] = {
        row.tool: _with_key(row.stages, tokens) for row in ROWS if row.stages is not None
    }
    settings["servers"].append(_hosted())
    if front in (FACTORY, FULL):
        settings["context"] = {"factory": f"{CODE_FILE}#factory"}
    if front in (TRACED, FULL):
        endpoint = f"http://127.0.0.1:{upstream}"
        settings["telemetry"] = {"enabled": True, "transport": "http", "endpoint": endpoint}
    return settings


def _with_key(stages: Mapping[str, Any], tokens: Tokens) -> dict[str, Any]:
    if stages.get("auth") == {"plugin": "jwt"}:
        return {**stages, "auth": {"plugin": "jwt", "policy": {"public_key": tokens.public_key}}}
    return dict(stages)


def _hosted() -> dict[str, Any]:
    inputs = {"a": {"type": "int"}, "b": {"type": "int"}}
    asking = {"use": "shop", "statement": STATEMENT, "annotations": {"readOnlyHint": True}, "inputs": inputs}
    return {
        "id": "hosted",
        "mount_path": "/mcp/hosted",
        "upstream": {"transport": "hosted"},
        "tools": {
            "define": [
                {"name": "asked", **asking},
                {"name": "kept", **asking, "cache": {"enabled": True, "ttl": 3600}},
                {"name": "answer", "handler": f"{CODE_FILE}#answer", "inputs": inputs},
                {"name": "threaded", "handler": f"{CODE_FILE}#threaded", "inputs": inputs},
                {
                    "name": "subprocess",
                    "handler": f"{CODE_FILE}#threaded",
                    "runtime": "subprocess",
                    "inputs": inputs,
                },
            ]
        },
    }


def make_database(path: Path) -> None:
    """A shop of some thousand products."""
    with sqlite3.connect(path) as shop:
        shop.execute("CREATE TABLE products (sku TEXT PRIMARY KEY, name TEXT, price REAL, stock INTEGER)")
        shop.executemany(
            "INSERT INTO products VALUES (?, ?, ?, ?)",
            [(f"P-{number:04}", f"Product number {number}", number / 8, number) for number in range(2000)],
        )
    shop.close()
