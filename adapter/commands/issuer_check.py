"""Authorization servers as a command finds them: their metadata, their keys and the introspection endpoint."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from adapter.commands.own_sessions import Reached, reached
from adapter.settings.oauth import Introspection, OAuth, OAuthIssuer

SECTION = "core.auth.oauth"


async def reach_issuers(oauth: OAuth | None) -> Sequence[Reached]:
    """Fetch the keys of each issuer, and ask the introspection endpoint about a token that nobody has."""
    if oauth is None:
        return ()
    asked = [
        reached(f"{SECTION}.issuers[{index}]", _keys(entry)) for index, entry in enumerate(oauth.issuers)
    ]
    if oauth.introspection is not None:
        asked.append(reached(f"{SECTION}.introspection", _introspection(oauth.introspection)))
    return await asyncio.gather(*asked)


async def _keys(entry: OAuthIssuer) -> str:
    # Late: the library of keys is for those who have issuers.
    from adapter.oauth.discovery import Discovery
    from adapter.oauth.http import IssuerHttp
    from adapter.oauth.issuer import fetch_keys
    from adapter.pipeline.key_set import read_key_set

    http = IssuerHttp()
    document = await fetch_keys(http, Discovery(http), entry.jwks_url)(entry.issuer)
    keys, _ = read_key_set(document)
    offered = {algorithm for key in keys.values() for algorithm in key.algorithms}
    if not offered.intersection(entry.algorithms):
        fitting = ", ".join(sorted(offered)) or "no algorithm"
        raise ValueError(
            f"publishes no key for {', '.join(entry.algorithms)}, but for {fitting}: change algorithms"
        )
    return f"publishes {len(keys)} usable {'key' if len(keys) == 1 else 'keys'}, in {{took}}"


async def _introspection(settings: Introspection) -> str:
    from adapter.oauth.http import IssuerHttp
    from adapter.oauth.introspection import introspected

    nobodys = secrets.token_urlsafe()
    answer, _ = await introspected(IssuerHttp(), settings, nobodys)
    if answer.get("active") is not False:
        raise ValueError("does not say that a token which was just made up is not active")
    return "answers, in {took}"
