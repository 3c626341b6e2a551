"""The order of stages in docs/pipeline.md, and the tests that show each requirement.

The order is that of ``adapter/pipeline/order.py``; a test called ``test_h4_…`` shows H4.
``python -m tests.traceability`` writes the order, which a test compares, and prints the tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from adapter.pipeline.order import Slot

HOUSE = Path(__file__).parents[1]
PAGE = HOUSE / "docs" / "pipeline.md"
BEGIN, END = "<!-- begin: order -->", "<!-- end: order -->"

MOST_NAMED = 3
"""Tests of one requirement that the table names; how many more there are it says."""

REQUIREMENTS = {
    "H1": "fixed order of stages, one execution path, the first failure ends the call",
    "H2": "a tool is found by its exact name; unknown: -32601",
    "H3": "auth only where a tool asks for it; it gets headers and policy",
    "H4": "an input mapper replaces the inputs; no object is a failure",
    "H5": "a script gets inputs and tool, and its return value is the result",
    "H6": "statement: validate, environment, inputs, cache, connector, store",
    "H7": "an output mapper replaces the result",
    "H8": "compact JSON in one text block",
    "H9": "the table of error codes, in mode jsonrpc",
    "H10": "the sentences of failures",
    "H11": "scripts are told the tool's name",
    "H12": "the shape of the configuration",
    "H13": "connectors of a configuration",
    "H14": "tools in files: names, exactly one of use and handler, unknown keys",
    "H15": "where a script reference leads",
    "H16": "scripts found by convention",
    "H17": "a script may wait, log and fetch; nothing of it blocks others",
    "H18": "input types as JSON Schema",
    "H19": "coercion of inputs",
    "H20": "missing, unknown and defaulted inputs",
    "H21": "script tools are validated too",
    "H22": "placeholders of environment and inputs",
    "H23": "where environment placeholders may stand",
    "H24": "how values are rendered",
    "H25": "allow_all, api_key, custom plugins",
    "H26": "cache: off by default, precedence, only where it is sound",
    "H27": "the key of a cached result",
    "H28": "the cache sits inside the execution",
    "H29": "connectors opened together and pinged at start",
    "H30": "what each connector answers",
    "H31": "rows, where they are asked for",
    "H32": "one endpoint and a sign of life",
    "H33": "headers reach auth plugins",
    "H34": "spans",
    "H35": "metrics",
    "H36": "telemetry's configuration",
    "H37": "what is never recorded",
    "H38": "check, schemas for editors, reload",
    "V1": "the order of a call's life",
    "V2": "where the real order differs",
    "V3": "the context factory",
    "V4": "cancellation",
    "V5": "strict validation, all that is wrong at once",
    "V6": "middleware, both forms",
    "V7": "what handlers return",
    "V8": "failures with code, recovery, details",
    "V9": "the presenter's steps",
    "V10": "undeclared fields are stripped",
    "V11": "rules, interface blocks and suggestions by code",
    "V12": "the order of blocks",
    "V13": "helpers for interface blocks, and the limit's sentence",
    "V14": "suggestions from the data's state",
    "V15": "_select",
    "V16": "redaction",
    "V17": "no way around the presenter",
    "V18": "policies of state sync",
    "V19": "cache control in descriptions",
    "V20": "what a success makes stale",
    "V21": "concurrency, rate, egress",
    "V22": "JWT and API keys",
    "V23": "TOON",
    "V24": "traces of calls",
    **{f"W{number}": f"weakness {number} closed" for number in range(1, 18)},
}


def table() -> str:
    """The requirements with their tests, in Markdown."""
    shown = _shown()
    lines = ["| | requirement | shown by |", "|---|---|---|"]
    lines += [f"| {key} | {title} | {_names(shown.get(key, []))} |" for key, title in REQUIREMENTS.items()]
    return "\n".join(lines)


def missing() -> list[str]:
    """Requirements that no test is named after."""
    shown = _shown()
    return [key for key in REQUIREMENTS if key not in shown]


def written(page: str) -> str:
    """The page with the order of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{order()}\n\n{END}{rest.partition(END)[2]}"


def order() -> str:
    """The slots of a call in running order."""
    cells = [(str(slot.number), slot.label, slot.room, slot.settings, slot.failure) for slot in Slot]
    head = [("", "stage", "runs in", "set by", "ends a call with"), ("---",) * 5]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in (*head, *cells))


def _shown() -> dict[str, list[tuple[str, str]]]:
    """File and name of the tests of each requirement."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((HOUSE / "tests").rglob("test_*.py")):
        for name in _tests(path):
            for key in re.findall(r"(?<![a-z0-9])([hevw]\d+)(?=_)", name.removeprefix("test_")):
                found.setdefault(key.upper(), []).append((str(path.relative_to(HOUSE / "tests")), name))
    return found


def _tests(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def _names(tests: list[tuple[str, str]]) -> str:
    if not tests:
        return "–"
    named = "; ".join(f"`{path}::{name}`" for path, name in tests[:MOST_NAMED])
    more = len(tests) - MOST_NAMED
    return named if more <= 0 else f"{named}; {more} more"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    print(table())
