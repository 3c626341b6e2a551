"""Decisions on what callers may see and use."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.access_rules import (
    KEPT_NAMES,
    KEPT_VIEWS,
    AccessRule,
    AccessRules,
    AllowPatterns,
    OfferKind,
    claim_of,
    unknown_method,
    unknown_prompt,
    unknown_resource,
    unknown_tool,
)
from adapter.rules.access.principals import Caller, token_principal
from adapter.rules.text.expressions import NamePattern

TOOL, RESOURCE, TEMPLATE, PROMPT = OfferKind.TOOL, OfferKind.RESOURCE, OfferKind.TEMPLATE, OfferKind.PROMPT
ALICE = Caller(
    "alice:0123456789abcdef", scopes=frozenset({"mcp", "write"}), claims={"groups": ["ops", "dev"]}
)
BOB = Caller("bob:0123456789abcdef")


def patterns(*sources: str) -> tuple[NamePattern, ...]:
    return tuple(map(NamePattern, sources))


def tools(*sources: str, deny: tuple[str, ...] = (), **conditions: Any) -> AccessRule:
    return AccessRule(allow=AllowPatterns(tools=patterns(*sources)), deny=patterns(*deny), **conditions)


def test_without_a_rule_nothing_is_allowed() -> None:
    """Rules that concern others allow a caller nothing, and so does no rule at all."""
    rules = AccessRules([tools("*", principals=frozenset({"carol"}))])
    for each in (rules, AccessRules([])):
        assert not each.view(ALICE).allows(TOOL, "read")
        assert not each.view(ALICE).uses_tools


def test_rules_add_up_and_deny_wins() -> None:
    """What one rule allows another one cannot take away, unless it denies it."""
    rules = AccessRules(
        [
            tools("read_*"),
            tools("write_*", principals=frozenset({"alice"})),
            AccessRule(deny=patterns("*_secret")),
        ]
    )
    assert rules.view(ALICE).allows(TOOL, "read_file")
    assert rules.view(ALICE).allows(TOOL, "write_file")
    assert not rules.view(BOB).allows(TOOL, "write_file")
    assert not rules.view(ALICE).allows(TOOL, "read_secret")
    assert not rules.view(ALICE).allows(TOOL, "READ_SECRET")
    assert rules.view(ALICE).denies(TOOL, "any_SECRET")
    assert rules.view(ALICE).denies(TOOL, "x\0")


def test_each_kind_has_patterns_of_its_own() -> None:
    """A pattern for tools allows no prompt; templates are compared like resources; deny is for all."""
    allow = AllowPatterns(patterns("t*"), patterns("file:///r/*"), patterns("p*"))
    view = AccessRules([AccessRule(allow=allow, deny=patterns("*x"))]).view(BOB)
    assert [view.allows(kind, "tool") for kind in OfferKind] == [True, False, False, False]
    assert [view.allows(kind, "prompt") for kind in OfferKind] == [False, False, False, True]
    assert [view.allows(kind, "file:///r/{name}") for kind in OfferKind] == [False, True, True, False]
    assert not any(view.allows(kind, name) for kind in OfferKind for name in ("tx", "px", "file:///r/x"))


def test_every_condition_of_a_rule_must_hold() -> None:
    """Principal, scopes and claims together; all scopes, and for each claim one of its values."""
    rule = tools(
        "*",
        principals=frozenset({"alice", "bob"}),
        scopes=frozenset({"mcp", "write"}),
        claims={"groups": ("ops", "admins")},
    )
    assert rule.concerns(ALICE)
    assert not rule.concerns(BOB)
    assert not rule.concerns(Caller(ALICE.principal, scopes=frozenset({"mcp"}), claims=ALICE.claims))
    assert not rule.concerns(Caller(ALICE.principal, scopes=ALICE.scopes, claims={"groups": ["dev"]}))
    assert not rule.concerns(Caller("carol:00", scopes=ALICE.scopes, claims=ALICE.claims))


@pytest.mark.parametrize(
    ("claims", "name", "found"),
    [
        ({"a": 1}, "a", 1),
        ({"https://example.org/roles": ["x"]}, "https://example.org/roles", ["x"]),
        ({"realm_access": {"roles": ["x"]}}, "realm_access.roles", ["x"]),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
        ({"a": [1]}, "a.0", None),
        ({}, "a", None),
        ({"a": "text"}, "a.b", None),
    ],
)
def test_a_claim_is_found_by_its_name_or_its_way(claims: dict[str, Any], name: str, found: Any) -> None:
    """Some issuers have names with dots, others put roles into an object."""
    assert claim_of(claims, name) == found


@pytest.mark.parametrize(
    ("claim", "value", "has"),
    [
        ("1", 1, False),
        (True, 1, False),
        (1, 1, True),
        (["a"], "a", True),
        ("abc", "a", False),
        (None, "a", False),
    ],
)
def test_a_claim_is_compared_with_its_type(claim: object, value: Any, has: bool) -> None:
    """A text is no number, true is no one, and a text is no list of characters."""
    assert tools("*", claims={"c": (value,)}).concerns(Caller("x:0", claims={"c": claim})) is has


def test_the_shown_part_of_a_principal_counts() -> None:
    """A name in the settings is that of the token, or the value at its issuer; a longer one is another's."""
    rule = tools("*", principals=frozenset({"alice@https://a.example"}))
    assert rule.concerns(Caller(token_principal("https://a.example", "alice")))
    assert not rule.concerns(Caller("alice@https://b.example:0123456789abcdef"))
    assert tools("*", principals=frozenset({"anonymous"})).concerns(Caller())


