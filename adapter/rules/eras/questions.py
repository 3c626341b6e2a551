"""Questions of a legacy server in the middle of a request: what a modern client is asked in their place, and the
``requestState`` with which its answer finds the call again, sealed and bound to who called what. Pure.

Source of the rules: MCP 2025-11-25, "Elicitation", "Sampling" and "Roots"; 2026-07-28, "Multi Round-Trip Requests".
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.rules.eras.legacy_server import SERVER_INFO_KEY
from adapter.wire.envelope import METHOD_NOT_FOUND, dump, error_response, value_at
from adapter.wire.spans import find

HELD_CAPABILITIES: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
    "sampling": {"context": {}, "tools": {}},
}
"""What the adapter declares in a session for modern clients, of whom each says for itself what it can."""

_REFUSED_BY_USER = -1
URL_REQUIRED = -32042


class LegacyQuestion(NamedTuple):
    """A request of the server: its id as it is spelled, its method, and its params (JSON; empty without any)."""

    id_bytes: bytes
    method: str
    params: bytes

    @property
    def size(self) -> int:
        return len(self.id_bytes) + len(self.params)


def question_in(message: bytes, method: str) -> LegacyQuestion:
    """The question that a request of the server is."""
    number, params = find(message, ("id",)), find(message, ("params",))
    assert number is not None, "a request has an id"
    return LegacyQuestion(message[slice(*number)], method, b"" if params is None else message[slice(*params)])


_NO_WAYS = frozenset[str]()


def ways(capabilities: object) -> frozenset[str]:
    """The ways in which a client with these capabilities can be asked; see ``way_of``."""
    if not isinstance(capabilities, dict) or not capabilities:
        return _NO_WAYS
    known = capabilities
    found = {name for name in ("roots", "sampling") if isinstance(known.get(name), dict)}
    if "sampling" in found and isinstance(known["sampling"].get("tools"), dict):
        found.add("sampling with tools")
    elicitation = known.get("elicitation")
    if isinstance(elicitation, dict):
        found |= {name for name in ("form", "url") if isinstance(elicitation.get(name), dict)}
        # An empty object means forms, which were all there was.
        found |= set() if elicitation else {"form"}
    return frozenset(found)


def way_of(method: str, params: object) -> str:
    """The way in which a question asks; empty for what is no question to a client."""
    asked = params if isinstance(params, dict) else {}
    if method == "roots/list":
        return "roots"
    if method == "sampling/createMessage":
        return "sampling with tools" if "tools" in asked or "toolChoice" in asked else "sampling"
    if method != "elicitation/create":
        return ""
    return "url" if asked.get("mode") == "url" else "form"


def declined(question: LegacyQuestion) -> bytes:
    """The answer to a question in the name of a client that cannot be asked it; to a ping, that it was heard."""
    if question.method == "ping":
        return answered(question, b"{}")
    if question.method == "elicitation/create":
        return answered(question, b'{"action":"decline"}')
    if question.method == "sampling/createMessage":
        return error_response(
            question.id_bytes, _REFUSED_BY_USER, "The client does not support this sampling."
        )
    return error_response(question.id_bytes, METHOD_NOT_FOUND, f"Method not found: {question.method[:80]}")


def answered(question: LegacyQuestion, result: bytes) -> bytes:
    """The response to a question with this result (JSON)."""
    return b'{"jsonrpc":"2.0","id":' + question.id_bytes + b',"result":' + result + b"}"


def input_required(
    id_bytes: bytes, questions: Mapping[str, LegacyQuestion], state: str | None, server_info: bytes | None
) -> bytes:
    """The response that asks a modern client these questions, to be answered with ``state``."""
    asked = b",".join(
        b'"%b":{"method":"%b"%b}'
        % (key.encode(), each.method.encode(), b',"params":' + each.params if each.params else b"")
        for key, each in questions.items()
    )
    rest = b"" if state is None else b',"requestState":' + dump(state)
    if server_info is not None:
        rest += b',"_meta":{"' + SERVER_INFO_KEY.encode() + b'":' + server_info + b"}"
    return (
        b'{"jsonrpc":"2.0","id":'
        + id_bytes
        + b',"result":{"resultType":"input_required","inputRequests":{'
        + asked
        + b"}"
        + rest
        + b"}}"
    )


def links_in(error: object) -> dict[str, LegacyQuestion]:
    """The links that an error of a legacy server asks to have opened before the request is sent again (2025-11-25,
    "URL elicitation required"), as questions; none in any other error.
    """
    if not isinstance(error, dict) or error.get("code") != URL_REQUIRED:
        return {}
    links = value_at(error, "data", "elicitations")
    if not isinstance(links, list) or not 0 < len(links) <= MOST_QUESTIONS:
        return {}
    if not all(isinstance(link, dict) and isinstance(link.get("url"), str) for link in links):
        return {}
    asked = ({"mode": "url", **link} for link in links)
    return {
        f"link-{n}": LegacyQuestion(b"", "elicitation/create", dump(each)) for n, each in enumerate(asked)
    }


MOST_QUESTIONS = 64
"""Questions of one request that are open at the same time; more are declined."""


_STATE = re.compile(
    r"call1\.([0-9a-zA-Z._-]{0,64})\.([0-9a-f]{32})\.([0-9]{1,9})\.([0-9]{1,12})\.([0-9a-f]{64})"
)


class CallState(NamedTuple):
    """``owner`` is the replica that has the call, "" where there is one process. ``round`` counts its questions.

    ``due`` is when it is given up, in Unix seconds.
    """

    owner: str
    call: str
    round: int
    due: int

    def sealed(self, key: bytes, bound_to: str) -> str:
        """The text of it, which counts only with what it is ``bound_to``."""
        text = f"call1.{self.owner}.{self.call}.{self.round}.{self.due}"
        return f"{text}.{_seal(key, text, bound_to)}"


def read_state(text: str, key: bytes, bound_to: str) -> CallState | None:
    """The state out of its text; None for one that was changed, was sealed by others, or is bound to something else."""
    found = _STATE.fullmatch(text)
    if found is None:
        return None
    seal = _seal(key, text[: found.start(5) - 1], bound_to)
    if not hmac.compare_digest(seal, found[5]):
        return None
    return CallState(found[1], found[2], int(found[3]), int(found[4]))


def owner_of(text: str | None) -> str | None:
    """The replica that has the call, as a state says that may have been made up; None where it says none."""
    found = None if text is None else _STATE.fullmatch(text)
    return None if found is None else found[1] or None


def _seal(key: bytes, text: str, bound_to: str) -> str:
    return hmac.digest(key, f"{text}\n{bound_to}".encode(), "sha256").hex()
