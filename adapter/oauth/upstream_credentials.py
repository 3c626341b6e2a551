"""Credentials for the requests to one upstream, by ``servers[].upstream.auth.type``."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.errors import AdapterError, CredentialsMissing
from adapter.oauth.client_authentication import ClientProof, request_tokens
from adapter.oauth.discovery import issuer_metadata
from adapter.oauth.obtained_tokens import ObtainedTokens
from adapter.rules.access.grants import GrantRefused, Tokens
from adapter.rules.access.principals import Caller, authorization_of, bearer, digest, name_of
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.upstream.outgoing import IssuerHttp, token_http

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (a grant type of RFC 8693)

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 (a type of RFC 8693, no token)

_SCHEME = "Bearer "


class PassedCredentials:
    """The callers' own Authorization fields (``passthrough``), whatever they hold."""

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials."""
        return authorization_of(caller)

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials. Only the caller can bring another one."""
        return False


class ObtainedCredentials:
    """Tokens that the adapter asks for: its own (``client_credentials``, RFC 6749 §4.4), the same for all callers and
    for nobody, or those for which the callers' own are exchanged (``token_exchange``, RFC 8693), each principal's, for
    each token of its.

    For an exchange a caller counts only with the access token that let it in: a field that was not its credential may
    hold anybody's.
    """

    def __init__(self, server: str, auth: UpstreamAuth, prove: ClientProof, tokens: ObtainedTokens) -> None:
        self._server = server
        self._auth = auth
        self._prove = prove
        self._tokens = tokens
        self._http = token_http()
        self._metadata = None if auth.issuer is None else issuer_metadata(IssuerHttp(), auth.issuer)
        self._exchanges = auth.type == "token_exchange"
        form = {
            "grant_type": TOKEN_EXCHANGE if self._exchanges else "client_credentials",
            "scope": " ".join(auth.scopes),
            "resource": auth.resource,
            "audience": auth.audience,
        }
        if self._exchanges:
            form["subject_token_type"] = ACCESS_TOKEN
        self._form = {name: value for name, value in form.items() if value}

    async def authorization(self, caller: Caller) -> str | None:
        """See UpstreamCredentials."""
        if not self._exchanges:
            return _SCHEME + await self._tokens.get("", lambda: self._request(self._form))
        subject = subject_token(caller)
        if subject is None:
            if not caller.fields:
                return None
            raise CredentialsMissing(
                f"The server {self._server} is called with a token that yours is exchanged for, and you "
                f"({name_of(caller.principal)}) have no OAuth access token. Sign in with one."
            )
        form = {**self._form, "subject_token": subject}
        return _SCHEME + await self._tokens.get(_key(caller, subject), lambda: self._request(form))

    async def refused(self, caller: Caller, value: str | None, challenge: str | None) -> bool:  # noqa: ARG002 (the port's)
        """See UpstreamCredentials."""
        subject = subject_token(caller) if self._exchanges else ""
        if value is None or subject is None:
            return not self._exchanges
        key = _key(caller, subject) if self._exchanges else ""
        return self._tokens.refused(key, value.removeprefix(_SCHEME))

    async def close(self) -> None:
        """Give up requests for tokens that are on the way."""
        await self._tokens.close()

    async def _request(self, form: Mapping[str, str]) -> Tokens:
        """Ask for a token. Raises CredentialsMissing with a sentence that names server and setting.

        Of the endpoint's answer the sentence has nothing but the error code.
        """
        try:
            return await request_tokens(self._http, await self._endpoint(), self._prove, form)
        except GrantRefused as refused:
            raise self._missing(f"it answered {refused.code}") from None
        except (AdapterError, ValueError) as error:
            raise self._missing(str(error)) from error

    async def _endpoint(self) -> str:
        if self._auth.token_endpoint is not None:
            return self._auth.token_endpoint
        assert self._metadata is not None, "settings refuse a section with neither"
        return (await self._metadata.get()).url("token_endpoint")

    def _missing(self, why: str) -> CredentialsMissing:
        return CredentialsMissing(
            f"The adapter got no token for the upstream server {self._server} from its authorization server: "
            f"{why.rstrip('.')}. See servers[].upstream.auth of {self._server}."
        )


def subject_token(caller: Caller) -> str | None:
    """The OAuth access token that let a caller in; None for one that came in by anything else."""
    if not caller.claims or "authorization" not in caller.withheld:
        return None
    return bearer(authorization_of(caller))


def _key(caller: Caller, subject: str) -> str:
    return digest(f"{len(caller.principal)}:{caller.principal}{subject}")
