"""The files of a scope: the record of each file, the place of its bytes, and the head of them all. Pure.

The offer of one upload: who may ask what became of it, and what did. Pure.

Whoever asked for the links holds the upload's id, which is random and in no link. Rows and handles have its digest in
its place, so neither a link nor the store tells the id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson

from adapter.wire.signed_urls import upload_handle


class FileKind(Enum):
    UPLOAD = "upload"
    ARTIFACT = "artifact"

    # Enum's own is Python, and a call looks for a place a dozen times.
    __hash__ = object.__hash__


AREAS = {FileKind.UPLOAD: "uploads", FileKind.ARTIFACT: "artifacts"}
"""The directories below the store's root."""


class Place(NamedTuple):
    """The place of a file's bytes in the store: ``{root}/{area of its kind}/{scope}/{id}/{name}``.

    Each part is one safe path component; nothing else is ever a path.
    """

    kind: FileKind
    scope: str
    id: str
    name: str


class FileContent(NamedTuple):
    """The bytes of a file: ``size`` in bytes, ``sha256`` in hex, ``modified`` in nanoseconds since the epoch.

    A file whose ``modified`` differs from the recorded one is no longer the recorded file.
    """

    media_type: str
    size: int
    sha256: str
    modified: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file that is wholly on disk, at ``place``. ``created`` is in Unix seconds.

    ``owner`` is what the scope of ``place`` stands for (see Scope), ``filename`` the name that the sender gave it;
    the name in ``place`` is that name made safe. ``exposed``: the file is listed as a resource. ``batch`` names the
    offer by which it was uploaded, None for any other file.
    """

    place: Place
    owner: str
    server: str
    filename: str
    content: FileContent
    created: float
    exposed: bool = True
    batch: str | None = None
    # What place says is read two dozen times for a file that comes.
    kind: FileKind = field(init=False, repr=False, compare=False)
    scope: str = field(init=False, repr=False, compare=False)
    """The public id of the scope that owns the file."""
    id: str = field(init=False, repr=False, compare=False)
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kind, scope, file_id, _ = self.place
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "id", file_id)
        object.__setattr__(self, "key", record_key(scope, kind, file_id))


def record_key(scope: str, kind: FileKind, file_id: str) -> str:
    """The key of a record's row. The rows of one scope stand together, those of one kind in it too."""
    return f"{scope}/{kind.value}/{file_id}"


_FORMAT = 1


def encode(record: FileRecord) -> bytes:
    """The record as one JSON object; ``decode`` gives back an equal one, whatever its names hold."""
    return orjson.dumps(
        {
            "format": _FORMAT,
            "kind": record.kind.value,
            "id": record.id,
            "scope": record.scope,
            "owner": _packed(record.owner),
            "server": record.server,
            "filename": _packed(record.filename),
            "stored_name": record.place.name,
            "media_type": record.content.media_type,
            "size": record.content.size,
            "sha256": record.content.sha256,
            "modified": record.content.modified,
            "created": record.created,
            "exposed": record.exposed,
            "batch": record.batch,
        }
    )


def decode(data: bytes) -> FileRecord:
    """The record out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if fields["format"] != _FORMAT:
            raise ValueError("a file record of another format")
        return FileRecord(
            Place(FileKind(fields["kind"]), fields["scope"], fields["id"], fields["stored_name"]),
            owner=_text(fields["owner"]),
            server=fields["server"],
            filename=_text(fields["filename"]),
            content=FileContent(*(fields[name] for name in FileContent._fields)),
            created=fields["created"],
            exposed=fields["exposed"],
            batch=fields.get("batch"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a file record") from error


def record_in(data: bytes) -> FileRecord | None:
    """The record out of a row's value, None where this version cannot read it."""
    try:
        return decode(data)
    except ValueError:
        return None


def size_in(data: bytes) -> int:
    """The size in a row's value, in bytes; 0 if this version cannot read it."""
    try:
        size = orjson.loads(data)["size"]
    except (ValueError, KeyError, TypeError):
        return 0
    return size if isinstance(size, int) else 0


def _packed(text: str) -> str:
    # orjson refuses lone surrogates, which a name out of a header or a directory may hold.
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _text(packed: str) -> str:
    return packed.encode("latin-1").decode("utf-8", "surrogatepass")


# --- the head of a scope ------------------------------------------------------------------------------------------

Holders: TypeAlias = Mapping[str, Sequence[str]]
"""The replicas that use files of a scope just now, each with the keys of the files without the scope."""


def encode_head(holders: Holders) -> bytes:
    """The row that replicas compare before they change any file of a scope; ``decode_head`` gives back the holders."""
    return orjson.dumps({"format": _FORMAT, "holders": holders})


def decode_head(data: bytes) -> Holders:
    """The holders out of a row's value; ValueError if this version cannot read it."""
    match orjson.loads(data):
        case {"format": 1, "holders": dict(holders)}:
            return holders
    raise ValueError("not a head of a scope's files")


def shown_upload(owner: str, record: FileRecord, scheme: str, **more: object) -> dict[str, Any]:
    """An upload as its sender, or the one who asks for its status, is told of it. Its handle names ``owner``."""
    return {
        "upload_handle": upload_handle(owner, record.id, scheme),
        **more,
        "filename": record.filename,
        "mime_type": record.content.media_type,
        "size_bytes": record.content.size,
        "sha256": record.content.sha256,
    }


RecordFile = Callable[[FileRecord], Awaitable[None]]
"""Keeps a record of a file that was taken in, or is about to be sent."""


UploadState = Literal["waiting", "receiving", "done", "expired"]

TELL_EVERY = 2.0
"""Seconds between two times when a process writes down for others how much of a batch has come."""

HEARD_AGAIN = 4 * TELL_EVERY
"""Seconds after which a batch comes no more of which nothing was heard."""

_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")


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
