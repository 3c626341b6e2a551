"""The documents against the code: their links lead somewhere, and the settings they name exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from adapter.rules.access.headers import HELD_BACK
from adapter.settings.root import Settings
from adapter.settings.section import fields_by_key

HOUSE = Path(__file__).parents[1]
PAGES = sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/*.md")])


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of this repository has a file at its end."""
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_named_settings_exist(page: Path) -> None:
    """Every setting that is named with its section can be written in the file."""
    # To the code that users write, `context` is a parameter, whose attributes are no settings.
    sections = "|".join(Settings.model_fields.keys() - {"context"})
    named = re.findall(rf"`((?:{sections})(?:\[\])?\.[a-z_.\[\]]+)[`:]", page.read_text())
    assert [name for name in named if not exists(Settings, name.replace("[]", "").split("."))] == []


def exists(model: type[BaseModel], steps: list[str]) -> bool:
    """Whether the steps lead from the model to a field of it or of a model inside it."""
    field = fields_by_key(model).get(steps[0])
    if field is None or len(steps) == 1:
        return field is not None
    return any(exists(inner, steps[1:]) for inner in models_in(field.annotation))


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


def test_the_headers_page_shows_what_is_held_back() -> None:
    """The list that the code goes by, with its reasons, is the one that people read."""
    page = (HOUSE / "docs" / "headers.md").read_text()
    shown = page.partition("<!-- begin: held back -->")[2].partition("<!-- end: held back -->")[0]
    rows = [f"| {', '.join(f'`{name}`' for name in group.names)} | {group.reason} |" for group in HELD_BACK]
    assert shown.strip().splitlines()[2:] == rows
