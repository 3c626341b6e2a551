"""What an access token costs: ``python -m tests.bench.access [--quick] [--json FILE]``.

One adapter takes a static token and JWTs of an issuer. Callers with either make calls that are only forwarded, in turn,
each on a connection of its own. The cost of a call is CPU time of the adapter, and the ratio of a round is that with a
JWT to that with a static token. Rounds are short, so that both meet the same neighbours on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.attacks.issuer import issuing
from tests.bench.machine import Machine
from tests.e2e.processes import START_TIMEOUT, Adapter, start
from tests.edge.raw import RawClient, call_body
from tests.pipeline.issuer import document, jwk, rsa_key, token

STATIC = "static-token-of-the-benchmark"
ISSUER = "https://issuer.example"
KINDS = ("static", "jwt")


class Round(NamedTuple):
    """Microseconds of CPU for one call with each kind of token."""

    static: float
    jwt: float

    @property
    def ratio(self) -> float:
        """JWT to static token."""
        return self.jwt / self.static


class AccessCosts(NamedTuple):
    """All rounds. ``first`` are milliseconds until a call with a token that nobody has seen was answered."""

    rounds: tuple[Round, ...]
    first: float

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(each.ratio for each in self.rounds)

    @property
    def difference(self) -> float:
        """Microseconds that a JWT costs more in each call, in the median round."""
        return statistics.median(each.jwt - each.static for each in self.rounds)

    def report(self) -> str:
        """The figures as text."""
        static = statistics.median(each.static for each in self.rounds)
        jwt = statistics.median(each.jwt for each in self.rounds)
        least = Round(min(each.static for each in self.rounds), min(each.jwt for each in self.rounds))
        return "\n".join(
            (
                str(Machine.here()),
                f"warm call with a static token: {static:.1f} µs of CPU, {least.static:.1f} in the quietest round",
                f"warm call with a JWT: {jwt:.1f} µs of CPU, {least.jwt:.1f} in the quietest round",
                f"JWT to static token: {self.ratio:.3f} ({self.difference:+.1f} µs), {len(self.rounds)} rounds",
                f"first call with a JWT: {self.first:.1f} ms, with the keys of the issuer",
            )
        )


@asynccontextmanager
async def protected(place: Path, keys: str) -> AsyncIterator[Adapter]:
    """The adapter in front of the benchmark's upstream, for both kinds of tokens."""
    upstream = await start([sys.executable, "-m", "tests.bench.upstream"], place / "upstream.log")
    try:
        port = int(await upstream.line(START_TIMEOUT))
        issuer = {"issuer": ISSUER, "jwks_url": keys, "audience": "bench"}
        auth = {"oauth": {"issuers": [issuer]}, "tokens": [{"name": "agent", "token": STATIC}]}
        entry = {"id": "bench", "mount_path": "/mcp", "upstream": {"url": f"http://127.0.0.1:{port}/mcp"}}
        core = {"auth": auth, "public_base_url": "http://127.0.0.1", "upstream_ping": {"enabled": False}}
        front = Adapter(place, {"core": core, "storage": {"root": str(place / "data")}, "servers": [entry]})
        try:
            await front.start()
            yield front
        finally:
            await front.stop()
    finally:
        await upstream.stop()


def access_token() -> str:
    """A JWT with as many claims as issuers send."""
    now = int(time.time())
    claims = {
        **{"iss": ISSUER, "sub": "ann", "aud": "bench", "iat": now, "exp": now + 3600},
        **{"scope": "mcp files", "client_id": "bench", "jti": "x" * 32, "groups": ["staff", "operators"]},
    }
    return token(rsa_key("first"), "RS256", claims, kid="k1")


async def opened(client: RawClient, value: str) -> None:
    """Begin a session with a token."""
    info = {"name": "bench", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    head, _ = await client.request("POST", body, Authorization=f"Bearer {value}")
    assert head.status == 200, head
    client.session = head.get("mcp-session-id")


async def calls(client: RawClient, value: str, number: int) -> None:
    """Make calls one after the other."""
    body, field = call_body("small", 1), f"Bearer {value}"
    for _ in range(number):
        head, _ = await client.request("POST", body, Authorization=field)
        assert head.status == 200, head


async def measured(rounds: int, number: int) -> AccessCosts:
    """Run ``rounds`` of ``number`` calls with each kind of token."""
    with tempfile.TemporaryDirectory() as place:
        async with (
            issuing(document(jwk(rsa_key("first"), "k1"))) as issuer,
            protected(Path(place), issuer.url) as front,
            RawClient(front.port) as agent,
            RawClient(front.port) as person,
        ):
            values = {"static": STATIC, "jwt": access_token()}
            clients = {"static": agent, "jwt": person}
            await opened(agent, STATIC)
            began = time.perf_counter()
            await opened(person, values["jwt"])
            first = (time.perf_counter() - began) * 1000
            for kind in KINDS:
                await calls(clients[kind], values[kind], number // 4)
            found = []
            for each in range(rounds):
                spent = {}
                # The other one begins in the next round, so that none is always first.
                for kind in KINDS if each % 2 == 0 else reversed(KINDS):
                    before = cpu_seconds(front)
                    await calls(clients[kind], values[kind], number)
                    spent[kind] = (cpu_seconds(front) - before) / number * 1e6
                found.append(Round(**spent))
    return AccessCosts(tuple(found), first)


def cpu_seconds(front: Adapter) -> float:
    """Time that the adapter's event loop has had on a processor; to the nanosecond, unlike that in ``stat``."""
    assert front.running is not None
    return int(Path(f"/proc/{front.running.process.pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> int:
    """Measure, print, and write the rounds as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few calls, whose figures mean nothing")
    parser.add_argument("--json", type=Path, help="file for the rounds")
    asked = parser.parse_args()
    costs = asyncio.run(measured(*((2, 200) if asked.quick else (101, 400))))
    print(costs.report())
    if asked.json is not None:
        rounds = [each._asdict() for each in costs.rounds]
        asked.json.write_bytes(
            orjson.dumps({"rounds": rounds, "first_ms": costs.first, "ratio": costs.ratio})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