def test_a_view_is_found_again_by_its_note() -> None:
    """In another process with the same rules, and with other rules only those for everybody are left."""
    first = [tools("a", principals=frozenset({"alice", "zoe"})), tools("b")]
    rules, same = AccessRules(first), AccessRules(list(first))
    note = rules.noted(rules.view(ALICE))
    assert same.restored(note).allows(TOOL, "a")
    others = AccessRules([tools("c", principals=frozenset({"alice"})), tools("d")])
    assert not others.restored(note).allows(TOOL, "c")
    assert others.restored(note).allows(TOOL, "d")
    assert not others.restored(None).allows(TOOL, "c")


def test_what_is_kept_is_bounded() -> None:
    """Strangers choose the names, and claims choose the rules."""
    rules = AccessRules([tools("*", scopes=frozenset({str(bit)})) for bit in range(9)])
    for number in range(KEPT_VIEWS + 10):
        rules.view(Caller("x:0", scopes=frozenset(str(bit) for bit in range(9) if number >> bit & 1)))
    view = AccessRules([tools("*")]).view(BOB)
    for number in range(KEPT_NAMES + 10):
        assert view.allows(TOOL, f"tool{number}")
    assert view.allows(TOOL, "tool0")
    assert not view.allows(TOOL, "x" * 5000)


ISSUER = "https://login.example.org"


@pytest.mark.parametrize(
    ("named", "other"),
    [
        ("x" * 200 + "a", "x" * 200 + "b"),
        ("x" * 127 + "…", "x" * 200),
        ("ann\\u200ba", "ann\u200ba"),
        ("me@there", "me"),
    ],
)
def test_people_who_are_shown_alike_have_rules_of_their_own(named: str, other: str) -> None:
    """A rule is for the exact value of the claim, however much of it is shown."""
    rules = AccessRules([tools("*", principals=frozenset({f"{named}@{ISSUER}"}))])
    assert rules.view(Caller(token_principal(ISSUER, named))).allows(TOOL, "read")
    assert not rules.view(Caller(token_principal(ISSUER, other))).allows(TOOL, "read")
    assert not rules.view(Caller(token_principal(f"{ISSUER}/b", named))).allows(TOOL, "read")


