"""The pages of signed links, for people: files to choose, what has arrived, a file to download, and what went wrong.

Whatever comes from elsewhere is escaped and shortened. A page loads nothing: its style and its script are in it, and
its policy names their digests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from adapter.edge.browser_pages import document, page_fields, text_of
from adapter.edge.http.request import Request
from adapter.errors import AdapterError, CredentialRefused, FileGone, NotFound, Unauthorized
from adapter.rules.files.file_records import FileRecord
from adapter.settings.storage import Uploads
from adapter.wire.envelope import dump

LONGEST = 300
"""Characters of a text of somebody else's."""

_ROOM = files("adapter.edge.files") / "page"
_STYLE = (_ROOM / "page.css").read_text("utf-8")
_BASE, _UPLOADS, _APP, _UPLOAD_WIDGET, _FILES_WIDGET = (
    (_ROOM / f"{name}.js").read_text("utf-8")
    for name in ("base", "upload", "app", "upload_widget", "files_widget")
)
_SCRIPT = _BASE + _UPLOADS
_UPLOAD = Template((_ROOM / "upload.html").read_text("utf-8"))

_UNITS = ("bytes", "KB", "MB", "GB", "TB")

_WORDS = {
    0: "The connection was lost before all was sent, and nothing was kept. Try again.",
    400: "The files did not arrive as they were sent, and nothing was kept. Try again.",
    401: (
        "This link has expired, was used already, or is not complete. If your files have been sent with it, go back to "
        "your chat. If not, ask your assistant for a new upload link."
    ),
    404: "This link leads to no server that takes files. Ask your assistant for a new upload link.",
    408: "Nothing arrived for too long, so the upload was given up. Check your connection and try again.",
    413: "This is too much for one upload, and nothing was kept. Send smaller files, or fewer.",
    429: "There is no room for these files now, and nothing was kept. Try again in a minute, or send smaller files.",
    503: "The server is not ready now. Try again in a minute.",
    507: "The server has no space left, and nothing was kept. Try again later, or tell who runs it.",
}
"""What a person is told, by the status of the answer; 0 is for none."""

_OTHER = "The upload failed, and nothing was kept. Try again."
_NOT_NOW = "The file cannot be had now. Try again."
_DIGESTS = (
    "This server wants a checksum of each file. Your browser makes them only with JavaScript and over https."
)
_GONE = (
    "This link has expired, is not complete, or its file is gone. Ask your assistant to make the file again, or for a "
    "new link."
)


def upload_page(
    request: Request, server: str, limits: Uploads, quota: int | None, time: tuple[float, float]
) -> None:
    """Answer with the page where files are chosen. ``quota``: as for UploadRoute. ``time``: when the link expires, in
    Unix seconds, and in how many seconds that is.
    """
    expires, left = time
    most = f"up to {limits.max_files} files of " if limits.max_files > 1 else "one file of up to "
    total = "" if quota is None else f" (all together {size(quota)})"
    terms = {
        "file": limits.max_file_bytes,
        "files": limits.max_files,
        "total": quota,
        "left": max(0, math.floor(left)),
        "digests": limits.require_sha256,
    }
    until = datetime.fromtimestamp(expires, UTC)
    intro = (
        f"<p>They go to <b>{_text(server)}</b>; the chat gets only a short address for each. "
        f"It takes {most}{size(limits.max_file_bytes)}{total}.</p>"
        '<p class="note" id="note">This link is good for one upload, until '
        f'<time id="until" datetime="{until.isoformat()}">{until:%H:%M} UTC</time>.</p>'
    )
    said = f' data-terms="{escape(dump(terms).decode(), quote=True)}"'
    filled = intro + _form(said, " multiple" if limits.max_files > 1 else "")
    warning = f"<noscript><p class=error>{_DIGESTS}</p></noscript>" if limits.require_sha256 else ""
    _send(request, 200, "Send files", warning + filled, _SCRIPT)


