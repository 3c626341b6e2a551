"""The media type of a file: first by its content, then by its name, then by what its sender said. Pure.

The tables are ours: the same file has the same type on every machine.
"""

from __future__ import annotations

import codecs
import re

UNKNOWN = "application/octet-stream"

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"%!PS-", "application/postscript"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"\x00asm", "application/wasm"),
    (b"\x7fELF", "application/x-elf"),
    (b"ID3\x02", "audio/mpeg"),
    (b"ID3\x03", "audio/mpeg"),
    (b"ID3\x04", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS\x00", "audio/ogg"),
    (b"MThd\x00\x00\x00\x06", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
)
_RIFF = {b"WAVE": "audio/wav", b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}
_ISO_MEDIA = {
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    **dict.fromkeys((b"heic", b"heix", b"mif1"), "image/heic"),
    **dict.fromkeys((b"M4A ", b"M4B "), "audio/mp4"),
    b"qt  ": "video/quicktime",
}
_BZIP2 = re.compile(rb"BZh[1-9]1AY&SY")
# Layer III alone: what begins a frame of layer I begins a text in UTF-16, too.
_MP3_FRAME = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb][\x10-\xef]")

_TYPES = {
    # Text
    "css": "text/css",
    "csv": "text/csv",
    "json": "application/json",
    "har": "application/json",
    "html": "text/html",
    "htm": "text/html",
    "ics": "text/calendar",
    "ipynb": "application/x-ipynb+json",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "jsonl": "application/x-ndjson",
    "ndjson": "application/x-ndjson",
    "txt": "text/plain",
    "log": "text/plain",
    "text": "text/plain",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "py": "text/x-python",
    "rtf": "application/rtf",
    "sh": "application/x-sh",
    "sql": "application/sql",
    "srt": "application/x-subrip",
    "toml": "application/toml",
    "tsv": "text/tab-separated-values",
    "vcf": "text/vcard",
    "vtt": "text/vtt",
    "xhtml": "application/xhtml+xml",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    # Pictures
    "avif": "image/avif",
    "bmp": "image/bmp",
    "gif": "image/gif",
    "heic": "image/heic",
    "ico": "image/vnd.microsoft.icon",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tiff": "image/tiff",
    "tif": "image/tiff",
    "webp": "image/webp",
    # Sound, films and fonts
    "aac": "audio/aac",
    "avi": "video/x-msvideo",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "mid": "audio/midi",
    "mkv": "video/matroska",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mpeg": "video/mpeg",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "ogv": "video/ogg",
    "otf": "font/otf",
    "ttf": "font/ttf",
    "wav": "audio/wav",
    "weba": "audio/webm",
    "webm": "video/webm",
    "woff": "font/woff",
    "woff2": "font/woff2",
    # Documents
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "eml": "message/rfc822",
    "epub": "application/epub+zip",
    "msg": "application/vnd.ms-outlook",
    "odp": "application/vnd.oasis.opendocument.presentation",
    "ods": "application/vnd.oasis.opendocument.spreadsheet",
    "odt": "application/vnd.oasis.opendocument.text",
    "pdf": "application/pdf",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "ps": "application/postscript",
    "xls": "application/vnd.ms-excel",
    "xlsm": "application/vnd.ms-excel.sheet.macroenabled.12",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    # Archives and programs
    "7z": "application/x-7z-compressed",
    "apk": "application/vnd.android.package-archive",
    "bz2": "application/x-bzip2",
    "gz": "application/gzip",
    "tgz": "application/gzip",
    "jar": "application/java-archive",
    "parquet": "application/vnd.apache.parquet",
    "rar": "application/vnd.rar",
    "sqlite": "application/vnd.sqlite3",
    "tar": "application/x-tar",
    "wasm": "application/wasm",
    "xz": "application/x-xz",
    "zip": "application/zip",
    "zst": "application/zstd",
}
"""Where several extensions share a type, its usual one stands first."""

_HOLDS = {
    "application/zip": {"apk", "docx", "epub", "jar", "odp", "ods", "odt", "pptx", "xlsm", "xlsx"},
    "application/x-ole-storage": {"doc", "msg", "ppt", "xls"},
    "audio/ogg": {"ogv"},
    "video/webm": {"mkv", "weba"},
    "video/mp4": {"m4a"},
}
"""Formats that look alike at their beginning: which of them it is, the name may say."""

_USUAL_EXTENSIONS = {
    **{known: extension for extension, known in reversed(_TYPES.items())},
    "audio/x-wav": "wav",
    "image/jpg": "jpg",
    "text/xml": "xml",
}
_TEXTUAL = {
    *("application/json", "application/xml", "application/javascript", "application/ecmascript"),
    *("application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/x-sh"),
    *("application/x-ndjson", "application/graphql", "application/x-subrip"),
}
_WELL_FORMED = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")


def media_type(filename: str, head: bytes, said: str | None = None) -> str:
    """The type in lower case, without parameters. ``head`` is how the file begins; 512 bytes say all they can.

    Content comes first: a picture called ``page.html`` is a picture. ``said`` is what the sender claims, and
    counts only where neither content nor name tell more.
    """
    extension = _extension(filename)
    if (by_content := _by_content(head)) is not None:
        return _TYPES[extension] if extension in _HOLDS.get(by_content, ()) else by_content
    if (by_name := _TYPES.get(extension)) is not None:
        return by_name
    claim = _essence(said or "")
    if claim != UNKNOWN and _WELL_FORMED.fullmatch(claim):
        return claim
    return "text/plain" if _is_printable(head) else UNKNOWN


def is_text(media_type: str) -> bool:
    """Tell whether a file of this type is read as text; its reader checks whether its bytes are UTF-8."""
    essence = _essence(media_type)
    return essence.startswith("text/") or essence.endswith(("+json", "+xml", "+yaml")) or essence in _TEXTUAL


def usual_extension(media_type: str) -> str | None:
    """Return the usual extension of names of this type, without the dot; None for a type that is not in the table."""
    return _USUAL_EXTENSIONS.get(_essence(media_type))


def named_after_type(filename: str, media_type: str) -> str:
    """The name with the usual extension of this type in the place of its own, unless its own is one of the type's.

    A type that has no usual extension changes nothing.
    """
    extension, usual = _extension(filename), usual_extension(media_type)
    if usual is None or _TYPES.get(extension) == _essence(media_type):
        return filename
    stem, dot, _ = filename.rpartition(".")
    return f"{stem if dot else filename}.{usual}"


def _by_content(head: bytes) -> str | None:
    for signature, known in _SIGNATURES:
        if head.startswith(signature):
            return known
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _ISO_MEDIA.get(head[8:12], "video/mp4")
    if _BZIP2.match(head):
        return "application/x-bzip2"
    return "audio/mpeg" if _MP3_FRAME.match(head) else None


def _extension(filename: str) -> str:
    return filename.rpartition(".")[2].strip().lower() if "." in filename else ""


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip(" \t").lower()


def _is_printable(head: bytes) -> bool:
    # Not final: the head may end within a character.
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return _UNPRINTABLE.search(text) is None
