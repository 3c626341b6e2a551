"""Requests of a client to the endpoints of an authorization server: for tokens, and to revoke them."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.oauth.client_authentication import ClientProof
from adapter.oauth.http import IssuerHttp
from adapter.rules.access.grants import Tokens, read_tokens


async def post_form(
    http: IssuerHttp, endpoint: str, prove: ClientProof, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """Status and body of the answer to a form of the client that ``prove`` is about. Raises what ``http`` raises."""
    proof = prove(endpoint)
    return await http.form(endpoint, {**form, **proof.form}, proof.fields)


async def request_tokens(
    http: IssuerHttp, endpoint: str, prove: ClientProof, form: Mapping[str, str]
) -> Tokens:
    """Ask for tokens. Raises GrantRefused, ValueError, and what ``http`` raises."""
    return read_tokens(*await post_form(http, endpoint, prove, form))


async def request_revocation(http: IssuerHttp, endpoint: str, prove: ClientProof, token: str) -> bool:
    """Revoke a refresh token or an access token (RFC 7009). False: the server refused. Raises what ``http`` raises."""
    status, _ = await post_form(http, endpoint, prove, {"token": token})
    return status == 200
