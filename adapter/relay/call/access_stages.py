"""The access rules of one server on the road of its requests.

What a caller may not use it does not see, and what it asks for without seeing it gets the answer of what does not
exist. For tools that is the adapter's own answer in both cases: a call of a name that the upstream does not list gets
it too, so the list of tools is read before the first call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from adapter.errors import AdapterError, BadJson, BadRequest, ToolUnknown, UpstreamBroken
from adapter.relay.background import in_turns
from adapter.relay.sessions.session import LISTED_BEFORE
from adapter.relay.stages import Call, Gate, Stage, StageEntry
from adapter.relay.tools.tool_guard import ToolGuard
from adapter.rules.access.access_rules import (
    NOT_FOUND_LEGACY,
    NOT_FOUND_MODERN,
    SHAPES,
    AccessRules,
    AccessView,
    OfferKind,
    read_page,
    unknown_method,
    unknown_prompt,
    unknown_resource,
    unknown_tool,
    visible_list,
)
from adapter.rules.access.principals import Caller
from adapter.rules.tools.lists import ListRefused
from adapter.wire.ambiguity import leads_elsewhere, may_hold
from adapter.wire.envelope import Envelope, Kind, dump, failure, parse, read_envelope, value_at
from adapter.wire.spans import Replace

NOTE = "access"
"""The note of a call with the rules that concern its caller."""

PAGES = 100
"""Pages of a list that are searched for one name."""

UPDATED = "notifications/resources/updated"

_USES = {
    "prompts/get": OfferKind.PROMPT,
    "resources/read": OfferKind.RESOURCE,
    "resources/subscribe": OfferKind.RESOURCE,
    "resources/unsubscribe": OfferKind.RESOURCE,
}
"""The methods that name one prompt or resource."""

_REFERENCES = ((OfferKind.PROMPT, "name"), (OfferKind.TEMPLATE, "uri"))
"""The members of a reference that name a prompt, or the template of a resource."""

_LISTS = [shape.key for kind, shape in SHAPES.items() if kind is not OfferKind.TOOL]


@dataclass(eq=False, repr=False)
class AccessGate(Gate):
    """The gate of ``tools/call``. ``tools`` knows what the upstream lists; it is ``shared`` if all sessions are one for
    the upstream. It skips nothing: a scope may have callers with different scopes and claims.
    """

    rules: AccessRules
    tools: ToolGuard
    shared: bool = field(default=False, kw_only=True)

    async def admit(self, call: Call) -> None:
        """Let a call of a tool go on that its caller sees. Raises ToolUnknown, and what reading the list raises."""
        name = call.envelope.name
        if name is None:
            raise ToolUnknown("tools/call requires the name of the tool in params.name.")
        # Asked in any case, so that a list which cannot be had is answered alike for all names.
        listed = await self.tools.lists(call, name)
        if not (listed and self.sees(call, name)):
            raise unknown_tool(name)

    def entries(self) -> list[StageEntry]:
        """The stages of all other methods."""
        rules = self.rules
        return [
            *(StageEntry(shape.method, "access", VisibleList(rules, kind)) for kind, shape in SHAPES.items()),
            *(StageEntry(method, "access", VisibleUse(rules, kind)) for method, kind in _USES.items()),
            StageEntry("completion/complete", "access", VisibleReference(rules)),
            StageEntry("subscriptions/listen", "access", VisibleSubscription(rules)),
            StageEntry("tasks/list", "access", OwnTasks(shared=self.shared)),
        ]

    def sees(self, call: Call, name: str) -> bool:
        """Tell whether the caller of a call may see the tool of this name."""
        return _view(self.rules, call).allows(OfferKind.TOOL, name)

    def rights_of(self, caller: Caller) -> object:
        """A value that is equal for callers with the same rights."""
        return self.rules.view(caller).places

    def heard(self, caller: Caller, data: bytes) -> bytes:
        """The part of a message on a GET stream that may leave: nothing of resources that the caller does not see."""
        return _heard(self.rules.view(caller), data)

    def aside(self, caller: Caller, data: bytes) -> bytes:
        """As ``heard`` on the stream that answers a call, where a result is what was asked for."""
        if data.isascii() and b"\\" not in data and not _may_tell(data):
            return data
        try:
            message = parse(data)
        except BadJson:
            return data
        messages = message if isinstance(message, list) else [message]
        view = self.rules.view(caller)
        return data if all(_is_visible(view, each) for each in messages) else b""


def _view(rules: AccessRules, call: Call) -> AccessView:
    """The decisions for the caller of a call, also if that began in another process."""
    note = call.notes.get(NOTE)
    if note is not None:
        return rules.restored(note)
    view = rules.view(call.origin.caller)
    call.notes[NOTE] = rules.noted(view)
    return view


class VisibleList(Stage):
    """The stage of one list: it leaves out what its caller may not see."""

    def __init__(self, rules: AccessRules, kind: OfferKind) -> None:
        self._rules = rules
        self._kind = kind

    async def ask(self, call: Call) -> bytes | None:
        """Note the rules; nothing leaves that was not looked at."""
        _view(self._rules, call)
        call.guarded = True
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        """The list as the caller sees it. Raises UpstreamBroken for one that can be read in two ways."""
        view = _view(self._rules, call)
        shows = partial(view.allows, self._kind)
        try:
            return await in_turns(visible_list(response, self._kind, shows, modern=call.modern))
        except (BadJson, ListRefused) as error:
            what = "is not valid JSON" if isinstance(error, BadJson) else str(error)
            method = SHAPES[self._kind].method
            raise UpstreamBroken(f"The upstream server's answer to {method} {what}.") from error


class VisibleUse(Stage):
    """The stage of requests that name one prompt or resource."""

    def __init__(self, rules: AccessRules, kind: OfferKind) -> None:
        self._rules = rules
        self._kind = kind

    async def ask(self, call: Call) -> bytes | None:
        name = call.envelope.name
        if name is None:
            raise BadRequest(
                f"{call.envelope.method} requires the {SHAPES[self._kind].name} as a text in params."
            )
        if _view(self._rules, call).allows(self._kind, name):
            return None
        return _unknown(call, self._kind, name)

    async def answer(self, call: Call, response: bytes) -> bytes:
        """The response. The upstream's word for what it does not have is the adapter's word, as for what is hidden."""
        error = call.parsed(response).get("error")
        if not isinstance(error, dict):
            return response
        name = call.envelope.name or ""
        if _view(self._rules, call).is_own(self._kind, name):
            return response
        if self._kind is OfferKind.PROMPT:
            return response if await _is_listed(call, name) else _unknown(call, self._kind, name)
        code = error.get("code")
        missing = code == NOT_FOUND_LEGACY or (call.modern and code == NOT_FOUND_MODERN)
        return _unknown(call, self._kind, name) if missing else response


class VisibleReference(Stage):
    """The stage of ``completion/complete``, which is about a prompt or the template of a resource."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules

    async def ask(self, call: Call) -> bytes | None:
        ways = [(("params", 0), ("ref", 0), (member, 0)) for _, member in _REFERENCES]
        if any(leads_elsewhere(call.envelope.body, way) for way in ways):
            raise BadRequest("The reference of completion/complete can be read in two ways.")
        reference = value_at(parse(call.envelope.body), "params", "ref")
        members = reference if isinstance(reference, dict) else {}
        # All that a server may take the reference for, whatever its type says.
        found = [(kind, name) for kind, key in _REFERENCES if isinstance(name := members.get(key), str)]
        if not found:
            raise BadRequest("completion/complete requires a reference with the name of a prompt or a URI.")
        view = _view(self._rules, call)
        for kind, name in found:
            if not view.allows(kind, name):
                return _unknown(call, kind, name)
        return None


