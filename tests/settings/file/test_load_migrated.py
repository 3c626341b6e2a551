"""Files of remote-mcp-adapter load here, or are refused where docs/migration.md says so; the page leaves no key out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings.file.load import RETIRED, load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from tests.test_docs import exists

HERE = Path(__file__).parent
EXAMPLES: Mapping[str, Any] = yaml.safe_load((HERE / "scenarios" / "others.yaml").read_text())
KEYS = (HERE / "migrated_keys.txt").read_text().split()
"""The names of all settings of remote-mcp-adapter, those of early files among them."""

DOCS = HERE.parents[2] / "docs"
PAGE = (DOCS / "migration.md").read_text()
GONE = {"artifacts.naming", "servers[].adapters[].output_locator.embedded_mime_hint"}
ALIASES = {"servers[].adapters[].include_raw_output"}
METRICS = 24


def settings_of(tree: Mapping[str, Any], place: Path) -> Settings:
    file = place / "config.yaml"
    file.write_text(yaml.safe_dump(tree))
    environ = {
        "DATA": str(place),
        "MCP_ADAPTER_TOKEN": "token",
        "MCP_ADAPTER_SIGNING_SECRET": "signing-secret-of-32-characters!",
        "OTEL_TOKEN": "x",
    }
    return load(file, environ=environ)


@pytest.mark.parametrize("name", EXAMPLES["complete"])
def test_a_complete_example_loads(tmp_path: Path, name: str) -> None:
    """Each example with servers is used as it is."""
    assert settings_of(EXAMPLES["complete"][name], tmp_path).servers


@pytest.mark.parametrize("name", EXAMPLES["overlays"])
def test_an_overlay_loads_on_a_base(tmp_path: Path, name: str) -> None:
    """Each example without servers is used together with one that has some."""
    assert settings_of(merged(EXAMPLES["complete"]["gateway"], EXAMPLES["overlays"][name]), tmp_path).servers


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The values of both, those of ``over`` where both have one."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


@pytest.mark.parametrize("name", EXAMPLES["refused"])
def test_a_file_that_needs_a_change_is_told_each(tmp_path: Path, name: str) -> None:
    """A refusal names all places that docs/migration.md names, and no other."""
    example = EXAMPLES["refused"][name]
    with pytest.raises(SettingsError) as refused:
        settings_of(example["settings"], tmp_path)
    assert sorted({problem.path for problem in refused.value.problems}) == example["problems"]


def test_every_key_is_known() -> None:
    """The settings have each key, but for those that the page calls unknown and those that are retired."""
    missing = {key for key in KEYS if not exists(Settings, key.replace("[]", "").split("."))}
    assert missing == GONE | ALIASES | set(filter(is_retired, KEYS))


def is_retired(key: str) -> bool:
    """Tell whether the key, or the section that it is in, sets nothing any more."""
    path = key.replace("[]", ".[]")
    return path in RETIRED or path.rpartition(".")[0] in RETIRED


def test_every_key_has_its_line() -> None:
    """The page names each key, in full or below its section."""
    assert [key for key in KEYS if not any(f"`{name}`" in PAGE for name in spellings(key))] == []


def spellings(key: str) -> list[str]:
    """The ways in which the page may write a key: tables of a section leave out its name."""
    sections = (
        "core.auth.",
        "core.cors.",
        "telemetry.",
        "state_persistence.",
        "servers[].adapters[].",
        "servers[].",
    )
    section = next((each for each in sections if key.startswith(each)), "")
    short = [key.removeprefix(section)] if f"`{section.removesuffix('.')}`" in PAGE else []
    return [key, *short, *([key.rpartition(".")[2]] if key in GONE else [])]


def test_every_metric_has_its_line() -> None:
    """The names that dashboards of remote-mcp-adapter hold are all on the page, and described as ours."""
    named = set(re.findall(r"`(adapter_\w+)`", PAGE))
    assert len(named) == METRICS
    described = set(re.findall(r"^\| `(adapter_\w+)`", (DOCS / "telemetry.md").read_text(), re.MULTILINE))
    assert named - described == set()
