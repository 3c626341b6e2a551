"""A person's browser: cookies, redirections and the form of the authorization server, by the standard library alone.

Clients in every environment use it, so it imports nothing of theirs.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from html import unescape
from http.cookiejar import CookieJar
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, OpenerDirector, Request, build_opener

TIMEOUT = 10.0
"""Seconds until a page must have answered."""

STEPS = 20
"""Pages of one sign-in at most."""

_INPUT = re.compile(r"<input\b([^>]*)>")
_ATTRIBUTE = re.compile(r'(name|value)="([^"]*)"')
_REFRESH = re.compile(r'http-equiv="refresh" content="0; url=([^"]*)"')


@dataclass(frozen=True)
class Page:
    """``url`` is the one that was opened last; ``location`` is where it leads, if it redirects."""

    url: str
    status: int
    text: str
    location: str | None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Leave each redirection to the browser."""


class Browser:
    """Keeps the cookies of ``person``, and says their name wherever a form asks for it.

    ``typed`` is what they type into other fields, by name.
    """

    def __init__(self, person: str, **typed: str) -> None:
        self.person = person
        self._typed = {"person": person, **typed}
        self.cookies = CookieJar()
        self._opener: OpenerDirector = build_opener(HTTPCookieProcessor(self.cookies), _NoRedirects())

    def page(self, url: str, form: dict[str, str] | None = None) -> Page:
        """Open one page, without following its redirection."""
        body = urlencode(form).encode() if form is not None else None
        request = Request(url, data=body, headers={"Accept": "text/html"})
        try:
            with self._opened(request) as response:
                return Page(url, response.status, response.read().decode(), None)
        except HTTPError as answer:
            location = answer.headers.get("Location")
            text = answer.read().decode()
            return Page(url, answer.code, text, urljoin(url, location) if location else None)

    def _opened(self, request: Request) -> Any:
        """Open, also when a client begins to listen for its answer only a moment later."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return self._opener.open(request, timeout=TIMEOUT)
            except HTTPError:
                raise
            except URLError as error:
                if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def visit(self, url: str) -> Page:
        """Follow redirections, signing in where a form asks, until a page stays."""
        return self._follow(url, until=None)

    def approve(self, url: str) -> str:
        """Sign in at an authorization URL; the URL of the client that the browser is then sent to.

        That URL is not opened. Raises AssertionError with the page if the sign-in ends in one.
        """
        redirect_uri = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        page = self._follow(url, until=redirect_uri)
        assert page.location is not None, page
        return page.location

    def _filled(self, text: str) -> dict[str, str]:
        """The form of a page, with what the person types and what stands in it; empty if there is none."""
        if "<form" not in text:
            return {}
        inputs = [dict(_ATTRIBUTE.findall(tag)) for tag in _INPUT.findall(text)]
        return {
            each["name"]: unescape(each.get("value", self._typed.get(each["name"], ""))) for each in inputs
        }

    def _follow(self, url: str, until: str | None) -> Page:
        form = None
        for _ in range(STEPS):
            page = self.page(url, form)
            if page.location is not None:
                if until is not None and page.location.startswith(until):
                    return page
                url, form = page.location, None
            elif (filled := self._filled(page.text)) and form is None:
                form = filled
            elif (on := _REFRESH.search(page.text)) is not None:
                url, form = unescape(on[1]), None
            else:
                return page
        raise AssertionError(f"no end after {STEPS} pages: {url}")


def answer_of(callback: str) -> dict[str, str]:
    """The parameters of a redirection to a client: ``code``, ``state`` and ``iss``, or ``error``."""
    return {name: values[0] for name, values in parse_qs(urlsplit(callback).query).items()}
