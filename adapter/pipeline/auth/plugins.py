"""The auth plugins that are built in, by the names that configurations call them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.auth.auth_stage import AllowAll, Authenticator, api_key
from adapter.rules.access.auth_policies import AuthPolicy

if TYPE_CHECKING:
    from adapter.pipeline.auth.key_set import Fetch, KeySet

BUILT_IN = ("allow_all", "api_key", "jwt")


class Plugins:
    """Makes plugins of policies. Tools of one policy share one plugin, and policies of one URL its keys."""

    def __init__(self, environ: Mapping[str, str], fetch: Fetch, log: FilteringBoundLogger) -> None:
        self._environ = environ
        self._fetch = fetch
        self._log = log
        self._made: dict[tuple[str, bytes], Authenticator] = {}
        self._key_sets: dict[str, KeySet] = {}

    def __repr__(self) -> str:
        return f"<Plugins: {len(self._made)} in use>"

    def built_in(self, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        """The plugin of that name, in any case. Raises ValueError for an unknown one, and for a policy that cannot be
        used."""
        name = plugin.strip().lower()
        # A digest: policies hold secrets, of which the plugins keep no more than they need.
        spelled = json.dumps(policy, sort_keys=True, default=repr).encode()
        made = (name, hashlib.sha256(spelled).digest())
        if made not in self._made:
            self._made[made] = self._make(name, plugin, policy)
        return self._made[made]

    def _make(self, name: str, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        if name == "allow_all":
            AuthPolicy(name, policy, ())
            return AllowAll()
        if name == "api_key":
            return api_key(policy, self._environ)
        if name == "jwt":
            # Cryptography takes eleven megabytes, of those who ask for it.
            from adapter.pipeline.auth.jwt import Jwt

            return Jwt.of(policy, self._key_set)
        raise ValueError(f"auth plugin {plugin!r} is not registered")

    def _key_set(self, url: str) -> KeySet:
        from adapter.pipeline.auth.key_set import KeySet

        if url not in self._key_sets:
            self._key_sets[url] = KeySet(url, self._fetch, self._log)
        return self._key_sets[url]
