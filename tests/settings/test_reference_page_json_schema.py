"""The JSON Schema of the settings takes every file that the adapter takes, and finds misspelled keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from adapter.settings.reference_page import schema, schema_text
from adapter.settings.root import Settings
from adapter.settings.section import KIND, fields_by_key

ROOT = Path(__file__).parents[2]
SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLES = [*sorted((ROOT / "config").glob("*.yaml")), ROOT / "deploy" / "config.yaml"]
SERVERS = [{"id": "a", "upstream": {"url": "http://u/mcp"}}]


def is_valid(**settings: Any) -> bool:
    return bool(VALIDATOR.is_valid({"servers": SERVERS, **settings}))


def test_it_is_a_schema() -> None:
    """Of the draft that it names, as JSON, without what only the generator needs."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(schema_text()) == SCHEMA
    assert KIND not in schema_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(example: Path) -> None:
    """An editor marks nothing in them."""
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(example.read_text()))] == []


@pytest.mark.parametrize(
    "settings",
    [
        {"core": {"port": "${PORT:-8932}", "access_log": "${LOG}", "log_level": "${LEVEL}"}},
        {"core": {"port": "8932", "access_log": "true", "log_level": "INFO", "allowed_hosts": "a, b"}},
        {"core": None, "sessions": {"idle_ttl_seconds": "1h30m", "tombstone_ttl_seconds": 0}},
        {"core": {"max_request_bytes": "10Mi", "shutdown_grace_seconds": "500ms"}},
        {"core": {"tool_definition_pinning": {"mode": False}}},
        {
            "servers": [
                {"id": "a", "upstream": {"transport": "http", "url": "http://u", "static_headers": None}}
            ]
        },
    ],
)
def test_each_spelling_is_valid(settings: dict[str, Any]) -> None:
    """Variables, text for numbers, durations, sizes, keys without a value: what validators take."""
    assert is_valid(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"cores": {}},
        {"core": {"prt": 1}},
        {"core": {"port": "many"}},
        {"core": {"shutdown_grace_seconds": "soon"}},
        {"core": {"max_request_bytes": "4Q"}},
        {"core": {"log_level": "loud"}},
        {"servers": {"a": {}}},
        {"servers": [{"id": "a"}]},
        {"servers": [{"id": "a", "upstream": {"transport": "pigeon"}}]},
    ],
)
def test_mistakes_are_found(settings: dict[str, Any]) -> None:
    """Misspelled keys and values of the wrong kind."""
    assert not is_valid(**settings)


def sections() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "Settings", SCHEMA
    yield from SCHEMA["$defs"].items()


def test_every_key_is_explained() -> None:
    """Editors show the sentence of each key."""
    silent = [
        f"{name}.{key}"
        for name, section in sections()
        for key, value in section["properties"].items()
        if not value.get("description")
    ]
    assert silent == []
    assert not [section for name, section in sections() if "``" in str(section.get("description"))]
    assert set(SCHEMA["properties"]) == set(fields_by_key(Settings))
