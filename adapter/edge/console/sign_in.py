"""The routes by which people sign in to the console with their browser, and out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from html import escape
from urllib.parse import quote, urlsplit

from adapter.edge import browser_pages
from adapter.edge.http.access import Guard
from adapter.edge.http.request import Branch, FieldLines, Names, Request, query_of
from adapter.edge.http.response import send
from adapter.errors import AdapterError, OriginRefused
from adapter.oauth.sign_in import VALID, BrowserSessions, SignIn, SignInFailed
from adapter.rules.access.browser_sessions import TAB_FIELD, is_own_page, is_place
from adapter.rules.access.principals import name_of
from adapter.rules.calls.tool_api import HttpOutcome
from adapter.wire.envelope import dump

Serve = Callable[[Request, Names], Awaitable[object]]

SIGN_IN, SIGNED_IN, SIGN_OUT, BROWSER = "sign-in", "signed-in", "sign-out", "browser"

_NO_STORE: FieldLines = [("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer")]


class SignInRoutes:
    """Serves the routes below ``path``, the console's, and tells who sits at a browser. ``base`` is the public URL."""

    def __init__(
        self, path: str, base: str, guard: Guard, sign_in: SignIn, sessions: BrowserSessions
    ) -> None:
        self._path = path.rstrip("/")
        self._base = base
        self._guard = guard
        self._sign_in = sign_in
        self._sessions = sessions
        prefix = urlsplit(base).path.rstrip("/")
        self._places = tuple(path[len(prefix) :] for path in sessions.paths)

    def branches(self) -> Sequence[Branch]:
        """The branches, to be tried before those of the console's data."""
        read = ("GET", "HEAD")
        return (
            # A link of any site may open these two pages; what they do is bound to the browser by its cookie.
            self._branch(SIGN_IN, ("GET",), self._begin),
            self._branch(SIGNED_IN, ("GET",), self._finish),
            self._branch(SIGN_OUT, ("POST",), self._end),
            self._branch(BROWSER, read, self._tell),
        )

    def _branch(self, name: str, methods: tuple[str, ...], serve: Serve) -> Branch:
        return Branch(f"{self._path}/-/{name}", 0, methods, (), serve)

    # --- who sits at a browser --------------------------------------------------------------------------------

    async def principal(self, request: Request) -> str | None:
        """The principal that has signed in with this browser; None for nobody. Raises StoreUnavailable."""
        await self._sessions.open()
        session = self._sessions.of(request.headers)
        return None if session is None else session.principal

    def sign_in(self, back: str) -> str:
        """The URL at which a person signs in and is then sent to ``back``, a path of the adapter's own."""
        return f"{self._base}{self._path}/-/{SIGN_IN}?to={quote(back, safe='')}"

    # --- routes -----------------------------------------------------------------------------------------------

    async def _begin(self, request: Request, _: Names) -> None:
        self._guard.check_host(request.headers)
        wanted = query_of(request).get("to", "")
        # The page tells where it is by its fragment.
        place = f"{self._path}/{wanted}" if not wanted or wanted.startswith("#") else wanted
        if not is_place(place, self._places):
            place = f"{self._path}/"
        try:
            await self._sessions.open()
            url, kept = await self._sign_in.begin(place)
        except (SignInFailed, AdapterError) as error:
            self._fail(request, error)
            return
        fields = [*_NO_STORE, *self._sessions.under_way(kept, VALID), ("Location", url)]
        request.reply.send(302, fields)

    async def _finish(self, request: Request, _: Names) -> None:
        self._guard.check_host(request.headers)
        try:
            await self._sessions.open()
            kept = self._sessions.returned(request.headers)
            session, place = await self._sign_in.finish(kept, query_of(request))
            begun = self._sessions.begun(session)
        except (SignInFailed, AdapterError) as error:
            self._fail(request, error)
            return
        fields = [*_NO_STORE, *begun, *self._sessions.arrived(), ("Location", f"{self._base}{place}")]
        request.reply.send(302, fields)

    async def _end(self, request: Request, _: Names) -> None:
        self._guard.check_place(request.headers)
        if not is_own_page(request.headers, self._base, TAB_FIELD):
            raise OriginRefused()
        send(request, HttpOutcome(200, dump({"principal": None})), *self._sessions.ended())

    async def _tell(self, request: Request, _: Names) -> None:
        """Tell the page that people can sign in, and who has."""
        self._guard.check_place(request.headers)
        own = is_own_page(request.headers, self._base, TAB_FIELD)
        principal = await self.principal(request) if own else None
        told = {"principal": None if principal is None else name_of(principal)}
        send(request, HttpOutcome(200, dump(told)))

    def _fail(self, request: Request, error: Exception) -> None:
        status = error.http if isinstance(error, AdapterError) else 400
        home = escape(f"{self._base}{self._path}/", quote=True)
        body = browser_pages.page(
            "Not signed in", f'<p>{escape(str(error))}</p><p><a href="{home}">Go back</a></p>'
        )
        request.reply.send(max(status, 400), browser_pages.page_fields(browser_pages.STYLE), body)
