"""Hostile values for every input of statement tools, on real servers: none becomes more than a value.

The servers are asked themselves: what they hold before and after, and which statements they were given.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapter.rules.calls.inputs import Input
from tests.hosted.attacking import (
    DIALECTS,
    INPUTS,
    MARK,
    MINE,
    SECRET,
    Attack,
    Said,
    attacked,
    furnish,
    held,
    tool,
)
from tests.hosted.databases import Server
from tests.hosted.injections import FAMILIES, PAYLOADS, SHAPES, UNSENDABLE
from tests.hosted.stating import Asking, opened_at
from tests.hosted.witnesses import MariadbWitness, PostgresWitness, Witness, root_of, slow_from_now_on

pytestmark = pytest.mark.deep

MY = "SELECT id, name FROM people WHERE owner = 'me' AND"

FINDING = {
    "bare": f"{MY} name = {{{{ inputs.text }}}}",
    "quoted": f"{MY} name = '{{{{ inputs.text }}}}'",
    "inside": f"{MY} name LIKE '%{{{{ inputs.text }}}}%'",
    "between": f"{MY} name = 'x{{{{ inputs.text }}}}y'",
    "twice": f"{MY} name IN ({{{{ inputs.text }}}}, '{{{{ inputs.text }}}}')",
    "behind": f"{MY} name = '{{{{ inputs.other }}}}' AND name <> '{{{{ inputs.text }}}}'",
    "chosen": f"{MY} CASE WHEN name = {{{{ inputs.text }}}} THEN 1 ELSE 0 END = 1",
    "nested": f"{MY} id IN (SELECT id FROM people WHERE owner = 'me' AND name = '{{{{ inputs.text }}}}')",
}

SAYING = {
    "said": "SELECT {{ inputs.text }} AS said",
    "said quoted": "SELECT '{{ inputs.text }}' AS said",
    "said after": "SELECT '{{ env.TENANT }}' AS tenant, '{{ inputs.text }}' AS said",
    "said beside": "SELECT '{{ inputs.other }}' AS other, {{ inputs.text }} AS said",
}

TYPED = {
    "among": ("number", f"{MY} id IN ({{{{ inputs.number }}}}, 0)"),
    "one": ("number", f"{MY} id = '{{{{ inputs.number }}}}'"),
    "some": ("number", f"{MY} 1 = 1 ORDER BY id LIMIT {{{{ inputs.number }}}} OFFSET {{{{ inputs.skip }}}}"),
    "scored": ("score", f"{MY} score > {{{{ inputs.score }}}}"),
    "active": ("active", f"{MY} active = {{{{ inputs.active }}}}"),
    "born": ("born", f"{MY} born < {{{{ inputs.born }}}}"),
    "sorted": ("column", f"{MY} 1 = 1 ORDER BY {{{{ inputs.column | ident }}}} {{{{ inputs.way | ident }}}}"),
    "turned": ("way", f"{MY} 1 = 1 ORDER BY {{{{ inputs.column | ident }}}} {{{{ inputs.way | ident }}}}"),
    "column": ("column", "SELECT `{{ inputs.column | ident }}` AS name FROM people WHERE owner = 'me'"),
}

WRITING = {
    "keep": "INSERT INTO notes (owner, body) VALUES ('me', {{ inputs.text }})",
    "keep quoted": "INSERT INTO notes (owner, body) VALUES ('me', '{{ inputs.text }}')",
    "keep inside": "INSERT INTO notes (owner, body) VALUES ('me', '<{{ inputs.text }}>')",
}
FORGET = "DELETE FROM notes WHERE owner = 'me' AND body = '{{ inputs.text }}'"
CHANGE = "UPDATE notes SET body = {{ inputs.text }} WHERE owner = 'me' AND id = {{ inputs.number }}"


@dataclass(frozen=True)
class Target:
    """One database with its canaries, and the way to see what becomes of them."""

    kind: str
    url: str
    place: Path
    direct: Asking
    server: Server | None

    @asynccontextmanager
    async def under(self, *statements: tuple[str, str]) -> AsyncIterator[Attack]:
        """Tools of these statements. Afterwards everything that was not theirs is as it was."""
        before = await held(self.direct)
        tools = [
            tool(name.replace(" ", "-"), f"{text.replace('`', DIALECTS[self.kind].quote)} /* {MARK} */")
            for name, text in statements
        ]
        options = PostgresWitness.LOGGING if self.kind == "postgres" else {}
        async with attacked(self.place, self.kind, self.url, tools, pool_size=2, **options) as attack:
            yield attack
        assert await held(self.direct) == before

    @asynccontextmanager
    async def witness(self) -> AsyncIterator[Witness | None]:
        """Who says what the server is asked from now on, None for a file."""
        if self.server is None:
            yield None
        elif self.kind == "postgres":
            yield PostgresWitness(self.server)
        else:
            async with opened_at("mysql", root_of(self.server)) as root:
                yield await MariadbWitness.looking(root)

    @property
    def private(self) -> tuple[str, ...]:
        """What of it no failure may tell."""
        port = () if self.server is None else (f":{self.server.port}", str(self.server.folder))
        return (*port, str(self.place), SECRET)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
async def target(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Target]:
    monkeypatch.setenv("TENANT", "{{ inputs.text }} {{ inputs.other }} %s ? --")
    server: Server | None = None
    if request.param == "sqlite":
        kind, url = "sqlite", str(tmp_path / "app.db")
        Path(url).touch()
    else:
        server = request.getfixturevalue(request.param)
        assert server is not None
        kind, url = server.kind, server.url
    if kind == "mysql":
        assert server is not None
        await slow_from_now_on(server)
    async with opened_at(kind, url) as direct:
        await furnish(direct)
        yield Target(kind, url, tmp_path, direct, server)


async def warm(attack: Attack, name: str) -> None:
    """Let the pool be full, so that what a connection asks when it begins is not counted."""
    await attack.each([name], ["warm"] * 8)


async def test_w1_what_is_sought_finds_only_what_it_spells(target: Target) -> None:
    """In every place of a condition: rows of the tool's own owner, and one statement for each call."""
    file = Path(target.url) if target.kind == "sqlite" else None
    async with target.under(*FINDING.items()) as attack:
        await warm(attack, "bare")
        digest = None if file is None else _digest(file)
        async with target.witness() as witness:
            answers = await attack.each(list(FINDING), PAYLOADS)
            seen = None if witness is None else await witness.seen()
    for said in answers:
        said.harmless(*target.private)
        if not said.failed:
            assert all(row in MINE for row in said.rows), said
            exact = [row for row in MINE if row["name"] == said.sent]
            if said.tool in ("bare", "quoted", "twice", "chosen", "nested"):
                assert said.rows == exact, said
    if file is not None:
        assert _digest(file) == digest
    _one_for_each(seen, "select", answers)


