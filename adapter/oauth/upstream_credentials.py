"""Credentials for the requests to one upstream, by ``servers[].upstream.auth.type``."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from adapter.errors import CredentialsMissing
from adapter.oauth.obtained_tokens import ObtainedTokens
from adapter.oauth.token_endpoint import TokenEndpoint
from adapter.rules.access.parties import authorization_of
from adapter.rules.access.principals import Caller, bearer, name_of

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (a grant type of RFC 8693)

_SCHEME = "Bearer "


class TokenTerms(NamedTuple):
    """The parts of a request for a token that say what for; None and empty ones are not sent."""

    scopes: tuple[str, ...] = ()
    resource: str | None = None
    audience: str | None = None

    def form(self) -> list[tuple[str, str]]:
        """The fields of the form."""
        fields = (("scope", " ".join(self.scopes)), ("resource", self.resource), ("audience", self.audience))
        return [(name, value) for name, value in fields if value]


class PassedCredentials:
    """The callers' own Authorization fields (``passthrough``), whatever they hold."""

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials."""
        return authorization_of(caller)

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials. Only the caller can bring another one."""
        return False


class ClientCredentials:
    """Tokens of the adapter's own (RFC 6749 §4.4), the same for all callers and for nobody."""

    def __init__(self, endpoint: TokenEndpoint, terms: TokenTerms, tokens: ObtainedTokens) -> None:
        self._endpoint = endpoint
        self._form = [("grant_type", "client_credentials"), *terms.form()]
        self._tokens = tokens

    def __repr__(self) -> str:
        return f"<ClientCredentials at {self._endpoint}>"

    async def authorization(self, caller: Caller) -> str | None:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials."""
        return _SCHEME + await self._tokens.get("", lambda: self._endpoint.request(self._form))

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials."""
        return value is None or self._tokens.refused("", value.removeprefix(_SCHEME))

    async def close(self) -> None:
        """Give up requests for tokens that are on the way."""
        await self._tokens.close()


class SubjectTypes(NamedTuple):
    """The type of the tokens that callers bring, and of the token that is wanted; None: as the server likes."""

    subject: str
    requested: str | None = None


class ExchangedCredentials:
    """Tokens for which the callers' own are exchanged (RFC 8693): each principal's, for each token of its.

    A caller counts only with the access token that let it in: a field that was not its credential may hold anybody's.
    """

    def __init__(
        self,
        endpoint: TokenEndpoint,
        terms: TokenTerms,
        types: SubjectTypes,
        tokens: ObtainedTokens,
        server: str,
    ) -> None:
        self._endpoint = endpoint
        self._form = [("grant_type", TOKEN_EXCHANGE), *terms.form(), ("subject_token_type", types.subject)]
        if types.requested is not None:
            self._form.append(("requested_token_type", types.requested))
        self._tokens = tokens
        self._server = server

    def __repr__(self) -> str:
        return f"<ExchangedCredentials at {self._endpoint}>"

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials."""
        subject = subject_token(caller)
        if subject is None:
            if not caller.fields:
                return None
            raise CredentialsMissing(
                f"The server {self._server} is called with a token that yours is exchanged for, and you "
                f"({name_of(caller.principal)}) have no OAuth access token. Sign in with one."
            )
        form = [*self._form, ("subject_token", subject)]
        return _SCHEME + await self._tokens.get(_key(caller, subject), lambda: self._endpoint.request(form))

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials."""
        subject = subject_token(caller)
        if subject is None or value is None:
            return False
        return self._tokens.refused(_key(caller, subject), value.removeprefix(_SCHEME))

    async def close(self) -> None:
        """Give up requests for tokens that are on the way."""
        await self._tokens.close()


def subject_token(caller: Caller) -> str | None:
    """The OAuth access token that let a caller in; None for one that came in by anything else."""
    if not caller.claims or "authorization" not in caller.withheld:
        return None
    return bearer(authorization_of(caller))


def _key(caller: Caller, subject: str) -> str:
    named = f"{len(caller.principal)}:{caller.principal}{subject}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
