"""A token endpoint, asked for tokens: found by its issuer, bounded in time and size, its refusals put into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from adapter.errors import AdapterError, CredentialsMissing
from adapter.oauth.client_authentication import ClientProof
from adapter.oauth.discovery import Discovery
from adapter.oauth.grants.port import DocumentHttp
from adapter.rules.access.grants import GrantRefused, Tokens, read_tokens

_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "mcp-file-adapter"}
_FORM = "application/x-www-form-urlencoded"

Form = Sequence[tuple[str, str]]


class EndpointFinder:
    """Finds the token endpoint of an issuer by its metadata."""

    def __init__(self, issuer: str, discovery: Discovery) -> None:
        self._issuer = issuer
        self._discovery = discovery

    def __repr__(self) -> str:
        return f"<EndpointFinder of {self._issuer!r}>"

    async def find(self) -> str:
        """The URL of the endpoint. Raises ValueError for metadata without one, and what the discovery raises."""
        return (await self._discovery.metadata(self._issuer)).url("token_endpoint")


class TokenPurpose(NamedTuple):
    """The server that tokens are for, and the place of the settings that an operator has to look at."""

    server: str
    setting: str


class TokenEndpoint:
    """Asks for tokens. ``place`` is the URL, or finds it."""

    def __init__(
        self, place: str | EndpointFinder, prove: ClientProof, http: DocumentHttp, purpose: TokenPurpose
    ) -> None:
        self._place = place
        self._prove = prove
        self._http = http
        self._purpose = purpose

    def __repr__(self) -> str:
        return f"<TokenEndpoint for {self._purpose.server!r}: {self._place}>"

    async def request(self, form: Form) -> Tokens:
        """Ask for a token. Raises CredentialsMissing with a sentence that names server and setting.

        Of the endpoint's answer the sentence has nothing but the error code.
        """
        try:
            place = self._place if isinstance(self._place, str) else await self._place.find()
            proof = self._prove(place)
            body = urlencode([*form, *proof.form.items()]).encode()
            headers = {**_HEADERS, "Content-Type": _FORM, **proof.fields}
            return read_tokens(*await self._http.post(place, body, headers))
        except GrantRefused as refused:
            raise self._missing(f"it answered {refused.code}") from None
        except (AdapterError, ValueError) as error:
            raise self._missing(str(error)) from error

    def _missing(self, why: str) -> CredentialsMissing:
        server, setting = self._purpose
        return CredentialsMissing(
            f"The adapter got no token for the upstream server {server} from its authorization server: "
            f"{why.rstrip('.')}. See {setting}."
        )
