"""The generated part of docs/troubleshooting.md: each failure by its sentences, and the cure of each.

The sentences come from the code, the cures from ``adapter/error_guide.yaml``. A text with ``listed: false`` there is
one whose sentences carry their cure, so the page has only what is common to them.
``python -m tests.troubleshooting`` writes the page; a test says when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from adapter import errors
from adapter.edge.console.status import OperatorsOnly
from adapter.errors import AdapterError
from tests.error_sentences import HOUSE, catalogue, log_errors, others, parent

PAGE = HOUSE.parent / "docs" / "troubleshooting.md"
GUIDE: Mapping[str, Any] = yaml.safe_load((HOUSE / "error_guide.yaml").read_text())
BEGIN, END = "<!-- begin: failures -->", "<!-- end: failures -->"


def classes() -> Mapping[str, type[AdapterError]]:
    """The failures of the catalogue by their code."""
    found: list[type[AdapterError]] = [OperatorsOnly]
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, AdapterError) and each is not AdapterError:
            found.append(each)
    return {each.code: each for each in found}


def rows() -> Mapping[str, tuple[str, str]]:
    """The texts of the guide by the code: when a failure appears, and what to do."""
    return {code: (when, do) for group in GUIDE["errors"].values() for code, when, do in group}


def sentences(failure: type[AdapterError]) -> list[str]:
    """The exact sentences of a failure, its hint first, and those of classes elsewhere that have its code."""
    own = catalogue().get(failure.__name__, ())
    derived = [text for name, texts in others().items() if parent(name) == failure.__name__ for text in texts]
    return list(dict.fromkeys([failure.hint, *own, *derived]))


def unexplained() -> list[str]:
    """The names of failures, exceptions, log lines and states without an entry in the guide."""
    placed = {name for text in GUIDE["texts"].values() for name in text["classes"]} | GUIDE["internal"].keys()
    free = [name for name in others() if parent(name) not in catalogue() and name not in placed]
    return [*(classes().keys() - rows().keys()), *free, *(log_errors().keys() - GUIDE["log"].keys())]


def forgotten() -> list[str]:
    """The names in the guide that nothing in the code has."""
    placed = {name for text in GUIDE["texts"].values() for name in text["classes"]} | GUIDE["internal"].keys()
    known = others().keys()
    return [
        *(rows().keys() - classes().keys()),
        *(placed - known),
        *(GUIDE["log"].keys() - log_errors().keys()),
    ]


def generated() -> str:
    """The sections of the page, as Markdown."""
    return "\n".join([*_errors(), *_texts(), *_log(), *_health()])


def _errors() -> Iterator[str]:
    yield "## Errors by code\n"
    yield "The heading is its name in logs and metrics; below the sentences stand its JSON-RPC code and HTTP status.\n"
    for title, group in GUIDE["errors"].items():
        yield f"### {title}\n"
        for code, when, do in group:
            failure = classes()[code]
            legacy = f", {failure.legacy_http} legacy" if failure.legacy_http else ""
            yield f"#### {code}\n\n{_block(sentences(failure))}"
            yield f"{failure.rpc}, HTTP {failure.http}{legacy}. {when}\n\n**Do:** {do}\n"


def _texts() -> Iterator[str]:
    yield "## Sentences without a code\n"
    for title, text in GUIDE["texts"].items():
        found = dict.fromkeys(sentence for name in text["classes"] for sentence in others()[name])
        listed = _block(found) if text.get("listed", True) else "The sentences say themselves what to do.\n"
        yield f"### {title}\n\n{listed}"
        yield f"{text['when']}\n\n**Do:** {text['do']}\n"


def _log() -> Iterator[str]:
    yield "## Log lines\n"
    yield "| event | what to do |\n|---|---|"
    for event, do in GUIDE["log"].items():
        yield f"| {event} | {do} |"
    yield ""


def _health() -> Iterator[str]:
    yield "## States in /healthz\n"
    yield "| value | meaning, and what to do |\n|---|---|"
    for value, do in GUIDE["health"].items():
        yield f"| `{value}` | {do} |"


def _block(texts: list[str] | dict[str, None]) -> str:
    return "```text\n" + "\n".join(" ".join(text.split()) for text in texts) + "\n```\n"


def page() -> str:
    """The whole page, with its generated part as it should be."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{head}{BEGIN}\n\n{generated()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
