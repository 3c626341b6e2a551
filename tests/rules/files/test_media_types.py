"""Types of files: content before name, name before what the sender said, and no machine's own table."""

from __future__ import annotations

import gzip
import io
import mimetypes
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.media_types import (
    is_safe_to_open,
    is_text,
    media_type,
    named_after_type,
    usual_extension,
)

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
UNKNOWN = "application/octet-stream"
BINARY = b"\x00\x01\x02\xff"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

any_text = st.text(st.characters(exclude_categories=[]))


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
        (b"GIF87a\x01", "image/gif"),
        (b"GIF89a\x01", "image/gif"),
        (b"RIFF\x24\x00\x00\x00WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav"),
        (b"RIFF\x24\x00\x00\x00AVI LIST", "video/x-msvideo"),
        (b"\x00\x00\x00\x18ftypisom", "video/mp4"),
        (b"\x00\x00\x00\x18ftypM4A ", "audio/mp4"),
        (b"\x00\x00\x00\x18ftypavif", "image/avif"),
        (b"\x00\x00\x00\x18ftypheic", "image/heic"),
        (b"\x00\x00\x00\x14ftypqt  ", "video/quicktime"),
        (b"ID3\x04\x00\x00", "audio/mpeg"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"OggS\x00\x02", "audio/ogg"),
        (b"fLaC\x00", "audio/flac"),
        (b"\x1a\x45\xdf\xa3\x9f", "video/webm"),
        (b"%PDF-1.7\n%\xe2\xe3", "application/pdf"),
        (b"II*\x00", "image/tiff"),
        (b"SQLite format 3\x00", "application/vnd.sqlite3"),
        (b"\x00asm\x01\x00\x00\x00", "application/wasm"),
        (b"\x7fELF\x02", "application/x-elf"),
        (b"BZh91AY&SY", "application/x-bzip2"),
        (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
        (zipped(), "application/zip"),
        (gzip.compress(b"text", mtime=0), "application/gzip"),
        (OLE, "application/x-ole-storage"),
    ],
)
def test_content_tells_the_type(head: bytes, expected: str) -> None:
    """Neither a false name nor a false claim hides what a file is."""
    assert media_type("", head) == expected
    assert media_type("page.html", head, "text/html") == expected


@pytest.mark.parametrize(
    ("filename", "head", "expected"),
    [
        ("letter.docx", zipped(), DOCX),
        ("SUMS.XLSX", zipped(), XLSX),
        ("talk.pptx", zipped(), PPTX),
        ("book.epub", zipped(), "application/epub+zip"),
        ("old.doc", OLE, "application/msword"),
        ("old.xls", OLE, "application/vnd.ms-excel"),
        ("film.mkv", b"\x1a\x45\xdf\xa3", "video/matroska"),
        ("film.ogv", b"OggS\x00", "video/ogg"),
        ("song.m4a", b"\x00\x00\x00\x18ftypisom", "audio/mp4"),
    ],
)
def test_formats_that_begin_alike_are_told_apart_by_name(filename: str, head: bytes, expected: str) -> None:
    """A document that is a zip inside is the document; the same name over other content is not."""
    assert media_type(filename, head) == expected
    assert media_type(filename, b"%PDF-1.4") == "application/pdf"


@pytest.mark.parametrize(
    ("filename", "expected"),
    [
        ("a.txt", "text/plain"),
        ("名前.CSV", "text/csv"),
        ("index.html", "text/html"),
        ("data.json", "application/json"),
        ("drawing.svg", "image/svg+xml"),
        ("a.b.md", "text/markdown"),
        (".png", "image/png"),
        ("backup.tar", "application/x-tar"),
    ],
)
def test_the_name_tells_where_content_does_not(filename: str, expected: str) -> None:
    """The last extension counts, in either case, and more than what the sender said."""
    assert media_type(filename, BINARY, "application/x-claimed") == expected


def test_a_machines_own_table_does_not_matter() -> None:
    """What is registered on this machine for a name changes nothing."""
    mimetypes.add_type("application/x-local", ".ownext")
    assert media_type("a.ownext", BINARY) == UNKNOWN


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("application/x-thing", "application/x-thing"),
        ("Application/X-Thing; charset=utf-8", "application/x-thing"),
        (" chemical/x-pdb\t;a=b", "chemical/x-pdb"),
        ("application/vnd.a.b+json", "application/vnd.a.b+json"),
        *(
            (bad, UNKNOWN)
            for bad in ("", "text", "text/", "/plain", "a/b/c", "*/*", "te xt/plain", "a/b\r\nX: y")
        ),
        *(
            (bad, UNKNOWN)
            for bad in ("tëxt/plain", "text/\ud800", "a/" + "b" * 200, "-a/b", UNKNOWN, "a/b\n")
        ),
    ],
)
def test_what_the_sender_said_counts_last_and_well_formed(said: str, expected: str) -> None:
    """A claim without its parameters is taken where nothing else is known; one that is no type never is."""
    assert media_type("thing", BINARY, said) == expected


