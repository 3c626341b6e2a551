"""Answers that ask before they answer: the ``InputRequiredResult`` rounds of MCP 2026-07-28 (SEP-2322).

Nothing is kept between the rounds. What a later round must know travels in ``requestState``, signed, because
it comes back through the client.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[Any, Any]
Rounds = types.CallToolResult | types.InputRequiredResult
Params = types.CallToolRequestParams

SINCE = "2026-07-28"
"""The version from which on a server asks by its results."""

_KEY = secrets.token_bytes(32)


def sign(state: str) -> str:
    """``state`` with its signature; :func:`verify` takes it apart again."""
    return f"{state}.{hmac.new(_KEY, state.encode(), hashlib.sha256).hexdigest()}"


def verify(signed: str | None) -> str | None:
    """The state inside ``signed``, None for none. Raises MCPError (-32602) for what :func:`sign` never made."""
    if signed is None:
        return None
    state, _, _ = signed.rpartition(".")
    if not hmac.compare_digest(sign(state).encode(), signed.encode()):
        raise MCPError(types.INVALID_PARAMS, "requestState fails its integrity check")
    return state


def ask(message: str, **properties: str) -> types.ElicitRequest:
    """A form with one required field for each name; the value is the JSON type."""
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(prompt: str, max_tokens: int) -> types.CreateMessageRequest:
    """A request to the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def say(text: str) -> types.CallToolResult:
    """A complete tool result of one text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _content(response: Any) -> dict[str, Any]:
    return (response.content or {}) if isinstance(response, types.ElicitResult) else {}


def sampled(response: Any) -> str:
    """The text that a client's model said."""
    content = response.content if isinstance(response, types.CreateMessageResult) else None
    return content.text if isinstance(content, types.TextContent) else ""


async def elicitation(_: Context, params: Params) -> Rounds:
    """Asks for a name until it has one."""
    name = _content((params.input_responses or {}).get("user_name")).get("name")
    if name is None:
        return types.InputRequiredResult(
            input_requests={"user_name": ask("What is your name?", name="string")}
        )
    return say(f"Hello, {name}!")


async def sampling(_: Context, params: Params) -> Rounds:
    """Asks the client's model for a capital."""
    answer = (params.input_responses or {}).get("capital_question")
    if answer is None:
        question = sample("What is the capital of France?", 100)
        return types.InputRequiredResult(input_requests={"capital_question": question})
    return say(f"The model says: {sampled(answer)}")


async def list_roots(_: Context, params: Params) -> Rounds:
    """Asks for the client's roots and names them."""
    answer = (params.input_responses or {}).get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return types.InputRequiredResult(input_requests={"client_roots": types.ListRootsRequest()})
    return say("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


async def request_state(_: Context, params: Params) -> Rounds:
    """Says state-ok only when its own signed state came back."""
    state = verify(params.request_state)
    if state != "asked" or not params.input_responses:
        requests: types.InputRequests = {"confirm": ask("Please confirm", ok="boolean")}
        return types.InputRequiredResult(input_requests=requests, request_state=sign("asked"))
    return say("state-ok")


async def multiple_inputs(_: Context, params: Params) -> Rounds:
    """Asks for three different things in one round."""
    verify(params.request_state)
    requests: types.InputRequests = {
        "user_name": ask("What is your name?", name="string"),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    answers = params.input_responses or {}
    if requests.keys() - answers.keys():
        return types.InputRequiredResult(input_requests=requests, request_state=sign("asked for three"))
    return say(f"{sampled(answers['greeting'])} {_content(answers['user_name']).get('name')}")


async def multi_round(_: Context, params: Params) -> Rounds:
    """Asks twice, one question a round; the state says which comes next."""
    state = verify(params.request_state)
    answers = params.input_responses or {}
    if state is None or (state == "1" and "step1" not in answers):
        first: types.InputRequests = {"step1": ask("Step 1: What is your name?", name="string")}
        return types.InputRequiredResult(input_requests=first, request_state=sign("1"))
    if state == "1" or "step2" not in answers:
        second: types.InputRequests = {"step2": ask("Step 2: What is your favorite color?", color="string")}
        return types.InputRequiredResult(input_requests=second, request_state=sign("2"))
    return say(f"Your color is {_content(answers['step2']).get('color')}")


async def capabilities(ctx: Context, _: Params) -> Rounds:
    """Asks only for what the client declared it can give."""
    declared = ctx.session.client_capabilities or types.ClientCapabilities()
    requests: types.InputRequests = {}
    if declared.sampling is not None:
        requests["greeting"] = sample("Generate a greeting", 50)
    if declared.elicitation is not None:
        requests["user_name"] = ask("What is your name?", name="string")
    return types.InputRequiredResult(input_requests=requests) if requests else say("Nothing can be asked.")


async def prompt(params: types.GetPromptRequestParams) -> types.GetPromptResult | types.InputRequiredResult:
    """The same round on ``prompts/get``."""
    context = _content((params.input_responses or {}).get("user_context")).get("context")
    if context is None:
        question = ask("What context should the prompt use?", context="string")
        return types.InputRequiredResult(input_requests={"user_context": question})
    text = types.TextContent(type="text", text=f"Use this context: {context}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])


TOOLS: dict[str, Callable[[Context, Params], Awaitable[Rounds]]] = {
    "test_input_required_result_elicitation": elicitation,
    "test_input_required_result_sampling": sampling,
    "test_input_required_result_list_roots": list_roots,
    "test_input_required_result_request_state": request_state,
    "test_input_required_result_multiple_inputs": multiple_inputs,
    "test_input_required_result_multi_round": multi_round,
    "test_input_required_result_tampered_state": request_state,
    "test_input_required_result_capabilities": capabilities,
    "test_streaming_elicitation": elicitation,
}
