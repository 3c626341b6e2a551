"""The official test suite of JSON Schema, drafts 4 to 2020-12: every verdict that needs nothing fetched.

``suite.jsonl`` is made of the suite's files, a group of tests a line: file, description, schema, and values with what
is to be said of them. It is the work of https://github.com/json-schema-org/JSON-Schema-Test-Suite, copyright (c) 2012
Julian Berman, under the MIT licence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.rules.schema.checker import DRAFTS, compile_schema

SUITE = Path(__file__).with_name("suite.jsonl")
NAMES = ("draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")
URIS = dict(zip(NAMES, DRAFTS, strict=True))


def groups() -> Iterator[tuple[str, str, Any, list[tuple[Any, bool]]]]:
    with SUITE.open(encoding="utf-8") as lines:
        for line in lines:
            file, description, schema, tests = json.loads(line)
            if isinstance(schema, dict):
                schema = {"$schema": URIS[file.partition("/")[0]], **schema}
            yield file, description, schema, tests


def fits_schema(schema: Any, value: Any) -> bool | str:
    try:
        return compile_schema(schema).judged(value, steps=None).faults == []
    except Exception as error:
        return f"{type(error).__name__} {error}"


@pytest.mark.parametrize("draft", URIS)
def test_every_verdict_is_that_of_the_suite(draft: str) -> None:
    """Keyword by keyword, references and what is unevaluated among them."""
    wrong = [
        (file, description, value, fits)
        for file, description, schema, tests in groups()
        if file.startswith(f"{draft}/")
        for value, fits in tests
        if fits_schema(schema, value) is not fits
    ]
    assert wrong == []


def test_the_suite_is_whole() -> None:
    """Thousands of verdicts."""
    assert sum(len(tests) for *_, tests in groups()) > 4500
