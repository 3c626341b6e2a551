"""A request that one replica forwards to another: its content, the seal on it, and the mark on its answer.

A seal is one header field. It names the replica that it is for, a challenge that this replica has announced, a nonce,
and the content by its size and digest; a MAC under the key that all replicas share covers it with method and path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from adapter.errors import AdapterError, InternalError, UpstreamBroken

METHOD, PATH = "POST", "/_replica/exchange"
"""The request in which every forwarded one travels."""

SEAL, MARK = "adapter-replica-seal", "adapter-replica-answer"
"""The fields of a seal and of a mark, in lower case."""

LONGEST_HEAD = 1 << 20
"""Bytes of a forwarded head: the fields of a client's request twice, and what stands around them."""

REPLICA_ID = r"[A-Za-z0-9._-]{1,64}"

_FORMAT = "1"
_WORD = r"[0-9a-f]{16,64}"
_SEAL = re.compile(
    rf"{_FORMAT} ({REPLICA_ID}) ({_WORD}) ({_WORD}) ([0-9]{{1,7}}) ([0-9]{{1,12}}) ([0-9a-f]{{64}}) ([0-9a-f]{{64}})"
)


# --- the content ------------------------------------------------------------------------------------------------


def disguised(key: bytes, value: str) -> str:
    """A text in place of a secret: equal for equal secrets, and worth nothing to who reads it."""
    return hmac.digest(key, value.encode("utf-8", "surrogatepass"), "sha256").hex()


# --- the seal ---------------------------------------------------------------------------------------------------


class Seal(NamedTuple):
    """The claims of a seal. The content is ``size`` bytes, of which the first ``head_size`` are the head.

    ``digest`` is the SHA-256 of all of it, in hex.
    """

    owner: str
    challenge: str
    nonce: str
    head_size: int
    size: int
    digest: str

    def signed(self, key: bytes) -> str:
        """The value of the header field."""
        return f"{self._claims()} {self._mac(key)}"

    def is_signed(self, mac: str, key: bytes) -> bool:
        """Tell whether the MAC is that of this seal under ``key``, in a time that tells nothing about it."""
        return hmac.compare_digest(mac, self._mac(key))

    def covers(self, content: bytes) -> bool:
        """Tell whether the content is the one that was sealed."""
        return len(content) == self.size and hmac.compare_digest(digest_of(content), self.digest)

    def _claims(self) -> str:
        return (
            f"{_FORMAT} {self.owner} {self.challenge} {self.nonce} {self.head_size} {self.size} {self.digest}"
        )

    def _mac(self, key: bytes) -> str:
        return _mac(key, f"request\n{METHOD} {PATH}\n{self._claims()}")


def digest_of(content: bytes) -> str:
    """The SHA-256 of some content, in hex."""
    return hashlib.sha256(content).hexdigest()


def read_seal(text: str) -> tuple[Seal, str]:
    """The claims of a seal, which may be anybody's, and its MAC. Raises ValueError for what is no seal."""
    found = _SEAL.fullmatch(text)
    if found is None:
        raise ValueError("not a seal")
    owner, challenge, nonce, head_size, size, digest, mac = found.groups()
    seal = Seal(owner, challenge, nonce, int(head_size), int(size), digest)
    if not seal.head_size <= min(seal.size, LONGEST_HEAD):
        raise ValueError("a seal of a head that is too long")
    return seal, mac


# --- the answer -------------------------------------------------------------------------------------------------

Kind = Literal["answer", "failure"]
"""The kinds of a marked answer: that of the upstream, or a failure of the catalogue."""


def mark(key: bytes, nonce: str, kind: Kind, status: int) -> str:
    """The mark by which an answer is known to come from a replica, for the request of this nonce."""
    text = f"{kind}\n{nonce}\n{status}"
    return f"{kind} {_mac(key, text)}"


def kind_of(text: str | None, key: bytes, nonce: str, status: int) -> Kind | None:
    """The kind of an answer by its mark; None if it has none, or not that of this exchange."""
    kinds: tuple[Kind, Kind] = ("answer", "failure")
    for kind in kinds:
        if text is not None and hmac.compare_digest(
            text.encode("utf-8", "replace"), mark(key, nonce, kind, status).encode()
        ):
            return kind
    return None


def _mac(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode(), "sha256").hex()


# --- failures ---------------------------------------------------------------------------------------------------


def encode_failure(error: AdapterError) -> bytes:
    """A failure of the catalogue as JSON."""
    members = {
        "code": error.code,
        "message": str(error),
        "data": error.data,
        "retry_after": error.retry_after,
        "reason": error.reason,
    }
    return json.dumps(members, default=str).encode()


def decode_failure(data: bytes) -> AdapterError:
    """The failure that ``encode_failure`` wrote; of a code that this version does not know, UpstreamBroken.

    Raises ValueError for anything else.
    """
    members = json.loads(data)
    if not isinstance(members, dict):
        raise ValueError("not a failure")
    message, details, wait = members.get("message"), members.get("data"), members.get("retry_after")
    reason = members.get("reason")
    kind = _FAILURES.get(str(members.get("code")), UpstreamBroken)
    # Some take other values than these, but all are made of them.
    error: AdapterError = kind.__new__(kind)
    AdapterError.__init__(
        error,
        message if isinstance(message, str) else None,
        data=details if isinstance(details, Mapping) else None,
        retry_after=wait if isinstance(wait, int | float) else None,
    )
    error.reason = reason if isinstance(reason, str) else None
    return error


def _kinds(base: type[AdapterError]) -> Iterator[type[AdapterError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


# Those of other modules are kinds of these, and have their codes.
_FAILURES: dict[str, type[AdapterError]] = {InternalError.code: InternalError} | {
    kind.code: kind for kind in _kinds(AdapterError) if "code" in vars(kind)
}
