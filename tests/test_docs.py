"""The documents: links have targets, named settings exist in the code, and the prose can be read once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from adapter.rules.access.headers import HELD_BACK
from adapter.settings.file.load import RETIRED
from adapter.settings.root import Settings
from adapter.settings.section import fields_by_key

HOUSE = Path(__file__).parents[1]
PAGES = sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/*.md")])

LONGEST_SENTENCE = 45
"""Words of one sentence; most have less than 25."""

QUESTION_WORDS = ("What", "Whether", "How", "Who", "Whom", "Whose", "Which", "Where", "When")


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of this repository has a file at its end."""
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_can_be_found() -> None:
    """Each page of docs/ is linked from the README or from another page."""
    pages = set(HOUSE.glob("docs/*.md"))
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text())
        pages -= {(page.parent / target).resolve() for target in targets} - {page.resolve()}
    assert not pages


def test_links_to_headings_have_one(page: Path) -> None:
    """Every link to a heading of a page of this repository has that heading."""
    targets = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text())
    missing = [
        f"{name}#{anchor}"
        for name, anchor in targets
        if anchor not in anchors(page.parent / name if name else page)
    ]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, in the form that GitHub gives them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_sentences_are_short(page: Path) -> None:
    """No sentence of the prose is longer than one can hold in mind; tables, code and quotations do not count."""
    long = [sentence for sentence in sentences(page) if len(sentence.split()) > LONGEST_SENTENCE]
    assert long == []


def sentences(page: Path) -> Iterator[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^(\||#|>|<).*$", "", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|^\s*(?:\*|\d+\.) ", prose, flags=re.MULTILINE):
        yield from re.split(r"(?<=[.:?])\**\s", paragraph)


def test_settings_are_described_by_nouns_and_verbs() -> None:
    """No description and no docstring of the settings begins like a question."""
    files = (HOUSE / "adapter" / "settings").rglob("*.py")
    texts = (text for file in files for text in descriptions(ast.parse(file.read_text())))
    assert [text for text in texts if text.startswith(tuple(f"{word} " for word in QUESTION_WORDS))] == []


def descriptions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.keyword) and node.arg == "description":
            first = node.value.values[0] if isinstance(node.value, ast.JoinedStr) else node.value
            assert isinstance(first, ast.Constant)
            yield str(first.value)


def test_named_settings_exist(page: Path) -> None:
    """Every setting that is named with its section can be written in the file."""
    # To the code that users write, `context` is a parameter, whose attributes are no settings.
    sections = "|".join(Settings.model_fields.keys() - {"context"})
    named = re.findall(rf"`((?:{sections})(?:\[\])?\.[a-z_.\[\]]+)[`:]", page.read_text())
    unknown = [name for name in named if not exists(Settings, name.replace("[]", "").split("."))]
    assert [name for name in unknown if name.replace("[]", ".[]") not in RETIRED] == []


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
