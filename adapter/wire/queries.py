"""The query of a request's target on its way to an upstream (RFC 3986, 3.4)."""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes

from adapter.errors import TargetTooLong

LONGEST_QUERY = 8 * 1024
"""Characters of a query that is passed on, as they are sent."""

_SAFE = "%/?:@!$&'()*+,;=-._~"
_QUERY = re.compile(r"(?:[A-Za-z0-9/?:@!$&'()*+,;=._~-]|%[0-9A-Fa-f]{2})*")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def is_query(text: str) -> bool:
    """Return True if ``text`` can stand behind the question mark of a target as it is."""
    return _QUERY.fullmatch(text) is not None


def forwardable_query(query: str) -> str:
    """Return ``query`` without a fragment, and with all that cannot stand in a query percent-encoded.

    ``query`` is Latin-1 for the bytes that were sent. Raises TargetTooLong above LONGEST_QUERY.
    """
    query = query.partition("#")[0]
    if not is_query(query):
        query = quote_from_bytes(_STRAY_PERCENT.sub("%25", query).encode("latin-1"), safe=_SAFE)
    if len(query) > LONGEST_QUERY:
        raise TargetTooLong(
            f"The query of the request's target is longer than {LONGEST_QUERY} characters, which is the limit."
        )
    return query
