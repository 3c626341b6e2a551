"""The environment of a child: an allow-list of the adapter's own variables, and those that are set for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adapter.rules.text.events import is_telling

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
"""Variables that a program needs to find its files, its language and its certificates. None of them is a secret."""

_SHORTEST_SECRET = 6


def child_environment(
    own: Mapping[str, str], inherit: Iterable[str] = (), given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the complete environment of a child.

    ``own`` are the adapter's variables. Of these it gets INHERITED and the names in ``inherit``, where a ``*`` at the
    end stands for any characters, and then all of ``given``.
    """
    names = (*INHERITED, *inherit)
    exact = set(names)
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    passed = {name: text for name, text in own.items() if name in exact or name.startswith(prefixes)}
    return {**passed, **(given or {})}


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values under telling names (TOKEN, PASSWORD …), the longest first; short ones say nothing."""
    values = {
        text for name, text in environment.items() if len(text) >= _SHORTEST_SECRET and is_telling(name)
    }
    return tuple(sorted(values, key=len, reverse=True))
