"""Inputs of hosted tools over a socket: arrays, objects, ranges and formats, and what is left out."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import run
from tests.edge.raw import RawClient
from tests.pipeline.end_to_end.living import ERAS, Living, furnished, living

SETTINGS = """
console: {enabled: true, allow_execute: true}
connectors:
  - {name: main, connector: sqlite, connection_string: shop.db}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - name: order
          handler: "code.py#order"
          inputs:
            tags: {type: array, items: {type: string}, maxItems: 5}
            age: {type: int, minimum: 0, maximum: 150}
            email: {type: string, format: email, optional: true}
            lines:
              type: array
              optional: true
              items:
                type: object
                properties: {sku: {type: string, pattern: "^[A-Z]+$"}, count: {type: int, minimum: 1}}
                required: [sku]
        - name: whole
          handler: "code.py#order"
          inputs:
            n: {type: integer, default: 3}
            either: {type: array, items: {anyOf: [{type: string}, {type: boolean}]}}
        - name: find
          use: main
          statement: SELECT name FROM things
        - name: pasted
          use: main
          substitution: textual
          statement: "SELECT name FROM things ORDER BY name {{ inputs.way }} LIMIT {{ inputs.most }}"
          inputs: {most: {type: int, minimum: 1}, way: {type: string, enum: [ASC, DESC]}}
"""

CODE = """
def order(payload):
    return payload["inputs"]
"""


def stocked(place: Path) -> Path:
    with closing(sqlite3.connect(place / "shop.db")) as database, database:
        database.execute("CREATE TABLE things (name TEXT)")
        database.executemany("INSERT INTO things VALUES (?)", [("lamp",), ("large lamp",), ("table",)])
    return place


def shop(place: Path) -> AbstractAsyncContextManager[Living]:
    return living(stocked(place), SETTINGS, scripts={"code": CODE})


@pytest.mark.parametrize("version", ERAS)
async def test_v5_arrays_and_objects_reach_a_script_as_they_were_sent(tmp_path: Path, version: str) -> None:
    """Scalars beside them are coerced; the list of tools says what they take."""
    sent = {"tags": ["a", "b"], "age": "42", "lines": [{"sku": "AB", "count": 2}, {"sku": "C"}]}
    async with shop(tmp_path) as front, front.speaker(version) as speaker:
        assert (await speaker.call("order", sent)).data == {**sent, "age": 42}
        schema = (await speaker.tools())["order"]["inputSchema"]
        assert schema["properties"]["age"] == {"type": "integer", "minimum": 0, "maximum": 150}
        assert schema["properties"]["lines"]["items"]["additionalProperties"] is False
        assert (await speaker.call("whole", {"either": ["x"]})).data == {"n": 3, "either": ["x"]}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "enum: [ASC, DESC]",
            "description: free",
            "textual substitution refuses input 'way': a string needs an enum",
        ),
        ("format: email", "format: emial", "tools.define[0].inputs.email: format must be one of"),
        ("maxItems: 5", "max_items: 5", "inputs.tags: max_items is not a known key; the nearest is maxItems"),
        (
            'handler: "code.py#order"',
            'handler: "code.py#order"\n          substitution: textual',
            "is only for statements",
        ),
    ],
)
def test_h14_what_cannot_be_meant_is_found_by_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    """In a sentence, at its place, with exit status 2."""
    assert before in SETTINGS
    file = furnished(stocked(tmp_path), SETTINGS.replace(before, after, 1), code=CODE)
    assert run(["check", "--config", str(file)]) == 2
    assert said in capsys.readouterr().err


async def test_v5_much_is_refused_before_it_is_looked_at(tmp_path: Path) -> None:
    """A hundred thousand members are refused by their number; some thousands are checked beside the event loop."""
    settings = SETTINGS.replace(
        "items: {type: string}, maxItems: 5", "items: {type: string}, uniqueItems: true"
    )
    async with (
        living(stocked(tmp_path), settings, scripts={"code": CODE}) as front,
        front.speaker() as speaker,
    ):
        began = time.monotonic()
        refused = await speaker.call("order", {"tags": ["x"] * 100_000, "age": 1})
        assert "The arguments have more than 10000 values." in refused.text
        assert time.monotonic() - began < 20
        taken = await speaker.call("order", {"tags": [str(number) for number in range(9_000)], "age": 1})
        assert len(taken.data["tags"]) == 9_000


async def test_e15_validation_over_http_knows_the_schema(tmp_path: Path) -> None:
    """The same schema that clients are told, without coercion."""
    async with shop(tmp_path) as front, RawClient(front.port) as raw:
        said: list[Any] = []
        for body in (b'{"tags": [], "age": 1}', b'{"tags": [1], "age": -1}'):
            _, answer = await raw.request("POST", body, "/explorer/shop/tools/order/validate")
            said.append(json.loads(answer))
    assert said[0] == {"valid": True}
    assert {error["path"] for error in said[1]["errors"]} == {"/tags/0", "/age"}