async def test_w1_w2_a_text_is_said_as_it_is(target: Target) -> None:
    """Whatever it looks like, also like a placeholder, it comes back byte for byte; neither it nor a variable's
    value is read again."""
    places = {**SAYING, **{f"own {n}": text for n, text in enumerate(DIALECTS[target.kind].more)}}
    names = [name.replace(" ", "-") for name in places]
    async with target.under(*places.items()) as attack:
        await warm(attack, "said")
        async with target.witness() as witness:
            answers = await attack.each(names, PAYLOADS)
            seen = None if witness is None else await witness.seen()
    for said in answers:
        said.harmless(*target.private)
        if _unholdable(target, said.sent):
            assert said.failed
            continue
        assert not said.failed, said
        (row,) = said.rows
        assert row["said"] == said.sent, said
        assert row.get("tenant", "{{ inputs.text }} {{ inputs.other }} %s ? --").startswith("{{ inputs.text")
        assert row.get("other", "\\") == "\\"
    _one_for_each(seen, "select", answers)


async def test_w1_a_typed_input_is_of_its_type_or_refused(target: Target) -> None:
    """Numbers, dates, truth and names out of an enum: a text that spells none never reaches the server."""
    async with target.under(*((name, text) for name, (_, text) in TYPED.items())) as attack:
        for name, (argument, _) in TYPED.items():
            declared = Input(**{**INPUTS[argument], "enum": _enum_of(argument)})
            for said in await attack.each([name], (*PAYLOADS, *SHAPES, *UNSENDABLE), argument):
                said.harmless(*target.private)
                if not _accepts(declared, said.sent):
                    assert said.failed and said.error["stage"] == "validation", said
                elif not said.failed:
                    assert name == "column" or all(row in MINE for row in said.rows), said


async def test_w1_what_is_no_text_is_refused(target: Target) -> None:
    """Objects, lists and halves of characters in the place of a text."""
    places = {**FINDING, **SAYING, **WRITING}
    names = [name.replace(" ", "-") for name in places]
    async with target.under(*places.items()) as attack:
        for said in await attack.each(names, (*SHAPES, *UNSENDABLE)):
            said.harmless(*target.private)
            assert said.failed and said.error["stage"] == "validation", said


