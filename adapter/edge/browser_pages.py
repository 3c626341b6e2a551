"""Pages that people open with their browser, as HTML: the frame of all of them, and the pages of grants.

Whatever comes from elsewhere is escaped, shortened and shown as plain text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from adapter.edge.http.request import FieldLines
from adapter.rules.text.unicode import shown

LONGEST = 200
"""Characters of a text of somebody else's."""

MOST_SCOPES = 50

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#f4f4f5;color:#18181b}"
    "main{max-width:34rem;margin:10vh auto;padding:2rem;background:#fff;border-radius:.75rem;"
    "box-shadow:0 1px 4px #0003}"
    "h1{font-size:1.3rem;margin:0 0 1rem}dt{color:#52525b;font-size:.85rem}dd{margin:0 0 .75rem;"
    "overflow-wrap:anywhere}code{background:#f4f4f5;padding:0 .3em;border-radius:.3em}"
    "button,.go{font:inherit;display:inline-block;border:0;border-radius:.5rem;padding:.6rem 1.2rem;"
    "background:#1d4ed8;color:#fff;text-decoration:none;cursor:pointer}"
    "input{font:inherit;box-sizing:border-box;width:100%;padding:.5rem;margin:.25rem 0 1rem}"
    ".note{background:#fef9c3;padding:.6rem .8rem;border-radius:.5rem}"
    "@media(prefers-color-scheme:dark){body{background:#18181b;color:#f4f4f5}main{background:#27272a}"
    "dt{color:#a1a1aa}code{background:#3f3f46}.note{background:#422006}}"
)


def document(title: str, body: str, style: str, *, head: str = "", script: str = "") -> str:
    """A page of the adapter's, which loads nothing: its style and its script are in it. ``body`` and ``head`` are
    HTML.
    """
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{head}<style>{style}</style></head>'
        f"<body><main><h1>{title}</h1>{body}</main>"
        f"{f'<script type=module>{script}</script>' if script else ''}</body></html>"
    )


def page_fields(style: str, script: str = "", *, referrer: str = "no-referrer") -> FieldLines:
    """The fields of a page: nobody frames it, nothing keeps it, and it sends to nobody but its own address.

    Its address may be a right or hold a code, so by default no other place hears of it.
    """
    runs = f"script-src '{_digest(script)}'; connect-src 'self'; " if script else ""
    policy = (
        f"default-src 'none'; {runs}style-src '{_digest(style)}'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    )
    return [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", policy),
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", referrer),
        ("Cross-Origin-Opener-Policy", "same-origin"),
    ]


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def text_of(value: str, most: int = LONGEST) -> str:
    """A text of somebody else's, for a page."""
    return escape(shown(value, most), quote=True)


# --- grants ----------------------------------------------------------------------------------------------------

# The link must not be told to the authorization server, and same-origin keeps the Origin of the form.
FIELDS = page_fields(STYLE, referrer="same-origin")


def consent_page(
    server: str,
    principal: str | None,
    issuer_host: str,
    scopes: Sequence[str],
    confirm: str,
    *,
    asks_token: bool,
) -> bytes:
    """The first page: who asks for what, and a button.

    ``principal`` is None where callers are not told apart. ``confirm`` goes back with the form. ``asks_token``: the
    person shows by a token of the adapter's that it is them.
    """
    listed = ", ".join(f"<code>{text_of(scope)}</code>" for scope in scopes[:MOST_SCOPES])
    more = f" and {len(scopes) - MOST_SCOPES} more" if len(scopes) > MOST_SCOPES else ""
    if principal is None:
        whose = everybody = "everybody who can use this adapter"
        note = "Go on only if all of them may use your account."
    else:
        whose = f"<b>{text_of(principal)}</b>"
        everybody = f"{text_of(principal)}, and to nobody else"
        note = (
            f"Go on only if you are {whose} and have just used this server. If somebody sent you this link, close the "
            "page: your account would be theirs to use."
        )
    return page(
        "Give access?",
        f"<p>This adapter (mcp-file-adapter) wants to use the server <b>{text_of(server)}</b> on behalf of {whose}."
        f"</p><dl><dt>You will sign in at</dt><dd>{text_of(issuer_host)}</dd>"
        f"<dt>It will be asked for these scopes</dt><dd>{listed or 'those it gives by itself'}{more}</dd>"
        f'<dt>The access will belong to</dt><dd>{everybody}</dd></dl><p class="note">{note}</p>'
        f'<form method="post"><input type="hidden" name="confirm" value="{text_of(confirm)}">'
        f"{_TOKEN if asks_token else ''}<button>Continue</button></form>",
    )


_TOKEN = (
    "<label>Your token for this adapter, so that nobody else gives this grant in your name"  # noqa: S105 (a label)
    '<input type="password" name="token" autocomplete="off" required></label>'
)


def leaving_page(url: str, issuer_host: str) -> bytes:
    """The page that sends the browser on; a link for browsers that do not go by themselves.

    It is a page, and no redirect, since browsers judge the redirects of a form by ``form-action``, and authorization
    servers redirect on to places that nobody here knows.
    """
    target = escape(url, quote=True)
    return page(
        "One moment",
        f"<p>You are sent to {text_of(issuer_host)}.</p>"
        f'<p><a class="go" href="{target}" rel="noreferrer">Continue</a></p>',
        f'<meta http-equiv="refresh" content="0; url={target}">',
    )


def granted_page(server: str, principal: str | None) -> bytes:
    """The page at the end; ``principal`` as on the first one."""
    whose = "everybody who can use it" if principal is None else f"<b>{text_of(principal)}</b>"
    return page(
        "Access given",
        f"<p>The adapter can now use <b>{text_of(server)}</b> on behalf of {whose}.</p>"
        "<p>You can close this page and go back to your client. If it does not go on by itself, call the tool "
        "again.</p>",
    )


def failed_page(sentence: str) -> bytes:
    """The page where it does not go on; ``sentence`` tells the person why."""
    return page("No access was given", f"<p>{text_of(sentence)}</p>")


def page(title: str, body: str, head: str = "") -> bytes:
    """A page of the adapter's; ``body`` and ``head`` are HTML."""
    return document(title, body, STYLE, head=head).encode("utf-8", "replace")