def upload_widget() -> str:
    """The same form as a widget of a chat, which learns its link from the result of the tool. It is for everybody."""
    body = (
        '<p id="intro" hidden>They go to <b id="server"></b>. <span class="note" id="note">This is good for one '
        'upload, until <time id="until"></time>.</span></p>'
        + _form(" hidden", " multiple")
        + '<p><button type="button" id="browser" hidden>Open in a browser instead</button></p>'
    )
    return document("Send files", body, _STYLE, script=_SCRIPT + _APP + _UPLOAD_WIDGET)


def files_widget() -> str:
    """A widget that shows the files that a tool wrote, which it learns from the tool's result. It is for everybody."""
    body = '<ul id="list"></ul><p id="status" role="status"></p>'
    return document("Files", body, _STYLE, script=_BASE + _APP + _FILES_WIDGET)


def _form(attributes: str, multiple: str) -> str:
    words = {**{str(status): words for status, words in _WORDS.items()}, "other": _OTHER, "digests": _DIGESTS}
    return _UPLOAD.substitute(
        words=escape(dump(words).decode(), quote=True), terms=attributes, multiple=multiple
    )


def received_page(request: Request, uploads: Sequence[Mapping[str, Any]]) -> None:
    """Answer with the page of files that have arrived; ``uploads`` as in the answer for programs."""
    rows = "".join(
        f"<li><span>{_text(each['filename'])}<code>{_text(each['upload_handle'])}</code></span></li>"
        for each in uploads
    )
    count = "1 file" if len(uploads) == 1 else f"{len(uploads)} files"
    _send(
        request,
        200,
        f"Done: {count} arrived",
        f"<ul>{rows}</ul><p>Copy what stands below each name, and go back to your chat with it.</p>",
    )


def file_page(request: Request, record: FileRecord, confirmed: str) -> None:
    """Answer with the page of a file that a browser had better not open by itself.

    ``confirmed`` goes behind the link's query for the file itself.
    """
    content = record.content
    facts = ("Name", record.filename), ("Size", size(content.size)), ("Type", content.media_type)
    listed = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts)
    link = escape(f"?{request.target.partition('?')[2]}&{confirmed}", quote=True)
    _send(
        request,
        200,
        "A file for you",
        f'<dl>{listed}</dl><p><a class="button main" href="{link}">Download</a></p>'
        '<p class="note">Open it only if you expected it: it can contain a program.</p>',
    )


def upload_failed_page(request: Request, error: AdapterError) -> None:
    """Answer with the page of an upload, or of a link to one, that failed."""
    again = ""
    detail = "" if isinstance(error, CredentialRefused | NotFound) else f"<small>{_text(str(error))}</small>"
    if detail and request.method == "POST":
        again = '<p><a class="button main" href="">Try again</a></p>'
    _fail(request, error, _WORDS.get(error.http, _OTHER) + detail, again)


def file_failed_page(request: Request, error: AdapterError) -> None:
    """Answer with the page of a link to a file that cannot be had."""
    told = isinstance(error, CredentialRefused | FileGone | NotFound)
    _fail(request, error, _GONE if told else _WORDS.get(error.http, _NOT_NOW))


def _fail(request: Request, error: AdapterError, words: str, again: str = "") -> None:
    request.failure = type(error)
    if error.retry_after is not None and error.http in (429, 503):
        request.reply.extra += (("Retry-After", str(math.ceil(error.retry_after))),)
    if error.http == Unauthorized.http:
        request.reply.extra += (("WWW-Authenticate", Unauthorized.challenge),)
    _send(request, error.http, "That did not work", f'<p class="error">{words}</p>{again}')


def _send(request: Request, status: int, title: str, body: str, script: str = "") -> None:
    fields = [*page_fields(_STYLE, script), ("Vary", "Accept"), ("X-Robots-Tag", "noindex")]
    page = document(title, body, _STYLE, script=script)
    request.reply.send(status, fields, page.encode("utf-8", "replace"))


_text = partial(text_of, most=LONGEST)


def size(count: int) -> str:
    """A number of bytes for people."""
    number, unit = float(count), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"