async def test_w1_what_is_written_is_what_was_sent(target: Target) -> None:
    """Byte for byte in the table, in rows of the tool's own, and gone when the same text is forgotten."""
    statements = (*WRITING.items(), ("forget", FORGET), ("change", CHANGE))
    names = [name.replace(" ", "-") for name in WRITING]
    async with target.under(*statements) as attack:
        await warm(attack, "forget")
        async with target.witness() as witness:
            answers = await attack.each(names, PAYLOADS)
            seen = None if witness is None else await witness.seen()
        _one_for_each(seen, "insert", answers)
        for said in answers:
            said.harmless(*target.private)
            assert said.failed == _unholdable(target, said.sent), said
        assert await _bodies(target) == Counter(
            _hexed(f"<{said.sent}>" if said.tool == "keep-inside" else said.sent)
            for said in answers
            if not said.failed
        )
        (last,) = (await target.direct.sql("SELECT max(id) AS id FROM notes")).rows
        for payload in PAYLOADS[::3]:
            changed = await attack.call("change", payload, text=payload, number=last["id"])
            changed.harmless(*target.private)
            found = (await target.direct.sql(f"SELECT body FROM notes WHERE id = {last['id']}")).rows
            assert changed.failed or found == [{"body": payload}], changed
        for said in await attack.each(["forget"], PAYLOADS[::5]):
            said.harmless(*target.private)
        left = await _bodies(target)
        assert not left & Counter(map(_hexed, PAYLOADS[::5]))
        assert left & Counter(_hexed(f"<{one}>") for one in PAYLOADS[::5] if not _unholdable(target, one))


async def test_w1_what_is_in_an_array_is_a_member_of_it(target: Target) -> None:
    """One text of JSON is bound, in which every payload is what was sent; in an object too."""
    statements = {
        "members": f"{MY} name IN ({DIALECTS[target.kind].members})",
        "array": "SELECT CAST({{ inputs.tags }} AS char(70000)) AS said",
        "object": "SELECT CAST({{ inputs.who }} AS char(70000)) AS said",
    }
    if target.kind == "sqlite":
        statements = {name: text.replace("char(70000)", "text") for name, text in statements.items()}
    async with target.under(*statements.items()) as attack:
        await attack.each(["array"], [["warm"]] * 8, "tags")
        async with target.witness() as witness:
            answers = await attack.each(
                ["members", "array"], [[one] for one in PAYLOADS if len(one) < 9_000], "tags"
            )
            answers += await attack.each(
                ["object"], [{one: one} for one in PAYLOADS if len(one) < 9_000], "who"
            )
            seen = None if witness is None else await witness.seen()
    for said in answers:
        said.harmless(*target.private)
        if said.tool == "members" and not said.failed:
            assert said.rows == [row for row in MINE if [row["name"]] == said.sent], said
        elif said.tool != "members":
            assert not said.failed and json.loads(said.rows[0]["said"].rstrip()) == said.sent, said
    _one_for_each(seen, "select", answers)


def test_the_list_bites() -> None:
    """Pasted into the same statement, values of this list show the secret and change the tables: they are attacks."""
    revealed, changed = set(), set()
    for family, payloads in FAMILIES.items():
        for payload in payloads:
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
                for table in ("vault (id, secret)", "people (id, owner, name)", "notes (owner, body)"):
                    database.execute(f"CREATE TABLE {table}")
                database.execute("INSERT INTO vault VALUES (1, ?)", (SECRET,))
                database.execute("INSERT INTO people VALUES (9, 'other', 'Olga of others')")
                database.set_progress_handler(lambda: True, 100_000)
                statement = f"{MY} name = '{payload}'"
                try:
                    rows = str(database.execute(statement).fetchall())
                except (sqlite3.Error, sqlite3.Warning, ValueError):
                    rows = ""
                with suppress(sqlite3.Error, sqlite3.Warning, ValueError):
                    database.executescript(statement)
                if SECRET in rows or "Olga" in rows:
                    revealed.add(payload)
                if _spoiled(database):
                    changed.add((family, payload))
    assert len(PAYLOADS) >= 150
    assert len(revealed) >= 10
    assert len(changed) >= 3


def _spoiled(database: sqlite3.Connection) -> bool:
    try:
        kept = database.execute("SELECT id, secret FROM vault").fetchall() == [(1, SECRET)]
        owner = database.execute("SELECT owner FROM people").fetchall() == [("other",)]
    except sqlite3.Error:
        return True
    return not (kept and owner)


def _one_for_each(seen: Counter[str] | None, verb: str, answers: list[Said]) -> None:
    """The server ran the tool's statement once for a call, and nothing else."""
    if seen is None:
        return
    assert set(seen) == {verb}
    done = sum(not said.failed for said in answers)
    assert done <= seen[verb] <= len(answers)


def _unholdable(target: Target, text: Any) -> bool:
    """PostgreSQL has no NUL in its texts."""
    return target.kind == "postgres" and "\0" in text


def _enum_of(argument: str) -> tuple[Any, ...] | None:
    enum = INPUTS[argument].get("enum")
    return None if enum is None else tuple(enum)


def _accepts(declared: Input, value: Any) -> bool:
    try:
        declared.accepted(value)
    except ValueError:
        return False
    return True


async def _bodies(target: Target) -> Counter[str]:
    question = f"SELECT {DIALECTS[target.kind].bytes_of} AS bytes FROM notes WHERE owner = 'me'"
    return Counter(row["bytes"] for row in (await target.direct.sql(question, max_rows=5_000)).rows)


def _hexed(text: str) -> str:
    return text.encode().hex().upper()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
