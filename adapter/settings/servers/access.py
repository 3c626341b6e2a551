"""``servers[].access``: the tools, resources and prompts that callers may see and use."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from adapter.rules.text.expressions import ExpressionInvalid
from adapter.rules.text.name_patterns import NamePattern
from adapter.rules.text.unicode import shown
from adapter.settings.section import Section, Spelled

ClaimValue = StrictStr | StrictBool | StrictInt | StrictFloat


def _patterns(values: list[str]) -> list[str]:
    for value in values:
        try:
            NamePattern(value)
        except ExpressionInvalid as invalid:
            raise ValueError(f"{shown(value, 100)!r} is not a pattern: {invalid}") from None
    return values


def _one_or_more(values: list[str] | None) -> list[str] | None:
    if values is not None and not all(values):
        raise ValueError("has an empty entry")
    if values == []:
        raise ValueError(
            "is an empty list, which no caller fits: name somebody, or leave it out to mean everybody"
        )
    return values


Patterns = Annotated[list[str], AfterValidator(_patterns), Spelled("list of patterns (`*`, `?`)")]
Condition = Annotated[list[str] | None, AfterValidator(_one_or_more)]


def _claims(
    claims: dict[str, ClaimValue | list[ClaimValue]] | None,
) -> dict[str, ClaimValue | list[ClaimValue]] | None:
    if claims is None:
        return None
    if not claims or not all(claims) or [] in claims.values():
        raise ValueError("must name claims, each with a value or a list of values")
    return claims


class AccessEntry(Section):
    """Rule for the callers that fulfil all its conditions; without a condition it is for everybody."""

    principals: Condition = Field(
        default=None,
        description="Callers by name: that of their static token (`default` for `core.auth.token`), `VALUE@ISSUER` "
        "for OAuth, `anonymous` without authentication.",
    )
    scopes: Condition = Field(default=None, description="OAuth scopes of which the caller must have all.")
    claims: Annotated[dict[str, ClaimValue | list[ClaimValue]] | None, AfterValidator(_claims)] = Field(
        default=None,
        description="Claims of the caller's token, each with a value or a list of values of which it must have one; "
        "`a.b` is the member `b` of claim `a`.",
    )
    tools: Patterns = Field(default_factory=list, description="Tools that these callers may see and call.")
    resources: Patterns = Field(
        default_factory=list,
        description="Resources that these callers may see and read, by URI; templates are compared as written.",
    )
    prompts: Patterns = Field(default_factory=list, description="Prompts that these callers may see and get.")
    deny: Patterns = Field(
        default_factory=list,
        description="Names and URIs that these callers may not use, whatever other entries allow.",
    )

    @model_validator(mode="after")
    def _says_something(self) -> AccessEntry:
        if not (self.tools or self.resources or self.prompts or self.deny):
            raise ValueError("allows and denies nothing: set tools, resources, prompts or deny")
        return self


def _not_empty(entries: list[AccessEntry] | None) -> list[AccessEntry] | None:
    if entries == []:
        raise ValueError("is an empty list: leave it out to allow everything, or say who may use what")
    return entries


AccessEntries = Annotated[list[AccessEntry] | None, AfterValidator(_not_empty)]
