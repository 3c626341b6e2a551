"""A token endpoint, asked for tokens: found by its issuer, bounded in time and size, its refusals put into words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from urllib.parse import urlencode

from adapter.errors import AdapterError, CredentialsMissing
from adapter.oauth.client_authentication import ClientProof
from adapter.rules.access.token_answers import (
    IssuedToken,
    TokenDenied,
    issuer_metadata_urls,
    read_issued_token,
    token_endpoint_in,
)

FOUND_FOR = 3600.0
"""Seconds for which a token endpoint that an issuer named is used."""

_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "mcp-file-adapter"}
_FORM = "application/x-www-form-urlencoded"

Form = Sequence[tuple[str, str]]


class TokenHttp(Protocol):
    """Requests to an authorization server, bounded in time and size; redirects are not followed."""

    async def get(self, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of a document; the body is read for status 200 only. Raises an AdapterError."""

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to ``body``. Raises an AdapterError."""


class EndpointFinder:
    """Finds the token endpoint of an issuer by its metadata. ``clock`` gives seconds that never go back."""

    def __init__(self, issuer: str, http: TokenHttp, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._http = http
        self._clock = clock
        self._found: tuple[float, str] | None = None

    def __repr__(self) -> str:
        return f"<EndpointFinder of {self._issuer!r}>"

    async def find(self) -> str:
        """The URL of the endpoint. Raises TokenDenied, and an AdapterError where the issuer cannot be reached."""
        if self._found is not None and self._clock() < self._found[0]:
            return self._found[1]
        status = 0
        for url in issuer_metadata_urls(self._issuer):
            status, body = await self._http.get(url, _HEADERS)
            if status == 200:
                endpoint = token_endpoint_in(body, self._issuer)
                self._found = self._clock() + FOUND_FOR, endpoint
                return endpoint
        raise TokenDenied(f"no metadata of the issuer (HTTP status {status})")


class TokenEndpoint:
    """Asks for tokens for the requests to one server.

    ``place`` is the URL, or finds it; ``setting`` names what an operator has to look at.
    """

    def __init__(
        self, place: str | EndpointFinder, prove: ClientProof, http: TokenHttp, *, server: str, setting: str
    ) -> None:
        self._place = place
        self._prove = prove
        self._http = http
        self._server = server
        self._setting = setting

    def __repr__(self) -> str:
        return f"<TokenEndpoint for {self._server!r}: {self._place}>"

    async def request(self, form: Form) -> IssuedToken:
        """Ask for a token. Raises CredentialsMissing with a sentence that names server and setting.

        Of the endpoint's answer the sentence has nothing but the error code.
        """
        try:
            place = self._place if isinstance(self._place, str) else await self._place.find()
            return await self._ask(place, form)
        except TokenDenied as denied:
            raise CredentialsMissing(self._sentence(str(denied))) from None
        except AdapterError as error:
            raise CredentialsMissing(self._sentence(str(error))) from error
        except ValueError:
            raise CredentialsMissing(self._sentence("its URL is not usable")) from None

    async def _ask(self, place: str, form: Form) -> IssuedToken:
        proof = self._prove(place)
        headers: Mapping[str, str] = {**_HEADERS, "Content-Type": _FORM, **proof.fields}
        body = urlencode([*form, *proof.form.items()]).encode()
        status, answer = await self._http.post(place, dict(headers), body)
        return read_issued_token(status, answer)

    def _sentence(self, why: str) -> str:
        return (
            f"The adapter got no token for the upstream server {self._server} from its authorization server: "
            f"{why.rstrip('.')}. See {self._setting}."
        )
