"""The media type of a file: first by its content, then by its name, then by what its sender said. Pure.

The tables are ours: the same file has the same type on every machine.
"""

from __future__ import annotations

import codecs
import re

UNKNOWN = "application/octet-stream"

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"II*\x00": "image/tiff",
    b"MM\x00*": "image/tiff",
    b"%PDF-": "application/pdf",
    b"%!PS-": "application/postscript",
    b"PK\x03\x04": "application/zip",
    b"PK\x05\x06": "application/zip",
    b"\x1f\x8b\x08": "application/gzip",
    b"\x28\xb5\x2f\xfd": "application/zstd",
    b"\xfd7zXZ\x00": "application/x-xz",
    b"7z\xbc\xaf\x27\x1c": "application/x-7z-compressed",
    b"Rar!\x1a\x07": "application/vnd.rar",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "application/x-ole-storage",
    b"SQLite format 3\x00": "application/vnd.sqlite3",
    b"\x00asm": "application/wasm",
    b"\x7fELF": "application/x-elf",
    b"ID3\x02": "audio/mpeg",
    b"ID3\x03": "audio/mpeg",
    b"ID3\x04": "audio/mpeg",
    b"fLaC": "audio/flac",
    b"OggS\x00": "audio/ogg",
    b"MThd\x00\x00\x00\x06": "audio/midi",
    b"\x1a\x45\xdf\xa3": "video/webm",
}
_SIGNATURE = re.compile(b"|".join(map(re.escape, _SIGNATURES)))
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

_EXTENSIONS = {
    # Text
    "text/css": "css",
    "text/csv": "csv",
    "application/json": "json har",
    "text/html": "html htm",
    "text/calendar": "ics",
    "application/x-ipynb+json": "ipynb",
    "text/javascript": "js mjs",
    "application/x-ndjson": "jsonl ndjson",
    "text/plain": "txt log text",
    "text/markdown": "md markdown",
    "text/x-python": "py",
    "application/rtf": "rtf",
    "application/x-sh": "sh",
    "application/sql": "sql",
    "application/x-subrip": "srt",
    "application/toml": "toml",
    "text/tab-separated-values": "tsv",
    "text/vcard": "vcf",
    "text/vtt": "vtt",
    "application/xhtml+xml": "xhtml",
    "application/xml": "xml",
    "application/yaml": "yaml yml",
    # Pictures
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/heic": "heic",
    "image/vnd.microsoft.icon": "ico",
    "image/jpeg": "jpg jpeg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tiff tif",
    "image/webp": "webp",
    # Sound, films and fonts
    "audio/aac": "aac",
    "video/x-msvideo": "avi",
    "audio/flac": "flac",
    "audio/mp4": "m4a",
    "video/mp4": "mp4 m4v",
    "audio/midi": "mid",
    "video/matroska": "mkv",
    "video/quicktime": "mov",
    "audio/mpeg": "mp3",
    "video/mpeg": "mpeg",
    "audio/ogg": "ogg oga opus",
    "video/ogg": "ogv",
    "font/otf": "otf",
    "font/ttf": "ttf",
    "audio/wav": "wav",
    "audio/webm": "weba",
    "video/webm": "webm",
    "font/woff": "woff",
    "font/woff2": "woff2",
    # Documents
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "message/rfc822": "eml",
    "application/epub+zip": "epub",
    "application/vnd.ms-outlook": "msg",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/pdf": "pdf",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/postscript": "ps",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-excel.sheet.macroenabled.12": "xlsm",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    # Archives and programs
    "application/x-7z-compressed": "7z",
    "application/vnd.android.package-archive": "apk",
    "application/x-bzip2": "bz2",
    "application/gzip": "gz tgz",
    "application/java-archive": "jar",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.rar": "rar",
    "application/vnd.sqlite3": "sqlite",
    "application/x-tar": "tar",
    "application/wasm": "wasm",
    "application/x-xz": "xz",
    "application/zip": "zip",
    "application/zstd": "zst",
}
"""The extensions of each type, the usual one first."""

_TYPES = {extension: known for known, extensions in _EXTENSIONS.items() for extension in extensions.split()}

_HOLDS = {
    "application/zip": {"apk", "docx", "epub", "jar", "odp", "ods", "odt", "pptx", "xlsm", "xlsx"},
    "application/x-ole-storage": {"doc", "msg", "ppt", "xls"},
    "audio/ogg": {"ogv"},
    "video/webm": {"mkv", "weba"},
    "video/mp4": {"m4a"},
}
"""Formats that look alike at their beginning: which of them it is, the name may say."""

_USUAL_EXTENSIONS = {
    **{known: extensions.partition(" ")[0] for known, extensions in _EXTENSIONS.items()},
    "audio/x-wav": "wav",
    "image/jpg": "jpg",
    "text/xml": "xml",
}
_TEXTUAL = {
    *("application/json", "application/xml", "application/javascript", "application/ecmascript"),
    *("application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/x-sh"),
    *("application/x-ndjson", "application/graphql", "application/x-subrip"),
}
_SAFE = {
    *(
        "text/plain",
        "text/markdown",
        "text/vtt",
        "application/json",
        "application/x-ndjson",
        "application/x-subrip",
    ),
    "application/pdf",
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


def is_safe_to_open(media_type: str) -> bool:
    """Tell whether programs that open files of this type only show or play them: no markup, macros or programs."""
    essence = _essence(media_type)
    return essence in _SAFE or (
        essence.startswith(("image/", "audio/", "video/")) and essence != "image/svg+xml"
    )


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
    if found := _SIGNATURE.match(head):
        return _SIGNATURES[found[0]]
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
