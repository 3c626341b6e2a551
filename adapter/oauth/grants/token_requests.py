"""Requests of a client to the endpoints of an authorization server: for tokens, and to revoke them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote_plus, urlencode

from adapter.oauth.grants.port import DocumentHttp
from adapter.rules.access.grants import OAuthClient, Tokens, read_tokens

_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "mcp-file-adapter",
}


async def request_tokens(
    http: DocumentHttp, endpoint: str, client: OAuthClient, form: Mapping[str, str]
) -> Tokens:
    """Ask for tokens. Raises GrantRefused, ValueError, and what ``http`` raises."""
    status, body = await _post(http, endpoint, client, form)
    return read_tokens(status, body)


async def request_revocation(http: DocumentHttp, endpoint: str, client: OAuthClient, token: str) -> bool:
    """Revoke a refresh token or an access token (RFC 7009). False: the server refused. Raises what ``http`` raises."""
    status, _ = await _post(http, endpoint, client, {"token": token})
    return status == 200


async def _post(
    http: DocumentHttp, endpoint: str, client: OAuthClient, form: Mapping[str, str]
) -> tuple[int, bytes]:
    headers, sent = dict(_HEADERS), dict(form)
    if client.method == "client_secret_basic" and client.secret is not None:
        # RFC 6749 §2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        sent["client_id"] = client.id
        if client.secret is not None:
            sent["client_secret"] = client.secret
    return await http.post(endpoint, urlencode(sent).encode(), headers)
