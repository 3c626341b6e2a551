"""URLs: handles and URIs that name files, signed links to upload and download them, and queries that are passed on.

``upload://sessions/…`` handles and ``artifact://sessions/…`` URIs are read exactly: a text is one handle or none, and
nothing is repaired, so that nothing behind a handle can lead elsewhere. A signature is HMAC-SHA256 over a purpose and
parts, each with its length in front: no two lists of parts sign alike, and a link for one purpose is worth nothing for
another.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, quote_from_bytes, unquote_to_bytes, urlencode

from adapter.errors import TargetTooLong

_UPLOAD_PATH = re.compile(r"sessions/([0-9a-f]{32})/([0-9a-f]{32})")
_ARTIFACT_PATH = re.compile(
    r"sessions/([0-9a-f]{32})/([0-9a-f]{32})/((?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)"
)
_DOT_SEGMENTS = (".", "..")


class Handle(NamedTuple):
    """``scope`` and ``id`` are 32 hex digits; ``name`` is an artifact's file name, percent-decoded."""

    scope: str
    id: str
    name: str | None = None


def upload_handle(scope: str, file_id: str, scheme: str = "upload://") -> str:
    return f"{scheme}sessions/{scope}/{file_id}"


def artifact_uri(scope: str, file_id: str, filename: str, scheme: str = "artifact://") -> str:
    """A URI in plain ASCII that ``parse_artifact`` reads back, whatever the name holds. It must not be empty."""
    return f"{scheme}sessions/{scope}/{file_id}/{_segment(filename)}"


def parse_upload(text: str, scheme: str) -> Handle | None:
    """The handle that this text is, to the last character; None for any other text."""
    found = _UPLOAD_PATH.fullmatch(text, len(scheme)) if text.startswith(scheme) else None
    return None if found is None else Handle(*found.groups())


def parse_artifact(text: str, scheme: str) -> Handle | None:
    """The handle that this text is, to the last character; None for any other text.

    The name is what its sender called the file, so it may hold a slash: it is compared, never opened.
    """
    found = _ARTIFACT_PATH.fullmatch(text, len(scheme)) if text.startswith(scheme) else None
    if found is None:
        return None
    scope, file_id, segment = found.groups()
    if segment in _DOT_SEGMENTS:
        return None
    try:
        name = unquote_to_bytes(segment).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return Handle(scope, file_id, name)


def _segment(filename: str) -> str:
    # A program that tidies URLs would take a bare ".." for a step upwards.
    if filename in _DOT_SEGMENTS:
        return filename.replace(".", "%2E")
    return quote(filename.encode("utf-8", "surrogatepass"), safe="")


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


_SECONDS = re.compile(r"0|[1-9][0-9]{0,11}")
_UPLOAD, _UPLOAD_PAGE = "upload", "upload page"


class UploadCredential(NamedTuple):
    """The right to upload one batch. ``expires`` is in Unix seconds; ``nonce`` is told apart by its store.

    ``page``: the link is the one that a person opens. It has the nonce of the link for machines, so that using one of
    them uses up both.
    """

    server: str
    scope: str
    expires: int
    nonce: str
    page: bool = False

    def signature(self, secret: bytes) -> str:
        purpose = _UPLOAD_PAGE if self.page else _UPLOAD
        return sign(secret, purpose, self.server, self.scope, str(self.expires), self.nonce)


def sign(secret: bytes, purpose: str, *parts: str) -> str:
    """The signature, 43 characters of base64url."""
    message = b""
    for part in (purpose, *parts):
        piece = _bytes(part)
        message += len(piece).to_bytes(8, "big") + piece
    return base64.urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode("ascii")


def signed(secret: bytes, signature: str, purpose: str, *parts: str) -> bool:
    """Tell whether this is the signature, in constant time. Never raises, whatever the texts hold."""
    return _same(signature, sign(secret, purpose, *parts))


def _same(one: str, other: str) -> bool:
    # As bytes: compare_digest refuses text that is not ASCII.
    return hmac.compare_digest(_bytes(one), _bytes(other))


def parameters(query: str) -> dict[str, str]:
    """The parameters of a URL's query. One that stands there twice is left out: it says nothing for sure."""
    found: dict[str, str] = {}
    repeated: set[str] = set()
    # Bytes that are no UTF-8 become lone surrogates, which no signed value holds.
    for name, value in parse_qsl(query, keep_blank_values=True, errors="surrogateescape"):
        if name in found:
            repeated.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in repeated}


def upload_query(secret: bytes, credential: UploadCredential) -> str:
    """The query of an upload URL: ``sid=…&exp=…&nonce=…&sig=…``."""
    return urlencode(
        {
            "sid": credential.scope,
            "exp": credential.expires,
            "nonce": credential.nonce,
            "sig": credential.signature(secret),
        }
    )


def read_upload_query(
    secret: bytes, server: str, query: Mapping[str, str], now: float
) -> UploadCredential | None:
    """The credential in an upload URL's parameters; None if it is not complete, genuine and unexpired."""
    expires = _seconds(query.get("exp"))
    scope, nonce, signature = query.get("sid"), query.get("nonce"), query.get("sig")
    if expires is None or scope is None or nonce is None or signature is None:
        return None
    for page in (False, True):
        credential = UploadCredential(server, scope, expires, nonce, page)
        if _same(signature, credential.signature(secret)):
            return credential if now < expires else None
    return None


FilePath = tuple[str, str, str]
"""A file by its server, its scope and its id, as they stand in the path of its URL."""


def file_query(secret: bytes, purpose: str, file: FilePath, expires: int) -> str:
    """The query of a link to one file: ``exp=…&sig=…``. Purposes are ``download`` and ``delivery``."""
    return f"exp={expires}&sig={sign(secret, purpose, *file, str(expires))}"


def file_query_valid(
    secret: bytes, purpose: str, file: FilePath, query: Mapping[str, str], now: float
) -> bool:
    """Tell whether these parameters were signed for this file and purpose and have not expired."""
    expires, signature = _seconds(query.get("exp")), query.get("sig")
    if expires is None or signature is None:
        return False
    return signed(secret, signature, purpose, *file, str(expires)) and now < expires


def _seconds(text: str | None) -> int | None:
    """The number in its one spelling, so that a credential cannot be written in two ways."""
    return int(text) if text is not None and _SECONDS.fullmatch(text) else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
