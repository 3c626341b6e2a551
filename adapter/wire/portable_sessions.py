"""Ids of sessions that hold all that there is to know of the session, so that every process can serve it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.wire.envelope import dump, parse

MOST = 4096
"""Bytes of capabilities, as JSON, that an id can hold. Those of today's clients take a few hundred."""

_FORM = re.compile(r"p1\.([A-Za-z0-9_-]{16,64})\.([0-9-]{1,32})\.([A-Za-z0-9_-]{0,5464})", re.ASCII)


class PortableId(NamedTuple):
    """A session by its ``token``, which nobody can guess.

    ``version`` is the protocol version that it was opened with, ``capabilities`` are those that its client declared.
    """

    token: str
    version: str
    capabilities: Mapping[str, Any]


def encode_portable(session: PortableId) -> str | None:
    """The id, in visible ASCII without a colon; None for capabilities that are too long for one."""
    declared = dump(session.capabilities) if session.capabilities else b""
    if len(declared) > MOST:
        return None
    packed = base64.urlsafe_b64encode(declared).rstrip(b"=").decode()
    return f"p1.{session.token}.{session.version}.{packed}"


def decode_portable(session_id: str) -> PortableId:
    """The session of an id. Raises ValueError for any other text."""
    found = _FORM.fullmatch(session_id)
    if found is None:
        raise ValueError("not the id of a portable session")
    token, version, packed = found.groups()
    try:
        declared = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        capabilities = parse(declared) if declared else {}
    except (binascii.Error, BadJson) as error:
        raise ValueError("not the id of a portable session") from error
    if not isinstance(capabilities, dict):
        raise ValueError("not the id of a portable session")
    return PortableId(token, version, capabilities)


def token_of(session_id: str) -> str:
    """The token of an id, which stands for the session where its other parts are not needed."""
    return session_id.split(".", 2)[1]
