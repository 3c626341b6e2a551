"""The address of a MySQL server: a URL, or the form of other clients (``user:password@tcp(host:port)/db``)."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

_FORM = re.compile(
    r"(?:(?P<user>[^:@/]*)(?::(?P<password>.*))?@)?"
    r"(?:(?P<net>tcp|unix)\((?P<place>[^()]*)\))?/(?P<database>[^/?]*)(?:\?(?P<query>.*))?",
    re.DOTALL,
)
_OF_OTHER_CLIENTS = ("parsetime", "loc", "charset", "collation")
"""Settings of how other clients read times and texts; here times are ISO 8601 and texts Unicode, always."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """``arguments`` are the driver's, ``options`` the connector's that stood in the query."""

    arguments: dict[str, Any]
    options: dict[str, str]

    def tls(self, choice: str | None) -> ssl.SSLContext | None:
        if choice in (None, "false"):
            return None
        context = ssl.create_default_context()
        if choice == "skip-verify":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def address_of(connection_string: str) -> Address:
    """Raises ValueError, whose sentence may hold the connection string, for what is neither form."""
    if "://" in connection_string:
        return _url(connection_string)
    if (found := _FORM.fullmatch(connection_string)) is None:
        raise ValueError("neither a URL nor user:password@tcp(host:port)/database")
    place = found["place"] or ""
    arguments: dict[str, Any] = {
        "user": found["user"] or None,
        "password": found["password"] or "",
        "db": unquote(found["database"]) or None,
    }
    if found["net"] == "unix":
        arguments["unix_socket"] = place
    else:
        parts = urlsplit(f"//{place}")
        arguments |= {"host": parts.hostname or "127.0.0.1", "port": parts.port or 3306}
    return Address(arguments, _options(found["query"] or ""))


def _url(connection_string: str) -> Address:
    parts = urlsplit(connection_string)
    if parts.scheme not in ("mysql", "mariadb"):
        raise ValueError("the scheme is neither mysql nor mariadb")
    arguments = {
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password or ""),
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "db": unquote(parts.path.removeprefix("/")) or None,
    }
    return Address(arguments, _options(parts.query))


def _options(query: str) -> dict[str, str]:
    return {key: value for key, value in parse_qsl(query) if key.lower() not in _OF_OTHER_CLIENTS}
