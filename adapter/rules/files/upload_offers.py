"""The offer of one upload: who may ask what became of it, and what did. Pure.

Whoever asked for the links holds the upload's id, which is random and in no link. Rows and handles have its digest in
its place, so neither a link nor the store tells the id.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson

UploadState = Literal["waiting", "receiving", "done", "expired"]

TELL_EVERY = 2.0
"""Seconds between two times when a process writes down for others how much of a batch has come."""

HEARD_AGAIN = 4 * TELL_EVERY
"""Seconds after which a batch comes no more of which nothing was heard."""

_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class UploadOffer:
    """An upload to ``server`` that ``principal`` was given links for, and whose files belong to the scope with the id
    ``scope``. Its links end at ``expires`` (Unix seconds).

    ``outlives``: the session of that scope may end before the files are used, so its end does not remove them.
    ``received`` are the bytes of a batch on its way, of which this was last known at ``heard`` (Unix seconds).
    """

    server: str
    principal: str
    scope: str
    expires: float
    received: int = 0
    heard: float = 0.0
    outlives: bool = False

    def state(self, now: float, *, used: bool) -> UploadState:
        """The state of an upload of which no files are there. ``used``: a batch has come, and is gone by now."""
        if now - self.heard < HEARD_AGAIN:
            return "receiving"
        return "waiting" if now < self.expires and not used else "expired"


def batch_of(upload_id: str) -> str | None:
    """The public name of the batch that comes by this offer, 32 hex digits; None for a text that is no upload's id."""
    if _UPLOAD_ID.fullmatch(upload_id) is None:
        return None
    return hashlib.sha256(f"upload {upload_id}".encode()).hexdigest()[:32]


def encode_offer(offer: UploadOffer) -> bytes:
    """The offer as one JSON object; ``decode_offer`` gives back an equal one."""
    # orjson refuses lone surrogates, which a principal's name may hold.
    principal = offer.principal.encode("utf-8", "surrogatepass").decode("latin-1")
    return orjson.dumps({"format": _FORMAT, **asdict(offer), "principal": principal})


def decode_offer(data: bytes) -> UploadOffer:
    """The offer out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("an upload offer of another format")
        fields["principal"] = fields["principal"].encode("latin-1").decode("utf-8", "surrogatepass")
        return UploadOffer(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not an upload offer") from error
