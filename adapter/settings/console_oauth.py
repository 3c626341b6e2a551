"""``console.oauth``: the sign-in of people to the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, SecretStr

from adapter.settings.oauth import OAuth, OAuthIssuer, Scopes, SecureUrl
from adapter.settings.section import BlankIsNull, Line, Problem, Seconds, Section, TextList

ClaimValues = dict[str, TextList]


class ConsoleOAuth(Section):
    """Sign-in with an issuer of `core.auth.oauth`."""

    issuer: Annotated[SecureUrl | None, BlankIsNull] = Field(
        default=None, description="Entry of `core.auth.oauth.issuers`; null if there is only one."
    )
    client_id: Line = Field(
        description="Client id of the console at the issuer; its redirect URI is "
        "`core.public_base_url` + `console.path` + `/-/signed-in`."
    )
    client_secret: Annotated[SecretStr | None, BlankIsNull] = Field(
        default=None,
        description="Client secret, sent as HTTP Basic authentication; null for a public client. Write `${VAR}` "
        "instead of the secret.",
    )
    scopes: Scopes = Field(
        default_factory=list,
        description="Scopes that are asked for, besides `required_scopes` of the issuer.",
    )
    parameters: dict[str, str] = Field(
        default_factory=dict,
        description="Additional parameters of the authorization request, such as `audience` or `prompt`.",
    )
    operator_scopes: Scopes = Field(
        default_factory=list, description="Scopes of which one makes a person an operator."
    )
    operator_claims: ClaimValues = Field(
        default_factory=dict,
        description="Values by claim, of which one makes a person an operator; a name with dots leads to a member "
        "of a claim, such as `realm_access.roles`.",
    )
    viewer_scopes: Scopes = Field(
        default_factory=list,
        description="Scopes of which one lets a person see the console; without this and `viewer_claims` "
        "everybody who signs in may see it.",
    )
    viewer_claims: ClaimValues = Field(
        default_factory=dict, description="Values by claim, of which one lets a person see the console."
    )
    session_seconds: Annotated[Seconds, Field(le=30 * 86_400)] = Field(
        default=28_800, description="Time for which a browser stays signed in, at most 30 days."
    )


def console_issuer(console: ConsoleOAuth, oauth: OAuth) -> OAuthIssuer | None:
    """The issuer at which people sign in; None where the settings do not tell which one."""
    if console.issuer is None:
        return oauth.issuers[0] if len(oauth.issuers) == 1 else None
    return next((entry for entry in oauth.issuers if entry.issuer == console.issuer), None)


def console_oauth_problems(
    console: ConsoleOAuth | None, oauth: OAuth | None, base: str | None
) -> Iterator[Problem]:
    """Contradictions between ``console.oauth`` and the rest; ``base`` is ``core.public_base_url``."""
    if console is None:
        return
    if oauth is None:
        yield Problem("console.oauth", "signs people in with an issuer of core.auth.oauth: set that")
    elif console_issuer(console, oauth) is None:
        which = (
            "is not one of core.auth.oauth.issuers" if console.issuer else "must name one of several issuers"
        )
        yield Problem("console.oauth.issuer", which)
    if base is None:
        yield Problem("console.oauth", "needs core.public_base_url, to which browsers return")
