"""The files of a scope: the record of each file, and the place of its bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import orjson


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


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file that is wholly on disk. Times are Unix seconds, ``size`` is in bytes.

    ``scope`` is the public id of the scope that owns it, ``owner`` what the scope stands for (see scopes).
    ``filename`` is what its sender called it, ``stored_name`` that name made safe. ``modified`` is the file's
    time of change in nanoseconds: a file that has changed since it was recorded is no longer this one.
    """

    kind: FileKind
    id: str
    scope: str
    owner: str
    server: str
    filename: str
    stored_name: str
    media_type: str
    size: int
    sha256: str
    modified: int
    created: float
    exposed: bool = True
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", record_key(self.scope, self.kind, self.id))

    @property
    def place(self) -> Place:
        return Place(self.kind, self.scope, self.id, self.stored_name)


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
            "stored_name": record.stored_name,
            "media_type": record.media_type,
            "size": record.size,
            "sha256": record.sha256,
            "modified": record.modified,
            "created": record.created,
            "exposed": record.exposed,
        }
    )


def decode(data: bytes) -> FileRecord:
    """The record out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = orjson.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("a file record of another format")
        fields["kind"] = FileKind(fields["kind"])
        fields["owner"] = _text(fields["owner"])
        fields["filename"] = _text(fields["filename"])
        return FileRecord(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a file record") from error


def _packed(text: str) -> str:
    # orjson refuses lone surrogates, which a name out of a header or a directory may hold.
    return text.encode("utf-8", "surrogatepass").decode("latin-1")


def _text(packed: str) -> str:
    return packed.encode("latin-1").decode("utf-8", "surrogatepass")
