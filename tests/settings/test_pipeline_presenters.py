"""``presenters``, ``state_sync`` and ``context``: what they hold, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapter.settings.pipeline import SuggestionSettings, names_code
from adapter.settings.reference_page import masked, reference
from tests.settings.loading import loaded, proxied, refusal


def test_nothing_is_presented_unless_it_is_said(file: Path) -> None:
    """A presenter with nothing in it shows everything, as JSON."""
    settings = loaded(file, proxied({}, presenters={"plain": {}}))
    plain = settings.presenters["plain"]
    assert (plain.shape, plain.json_schema, plain.limit, plain.redact) == (None, None, None, None)
    lists = (plain.rules, plain.ui, plain.suggest, plain.collection_rules, plain.collection_ui)
    assert (*lists, plain.collection_suggest) == ([],) * 6
    assert (plain.embed, plain.select, plain.format) == ({}, False, "json")
    assert (settings.context.factory, settings.state_sync.observer) == (None, None)
    assert (settings.state_sync.wording, settings.state_sync.policies) == ("element", [])
    assert settings.state_sync.defaults.cache_control is None


def test_a_presenter_as_it_is_written(file: Path) -> None:
    """One text, or one section, where a list is meant is a list of one; commas in a rule are the rule's own."""
    written = {
        "schema": {"id": "int", "client": {"name": "string?"}},
        "limit": 50,
        "redact": {"paths": "*.ssn"},
        "rules": "Do not reveal e-mail, ever",
        "ui": "app/views.py#user_ui",
        "suggest": {"when": "status == 'overdue'", "tool": "billing.pay", "reason": "Pay now"},
        "collection_ui": ["views.py#all"],
        "embed": {"client": "client"},
        "select": True,
        "format": "toon",
    }
    settings = loaded(file, proxied({}, presenters={"user": written, "client": {}}))
    user = settings.presenters["user"]
    assert user.shape == written["schema"] and masked(settings)["presenters"]["user"]["schema"] == user.shape
    assert user.redact is not None and (user.redact.paths, user.redact.censor) == (["*.ssn"], "[REDACTED]")
    assert (user.rules, user.ui) == (["Do not reveal e-mail, ever"], ["app/views.py#user_ui"])
    assert user.suggest == [
        SuggestionSettings(when="status == 'overdue'", tool="billing.pay", reason="Pay now")
    ]
    assert user.collection_ui == ["views.py#all"]
    assert (user.embed, user.select, user.format) == ({"client": "client"}, True, "toon")


@pytest.mark.parametrize(
    ("presenter", "said"),
    [
        ({"shape": {}}, "shape: is not a known key; the nearest is schema"),
        ({"schema": "int"}, "schema: must be a mapping of keys to values"),
        ({"schema": {}, "json_schema": {}}, "p: has both schema and json_schema: remove one of them"),
        ({"limit": 0}, "limit: input should be greater than 0"),
        ({"redact": {}}, "redact.paths: is required"),
        (
            {"redact": {"paths": ["a"], "censr": "x"}},
            "redact.censr: is not a known key; the nearest is censor",
        ),
        ({"rules": [" "]}, "rules[0]: must not be empty"),
        ({"suggest": [{"tool": "t"}]}, "suggest[0].reason: is required"),
        ({"suggest": ["f.py", {"tol": 1}]}, "suggest[1].tol: is not a known key; the nearest is tool"),
        ({"suggest": [5]}, "suggest[0]: must be a function as file.py#function"),
        ({"ui": "A table"}, "ui[0]: must be a function as file.py#function, which returns what is shown"),
        ({"ui": {"type": "code"}}, "ui[0]: must be a function as file.py#function"),
        ({"format": "xml"}, "format: must be json or toon"),
        ({"embed": {"client": "nobody"}}, "embed.client: there is no presenter with the name nobody"),
        ({"embed": {"self": "p"}}, "embed.self: p embeds p again, so the data would have no end"),
    ],
)
def test_a_mistake_in_a_presenter_is_told_at_its_place(
    file: Path, presenter: dict[str, Any], said: str
) -> None:
    """With the presenter's name, and the entry of a list."""
    problems = refusal(file, proxied({}, presenters={"p": presenter})).splitlines()
    assert any(problem.startswith((f"presenters.p.{said}", f"presenters.{said}")) for problem in problems), (
        problems
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("app/views.py#rules", True),
        ("my app/views.py#rules", True),
        ("./views.py", True),
        ("Do not reveal e-mail", False),
        ("Run it with python app.py", False),
        ("See views.py#1", False),
    ],
)
def test_a_text_or_a_function(text: str, code: bool) -> None:
    """A rule is said as it is, unless it can only be the name of a function."""
    assert names_code(text) is code


def test_presenters_do_not_embed_each_other(file: Path) -> None:
    """Neither directly nor through others; each that is part of the circle is named."""
    presenters = {"a": {"embed": {"x": "b"}}, "b": {"embed": {"y": "c"}}, "c": {"embed": {"z": "a"}}}
    outside = {"d": {"embed": {"x": "a"}}}
    problems = refusal(file, proxied({}, presenters=presenters | outside)).splitlines()
    assert [problem.partition(":")[0] for problem in problems] == [
        "presenters.a.embed.x",
        "presenters.b.embed.y",
        "presenters.c.embed.z",
    ]


def test_policies_of_state_sync(file: Path) -> None:
    """In their order, since the first that matches counts."""
    policies = [
        {"match": "users.update", "invalidates": "users.*"},
        {"match": "*", "cache_control": "no-store"},
    ]
    written = {"defaults": {"cache_control": "immutable"}, "wording": "system", "policies": policies}
    state_sync = loaded(file, proxied({}, state_sync=written)).state_sync
    assert (state_sync.defaults.cache_control, state_sync.wording) == ("immutable", "system")
    assert [(policy.match, policy.cache_control, policy.invalidates) for policy in state_sync.policies] == [
        ("users.update", None, ["users.*"]),
        ("*", "no-store", []),
    ]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"policies": [{"invalidates": ["a"]}]}, "policies[0].match: is required"),
        ({"policies": [{"match": ""}]}, "policies[0].match: must not be empty"),
        (
            {"policies": [{"match": "a", "invalidates": [""]}]},
            "policies[0].invalidates[0]: must not be empty",
        ),
        (
            {"policies": [{"match": "a", "cache-control": "x"}]},
            "policies[0].cache-control: is not a known key",
        ),
        ({"defaults": {"cache_control": "public"}}, "defaults.cache_control: must be no-store or immutable"),
        ({"wording": "xml"}, "wording: must be element or system"),
    ],
)
def test_a_mistake_in_state_sync_is_told_at_its_place(file: Path, written: dict[str, Any], said: str) -> None:
    """With the number of the policy."""
    assert refusal(file, proxied({}, state_sync=written)).startswith(f"state_sync.{said}")


def test_schema_is_spelled_as_in_the_file() -> None:
    """The reference page has the word that the file takes."""
    table = reference().partition("## `presenters.NAME`")[2].partition("\n## ")[0]
    assert "| `schema` |" in table and "`shape`" not in table