class VisibleSubscription(Stage):
    """The stage of ``subscriptions/listen``: of the resources that it names, the visible ones are subscribed to."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules

    async def ask(self, call: Call) -> bytes | None:
        way = (("params", 0), ("notifications", 0), (_SUBSCRIPTIONS, 0))
        if leads_elsewhere(call.request, way):
            raise BadRequest("The notifications of subscriptions/listen can be read in two ways.")
        view = _view(self._rules, call)
        call.heard.append(partial(_heard, view))
        uris = value_at(parse(call.request), "params", "notifications", _SUBSCRIPTIONS)
        if uris is None:
            return None
        if not isinstance(uris, list):
            raise BadRequest(f"{_SUBSCRIPTIONS} must be a list of URIs.")
        seen = [uri for uri in uris if isinstance(uri, str) and view.allows(OfferKind.RESOURCE, uri)]
        if len(seen) < len(uris):
            call.change(Replace(("params", "notifications", _SUBSCRIPTIONS), dump(seen)))
        return None


class OwnTasks(Stage):
    """The stage of ``tasks/list``. Without a session, or with a ``shared`` process, an upstream cannot tell the
    adapter's callers apart, and would list the tasks of all of them.
    """

    def __init__(self, *, shared: bool) -> None:
        self._shared = shared

    async def ask(self, call: Call) -> bytes | None:
        if call.origin.session is not None and not self._shared:
            return None
        return unknown_method(call.envelope.id_bytes, call.envelope.method)


_SUBSCRIPTIONS = "resourceSubscriptions"


def _unknown(call: Call, kind: OfferKind, name: str) -> bytes:
    if kind is OfferKind.PROMPT:
        return unknown_prompt(call.envelope.id_bytes, name)
    return unknown_resource(call.envelope.id_bytes, name, modern=call.modern)


async def _is_listed(call: Call, name: str) -> bool:
    """Tell whether the upstream lists a prompt of this name; False where no list can be had."""
    if call.fetch is None:
        return False
    params, shape = dict[str, Any](), SHAPES[OfferKind.PROMPT]
    try:
        for _ in range(PAGES):
            response = await call.fetch(shape.method, params)
            page = None if response is None else await in_turns(read_page(response, shape))
            if page is None:
                return False
            if any(each == name for each, _ in page.entries):
                return True
            if page.cursor is None:
                return False
            params = {"cursor": page.cursor}
    except (AdapterError, ListRefused):
        pass
    return False


# --- messages that no request waits for -------------------------------------------------------------------------


def _heard(view: AccessView, data: bytes) -> bytes:
    """The message as it may leave. Nothing is left of one that names a hidden resource, or holds a list."""
    if data.isascii() and b"\\" not in data and not _may_tell(data):
        return data
    try:
        message = parse(data)
        if any(may_hold(message, "result", key) for key in _LISTS):
            return _instead_of_list(data)
    except AdapterError:
        # Some client may find in it what nobody here does.
        return b""
    if all(_is_visible(view, each) for each in (message if isinstance(message, list) else [message])):
        return data
    return b""


def _may_tell(data: bytes) -> bool:
    """False for a message in which no member could be read as a list, or as a notification of a resource."""
    text = data.lower().translate(None, b"_- \x7f")
    return b"resource" in text or b"prompts" in text


def _is_visible(view: AccessView, message: object) -> bool:
    if not isinstance(message, dict) or message.get("method") != UPDATED:
        return True
    uri = value_at(message, "params", "uri")
    return isinstance(uri, str) and view.allows(OfferKind.RESOURCE, uri)


def _instead_of_list(data: bytes) -> bytes:
    message = read_envelope(data)
    if isinstance(message, Envelope) and message.kind is Kind.RESPONSE:
        return failure(UpstreamBroken(LISTED_BEFORE), message.id_bytes)
    return b""