def test_a_head_may_end_within_a_character() -> None:
    """Where the head was cut off makes no difference to text."""
    text = "名前" * 20
    assert {media_type("x", text.encode()[:length]) for length in range(60)} == {"text/plain"}


@pytest.mark.parametrize(
    ("expected", "heads"),
    [
        ("text/plain", [b"plain words\r\n\tand tabs", "名前 é".encode(), b"\xef\xbb\xbftext", b""]),
        (
            "text/plain",
            [b"ID3 tags", b"OggS and others", b"BMW and others", b"BZh9 is a header", b"RIFF and more"],
        ),
        (UNKNOWN, [BINARY, b"text\x00", b"\x1b[0m", b"caf\xe9 au lait", "t\x9b".encode(), b"\xff\xfeT\x00"]),
    ],
    ids=["printable", "words are no signature", "other"],
)
def test_printable_content_is_plain_text(expected: str, heads: list[bytes]) -> None:
    """Text of any script is text, also where it begins like a format's name, and where the sender only said that it
    does not know. Control characters and what is no UTF-8 are not printable."""
    for head in heads:
        assert media_type("README", head) == media_type("README", head, UNKNOWN) == expected


def test_a_tar_is_known_by_its_name() -> None:
    """Its mark stands far behind the beginning, so the name has to tell."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    assert media_type("a.tar", packed.getvalue()[:512]) == "application/x-tar"


@given(any_text, st.binary(max_size=64), st.none() | any_text)
def test_there_is_always_a_type_fit_for_a_header(filename: str, head: bytes, said: str | None) -> None:
    """Whatever goes in, what comes out is ``type/subtype`` in printable ASCII, and the same again if said."""
    found = media_type(filename, head, said)
    assert found.isascii()
    assert found.isprintable()
    assert found.count("/") == 1
    assert found == found.lower()
    assert media_type("", b"\x00", found) == found


TEXTUAL = [
    *(
        "text/plain",
        "text/html",
        "TEXT/CSV",
        "text/plain; charset=utf-8",
        "application/json",
        "image/svg+xml",
    ),
    *("application/xml", "application/ld+json", "application/xhtml+xml ;a=b", "application/yaml"),
    *("application/x-ndjson", "application/javascript", "text/javascript"),
]


def test_what_is_read_as_text() -> None:
    """Text types, JSON and XML by any name, whatever their parameters; documents with XML inside are none."""
    assert all(map(is_text, TEXTUAL))
    others = ["", "text", "image/png", "application/pdf", UNKNOWN, DOCX, "x/text/plain"]
    assert not any(map(is_text, others))


USUAL = {
    **{
        "image/png": "png",
        "image/jpeg": "jpg",
        "text/plain": "txt",
        "text/html": "html",
        "audio/mpeg": "mp3",
    },
    **{"text/markdown": "md", "application/json": "json", "application/gzip": "gz", "audio/ogg": "ogg"},
    **{"audio/wav": "wav", "video/mp4": "mp4", "video/webm": "webm", "application/pdf": "pdf", DOCX: "docx"},
}


def test_a_usual_extension_names_its_type() -> None:
    """The ending that people expect, or none for a type nobody listed; a file named so is known by it again."""
    for media, extension in USUAL.items():
        assert usual_extension(media) == usual_extension(f"{media.upper()}; a=b") == extension
        assert media_type(f"x.{extension}", BINARY) == media
    assert usual_extension(UNKNOWN) is usual_extension("nonsense") is None


@pytest.mark.parametrize(
    ("filename", "media", "expected"),
    [
        ("write.bin", "image/png", "write.png"),
        ("write.jpeg", "image/jpeg", "write.jpeg"),
        ("write.PNG", "image/png", "write.PNG"),
        ("write", "text/plain; charset=utf-8", "write.txt"),
        ("a.tar.gz", "application/zip", "a.tar.zip"),
        ("write.bin", UNKNOWN, "write.bin"),
        ("write.", "image/png", "write.png"),
    ],
)
def test_a_name_takes_the_extension_of_its_type(filename: str, media: str, expected: str) -> None:
    """Unless it has one of that type already, or the type has none."""
    assert named_after_type(filename, media) == expected


@pytest.mark.parametrize(
    ("known", "safe"),
    [
        ("image/png", True),
        ("text/plain; charset=utf-8", True),
        ("application/pdf", True),
        ("image/svg+xml", False),
        ("text/html", False),
        ("application/zip", False),
        ("application/octet-stream", False),
    ],
)
def test_types_that_can_act_are_not_safe_to_open(known: str, safe: bool) -> None:
    """Markup, archives, documents and what is unknown can; pictures and texts only show something."""
    assert is_safe_to_open(known) is safe
