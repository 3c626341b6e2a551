"""Settings as they may be shown: everything but the secrets."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from adapter.settings.root import Settings

MASK = "***"
_SECRET_MAPPINGS = ("static_headers", "headers", "options", "policy")
_URLS = ("url", "endpoint", "logs_endpoint")


def masked(settings: Settings) -> dict[str, Any]:
    """The effective settings as plain values; tokens, passwords, policies of auth, header values and URLs masked."""
    shown = settings.model_dump(mode="json", by_alias=True)
    shown["state_persistence"]["disk"]["local_path"] = str(settings.state_path)
    _mask(shown)
    return shown


def _mask(tree: Any) -> None:
    for key, value in list(tree.items()) if isinstance(tree, dict) else enumerate(tree):
        if value and key in ("token", "sha256", "signing_secret", "password", "connection_string"):
            tree[key] = MASK
        elif key in _SECRET_MAPPINGS and isinstance(value, dict):
            tree[key] = dict.fromkeys(value, MASK)
        elif key in _URLS and isinstance(value, str):
            tree[key] = without_credentials(value)
        elif isinstance(value, dict | list):
            _mask(value)


def without_credentials(url: str) -> str:
    """The URL with its user and the values of its query masked."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = urlencode([(name, MASK) for name, _ in parse_qsl(parts.query, keep_blank_values=True)], safe="*")
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    return urlunsplit(parts._replace(netloc=netloc, query=query))