def test_a_rule_may_name_a_principal_as_the_audit_log_does() -> None:
    """With its digest, where the value is too long or cannot be written."""
    principal = token_principal(ISSUER, "x" * 200)
    assert (
        AccessRules([tools("*", principals=frozenset({principal}))])
        .view(Caller(principal))
        .allows(TOOL, "read")
    )


@pytest.mark.parametrize(
    "uri",
    [
        "file://localhost/payroll/b",
        "file:payroll/b",
        "file:///pay\troll/b",
        "file:///secret.txt?x",
        "file:///secret.txt#x",
        "file:///secret.txt;x",
        "https://me@host.example/private/b",
        "https://host.example:443/private/b",
    ],
)
def test_a_denied_place_is_denied_in_all_spellings(uri: str) -> None:
    """Whatever a server may leave out of account in a URI."""
    denied = patterns("file:///payroll/*", "file:///secret.txt", "https://host.example/private/*")
    rules = AccessRules([AccessRule(allow=AllowPatterns(resources=patterns("*")), deny=denied)])
    assert not rules.view(BOB).allows(RESOURCE, uri)
    for other in ("file:///home/payroll/b?x", "file:///secret.text", "https://host.example:8443/private/b"):
        assert rules.view(BOB).allows(RESOURCE, other)


def test_reprs_show_numbers_of_rules_only() -> None:
    """Neither a claim nor a pattern is shown."""
    rules = AccessRules([tools("a")])
    assert repr(rules) == "<AccessRules: 1 rules>"
    assert repr(rules.view(BOB)) == "<AccessView of rules [0]>"


NAMES = st.text(alphabet="abAB*?_\u200b", min_size=1, max_size=6)


@given(st.lists(NAMES, max_size=4), st.lists(NAMES, max_size=3), NAMES, NAMES)
def test_another_rule_only_adds_and_another_deny_only_takes(
    allowed: list[str], denied: list[str], more: str, name: str
) -> None:
    """Adding what is allowed hides nothing, and adding what is denied shows nothing, whatever stands there."""
    rules = [tools(*allowed, deny=tuple(denied))]
    now = AccessRules(rules).view(BOB).allows(TOOL, name)
    assert AccessRules([*rules, tools(more)]).view(BOB).allows(TOOL, name) >= now
    assert AccessRules([*rules, AccessRule(deny=patterns(more))]).view(BOB).allows(TOOL, name) <= now


@given(st.lists(NAMES, max_size=4), NAMES)
def test_order_does_not_matter(allowed: list[str], name: str) -> None:
    """The same rules in another order decide the same."""
    rules = [tools(each) for each in allowed]
    assert AccessRules(rules).view(BOB).allows(TOOL, name) == AccessRules(rules[::-1]).view(BOB).allows(
        TOOL, name
    )


# --- answers for what a caller may not see, or what is not there -----------------------------------------------


def test_answers_name_what_was_asked_for() -> None:
    """In one line, cut where it is long, with the code of MCP for each era."""
    assert orjson.loads(unknown_prompt(b"1", "a\nb"))["error"]["message"] == "Unknown prompt: a\\u000ab"
    assert str(unknown_tool("x" * 200)) == f"Unknown tool: {'x' * 99}…"
    for modern, code in ((False, -32002), (True, -32602)):
        error = orjson.loads(unknown_resource(b"1", "file:///a", modern=modern))["error"]
        assert error == {"code": code, "message": "Resource not found", "data": {"uri": "file:///a"}}


def test_a_method_that_is_not_served() -> None:
    """As JSON-RPC has it, with the id of the request as it came."""
    answer = orjson.loads(unknown_method(b'"a"', "tasks/list"))
    assert answer["id"] == "a"
    assert answer["error"] == {"code": -32601, "message": "Method not found: tasks/list"}
