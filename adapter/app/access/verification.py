"""The verification of access tokens, out of ``core.auth.oauth``. Import it late: it loads cryptography."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.oauth.discovery import Discovery
from adapter.oauth.http import IssuerHttp
from adapter.oauth.introspection import OpaqueTokens
from adapter.oauth.issuer import LIFE, Issuer, IssuerTrust, fetch_keys
from adapter.oauth.verified_tokens import VerifiedTokens
from adapter.pipeline.key_set import KeySet
from adapter.rules.access.token_claims import TokenVerifier
from adapter.settings.auth import OAuth


class Clocks(NamedTuple):
    """``now`` gives Unix seconds, ``elapsed`` seconds that never go back."""

    now: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic


USUAL_CLOCKS = Clocks()


def build_verifier(
    oauth: OAuth, logger: FilteringBoundLogger, clocks: Clocks = USUAL_CLOCKS
) -> TokenVerifier:
    """Build the verifier of the tokens of all issuers. None of them is asked yet."""
    http = IssuerHttp()
    discovery, verifier = Discovery(http, clocks.elapsed), VerifiedTokens(clocks.now)
    for entry in oauth.issuers:
        fetch = fetch_keys(http, discovery, entry.jwks_url)
        log = logger.bind(issuer=entry.issuer)
        keys = KeySet(entry.issuer, fetch, log, clocks.elapsed, LIFE, verifier.withdraw)
        verifier.issuers[entry.issuer] = Issuer(IssuerTrust(entry, oauth.leeway_seconds), keys, clocks.now)
    if (asked := oauth.introspection) is not None:
        trust = IssuerTrust(oauth.introspected_issuer, oauth.leeway_seconds)
        log = logger.bind(issuer=trust.entry.issuer)
        verifier.introspection = OpaqueTokens(asked, trust, http, log, clocks.now)
    return verifier
