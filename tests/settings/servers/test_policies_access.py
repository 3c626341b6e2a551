"""``servers[].access``: rules that say what they mean, and rules that do not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from adapter.app.access.rules import rule_of
from adapter.rules.access.principals import Caller
from adapter.settings.servers.policies import AccessEntry
from adapter.settings.servers.server import ServerSettings


def server(access: Any) -> ServerSettings:
    return ServerSettings.model_validate(
        {"id": "one", "upstream": {"url": "http://localhost:1/mcp"}, "access": access}
    )


def test_an_entry_becomes_a_rule() -> None:
    """A claim may have one value or several; types count."""
    entry = AccessEntry.model_validate(
        {"claims": {"groups": ["ops", "dev"], "level": 3, "staff": True}, "scopes": ["mcp"], "tools": ["*"]}
    )
    rule = rule_of(entry)
    claims = {"groups": ["ops"], "level": 3, "staff": True}
    assert rule.concerns(Caller("a:0", scopes=frozenset({"mcp"}), claims=claims))
    assert not rule.concerns(Caller("a:0", scopes=frozenset({"mcp"}), claims={**claims, "level": "3"}))
    assert not rule.concerns(Caller("a:0", claims=claims))
    assert rule_of(AccessEntry.model_validate({"tools": ["a"]})).is_for_everybody


def test_without_rules_everything_is_allowed() -> None:
    """Null is the default."""
    assert server(None).access is None


@pytest.mark.parametrize(
    ("access", "sentence"),
    [
        ([], "empty list"),
        ([{}], "allows and denies nothing"),
        ([{"principals": ["a"]}], "allows and denies nothing"),
        ([{"principals": [], "tools": ["*"]}], "no caller fits"),
        ([{"scopes": [""], "tools": ["*"]}], "empty entry"),
        ([{"claims": {}, "tools": ["*"]}], "must name claims"),
        ([{"claims": {"a": []}, "tools": ["*"]}], "must name claims"),
        ([{"tools": [""]}], "not a pattern"),
        ([{"resources": ["file:///a/../b"]}], "not a pattern"),
        ([{"tool": ["*"]}], "Extra inputs"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(access: Any, sentence: str) -> None:
    """What would allow everybody by mistake, or nobody, is said at start."""
    with pytest.raises(ValidationError, match=sentence):
        server(access)
