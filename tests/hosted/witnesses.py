"""What a server itself says that it was asked: statements by their first word, and those that took long."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final, Protocol

from tests.hosted.attacking import MARK
from tests.hosted.databases import Server
from tests.hosted.stating import Asking, opened_at

SLOW = 2
"""Seconds from which a statement is one that waited."""


class Witness(Protocol):
    async def seen(self) -> Counter[str]:
        """Statements since it began to look, by their first word; ``slow`` counts those that waited, and what no
        tool's statement begins with stands under its own text."""


class PostgresWitness:
    """Reads the server's log, where the connections that ``LOGGING`` makes have every statement written."""

    LOGGING: Final = {"log_statement": "all", "log_min_duration_statement": str(SLOW * 1000)}

    _OWN = ("BEGIN;", "COMMIT;", "ROLLBACK;", "SELECT pg_advisory_unlock_all();")
    """What the driver asks around a statement: a transaction, and that nothing is left of the last one."""

    def __init__(self, server: Server) -> None:
        self._log: Path = server.folder / "server.log"
        self._begin = self._log.stat().st_size

    async def seen(self) -> Counter[str]:
        written = self._log.read_bytes()[self._begin :].decode(errors="replace")
        counted: Counter[str] = Counter()
        for line in written.split("\n"):
            if found := re.search(r"LOG:  (?:execute [^:]*|statement): (.*)", line):
                text = found[1]
                if text not in self._OWN:
                    counted[_verb(text)] += 1
            elif "LOG:  duration:" in line:
                counted["slow"] += 1
        return counted


class MariadbWitness:
    """Reads the server's own counters, by an account that may."""

    _OF_THE_LOOK = ("show_status",)

    def __init__(self, database: Asking, before: Counter[str]) -> None:
        self._database = database
        self._before = before

    @classmethod
    async def looking(cls, database: Asking) -> MariadbWitness:
        return cls(database, await _counters(database))

    async def seen(self) -> Counter[str]:
        counted = await _counters(self._database) - self._before
        for name in self._OF_THE_LOOK:
            del counted[name]
        return counted


def root_of(server: Server) -> str:
    """How the account that may everything reaches MariaDB."""
    return f"root@unix({server.folder}/sock)/mysql"


async def slow_from_now_on(server: Server) -> None:
    """Connections that begin after this count what takes SLOW seconds."""
    async with opened_at("mysql", root_of(server)) as root:
        await root.sql(f"SET GLOBAL long_query_time = {SLOW}")


async def _counters(database: Asking) -> Counter[str]:
    found = await database.sql(
        "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name = 'Slow_queries'"
    )
    return Counter(
        {
            row["Variable_name"].lower().removeprefix("com_").replace("slow_queries", "slow"): int(
                row["Value"]
            )
            for row in found.rows
        }
    )


def _verb(text: str) -> str:
    return text.split()[0].lower() if MARK in text else text
