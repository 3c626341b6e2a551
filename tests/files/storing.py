"""What tests of the store say over and over: a place, a file in it, what lies on disk."""

from __future__ import annotations

import os
from pathlib import Path

from adapter.files.port import FileStore, Measure, OpenFile
from adapter.rules.files.file_records import FileKind, Place

SCOPE = "5c0be" + "0" * 27
OTHER_SCOPE = "07e8" + "0" * 28


def upload(name: str = "note.txt", *, file_id: str = "f" * 32, scope: str = SCOPE) -> Place:
    return Place(FileKind.UPLOAD, scope, file_id, name)


def artifact(name: str = "shot.png", *, file_id: str = "a" * 32, scope: str = SCOPE) -> Place:
    return Place(FileKind.ARTIFACT, scope, file_id, name)


async def put(store: FileStore, place: Place, content: bytes) -> Measure:
    """Stage and place a file as an upload is."""
    staging = store.stage()
    await staging.write(content)
    measure = await staging.finish()
    await store.place(staging, place)
    return measure


async def got(store: FileStore, place: Place, measure: Measure) -> bytes | None:
    """What the file holds; None if the store does not open it as the one that was measured."""
    file = await store.open_file(place, (measure.size, measure.modified))
    return None if file is None else await content_of(file)


async def content_of(file: OpenFile) -> bytes:
    try:
        return b"".join([piece async for piece in file.pieces(0, file.size)])
    finally:
        file.close()


def files_below(root: Path) -> set[str]:
    """Every name below the areas of files, directories too, but for those of a living process's staging."""
    found = set()
    for area in ("uploads", "artifacts"):
        for directory, names, files in os.walk(root / area):
            found |= {str(Path(directory, name).relative_to(root)) for name in (*names, *files)}
    found |= {str(path.relative_to(root)) for path in root.glob("staging/*/*")}
    return found
