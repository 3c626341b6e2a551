"""The troubleshooting page: every failure of the code is on it, with the words that users search for and a cure."""

from __future__ import annotations

import ast

from adapter.errors import AdapterError
from adapter.rules.text.events import for_log
from tests.error_sentences import HOUSE, STDERR, Module, Reading, catalogue, log_errors, others, read
from tests.troubleshooting import GUIDE, PAGE, classes, forgotten, page, rows, unexplained


def test_every_failure_has_its_cure() -> None:
    """adapter/error_guide.yaml says what to do for each error, exception with a sentence, and error line of the log."""
    assert unexplained() == []


def test_no_cure_is_left_over() -> None:
    """The guide names nothing that the code does not have."""
    assert forgotten() == []


def test_the_page_is_the_one_that_is_written_now() -> None:
    """A sentence that was changed in the code is changed on the page: run make reference."""
    assert PAGE.read_text() == page()


def test_the_log_hides_no_cure() -> None:
    """A sentence of ours has no word that the log takes for a secret, such as one behind ``token:``."""
    printed = {STDERR, "ServerRefused"}
    errors = {name: texts for name, texts in {**catalogue(), **others()}.items() if name not in printed}
    hints = [each.hint for each in AdapterError.__subclasses__()]
    sentences = [*hints, *log_errors(), *(text for texts in errors.values() for text in texts)]
    assert [text for text in sentences if for_log(text) != text] == []


def test_each_cure_is_text() -> None:
    """No entry of the guide is empty, and each ends as a sentence does."""
    texts = [text for row in rows().values() for text in row]
    texts += [text[key] for text in GUIDE["texts"].values() for key in ("when", "do")]
    texts += [*GUIDE["log"].values(), *GUIDE["health"].values()]
    assert [text for text in texts if not text.endswith((".", ")"))] == []


def test_every_state_of_health_is_explained() -> None:
    """The words that /healthz has for what is wrong are those of the guide."""
    returned = {
        word for name in ("_degraded", "_unknown", "_server") for word in _words("edge/health.py", name)
    }
    assert {word for word in returned if word.startswith(STATES)} - {"upstream_", "upstream_says"} <= GUIDE[
        "health"
    ].keys()
    modules = ("edge/health.py", "state/fallback.py", "startup/waiting.py")
    endings = tuple(set().union(*map(_words, modules)))
    assert [word for word in GUIDE["health"] if not word.endswith(endings)] == []


STATES = ("adapter_wiring_", "fallback_", "list_", "persistence_", "upstream_", "waiting_")


def _words(module: str, function: str = "") -> set[str]:
    """The texts of a module, or of one function in it, that are one word."""
    tree = ast.parse((HOUSE / module).read_text())
    chosen = [each for each in ast.walk(tree) if function and getattr(each, "name", "") == function] or [tree]
    constants = (node.value for each in chosen for node in ast.walk(each) if isinstance(node, ast.Constant))
    return {text for text in constants if isinstance(text, str) and text and text.isidentifier()}


def test_sentences_are_read_with_their_placeholders() -> None:
    """Values at the top of a module are written out, and others are named by the last word of their expression."""
    source = """
MOST = 4
WORDS = {1: "none is left", 2: "too late"}
def ask(self, number):
    what = f"at most {MOST} of {self._limits.kind}" if number else "nothing " + "at all"
    return what, WORDS[number], f"{len(self._waiting)} of {', '.join(names)}"
"""
    tree = ast.parse(source)
    function = tree.body[-1]
    returned = next(node.value for node in ast.walk(tree) if isinstance(node, ast.Return))
    assert isinstance(returned, ast.Tuple)
    reading = Reading(read(Module("example", tree)), function)
    assert [reading.of(each) for each in returned.elts] == [
        ["at most 4 of {kind}", "nothing at all"],
        ["none is left", "too late"],
        ["{waiting} of {names}"],
    ]


def test_the_code_is_read_whole() -> None:
    """The reader finds the sentences of every part: it is no list that somebody has to keep."""
    assert sum(map(len, catalogue().values())) > 200
    assert "LinkLost" in others()
    assert len(classes()) > 50
