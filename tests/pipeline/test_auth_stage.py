"""Who may call a tool: the stage, the plugins with keys and with functions of the user's, and identities as keys."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from adapter.pipeline.auth_stage import (
    AllowAll,
    ApiKey,
    Authenticator,
    AuthStage,
    Custom,
    Plugins,
    api_key,
    fingerprint,
)
from adapter.pipeline.call import AuthRequest, CallClient, Context, PlannedCall
from adapter.pipeline.failures import AuthRefused, ErrorStyle, Outcome, StageFailed
from adapter.pipeline.order import Slot
from adapter.pipeline.plan import Step, ToolPlan
from adapter.rules.access.principals import Caller
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.results.refusals import Expose

KEY = "k-3f9a71"
DIGEST = hashlib.sha256(KEY.encode()).digest()


@dataclass
class UserFunction:
    """A function of the user's, loaded."""

    plain: Callable[..., Any]
    parameters: int = 2
    reference: str = "auth.py#check"

    async def __call__(self, *arguments: Any) -> Any:
        """Async functions are awaited, others have a thread."""
        if asyncio.iscoroutinefunction(self.plain):
            return await self.plain(*arguments)
        return await asyncio.to_thread(self.plain, *arguments)


def request(headers: Mapping[str, str] | None = None) -> AuthRequest:
    return AuthRequest.of("users", "get-user", Caller("alice:1", "mcp", headers or {}))


def call(headers: Mapping[str, str] | None = None) -> PlannedCall:
    """A call whose tool answers with whom it was told of."""

    async def execute(call: PlannedCall) -> Outcome:
        user = call.context.get("user", "nobody")
        return Outcome({"content": [{"type": "text", "text": str(user)}]})

    caller = Caller("alice:1", "mcp", headers or {})
    context = Context.of(AuthRequest.of("users", "get-user", caller))
    return PlannedCall("users", "get-user", {}, execute, context, CallClient(caller))


def stage(plugin: Authenticator, expose: Expose = "message") -> AuthStage:
    return AuthStage("get-user", plugin, expose, structlog.get_logger())


async def answered(planned: PlannedCall) -> Outcome:
    return await planned.execute(planned)


async def told(plugin: Authenticator, headers: Mapping[str, str] | None = None) -> str:
    """The text of the result of a call that passed or failed the stage."""
    plan = ToolPlan("get-user", "script", [Step(Slot.AUTH, "", stage(plugin))], ErrorStyle())
    return str((await plan.walk(call(headers))).result["content"][0]["text"])


# --- the stage ------------------------------------------------------------------------------------------------


async def test_h3_a_plugin_without_an_identity_lets_the_call_go_on() -> None:
    """None is no refusal; the context knows of no user then."""
    planned = call()
    outcome = await stage(AllowAll())(planned, answered)
    assert outcome.result["content"][0]["text"] == "nobody"
    assert planned.identity is None
    assert "user" not in planned.context


async def test_the_identity_is_the_calls_and_the_contexts_user() -> None:
    """What a script does to its user does not change whose limits count."""

    async def check(request: AuthRequest, policy: Mapping[str, Any]) -> Any:
        return {"id": 7, "roles": ["reader"]}

    planned = call()
    await stage(Custom(UserFunction(check), {}))(planned, answered)
    assert planned.identity == planned.context.user == {"id": 7, "roles": ["reader"]}
    planned.context.user["roles"].append("admin")
    assert planned.identity == {"id": 7, "roles": ["reader"]}


async def test_the_request_is_the_callers_whatever_the_context_says() -> None:
    """A factory that puts another request into the context does not decide who is calling."""
    planned = call({"X-API-Key": "wrong"})
    planned.context = planned.context.merged({"request": request({"X-API-Key": KEY})})
    with pytest.raises(StageFailed, match="invalid api key"):
        await stage(ApiKey({DIGEST: None}))(planned, answered)


async def test_a_refusal_may_say_when_to_come_again() -> None:
    """Seconds and reason reach the result's _meta."""

    class Closed:
        name = "closed"

        async def __call__(self, request: AuthRequest) -> None:
            raise AuthRefused("unauthorized: come again", "timeout", retry_after=5)

    with pytest.raises(StageFailed) as failed:
        await stage(Closed())(call(), answered)
    assert failed.value.meta() == {"stage": "auth", "code": -32000, "reason": "timeout", "retry_after": 5}


async def test_a_cancelled_call_is_no_refusal() -> None:
    """Nobody is told that a call was refused which was given up."""
    begun = asyncio.Event()

    async def check(request: AuthRequest, policy: Mapping[str, Any]) -> None:
        begun.set()
        await asyncio.Event().wait()

    asking = asyncio.ensure_future(stage(Custom(UserFunction(check), {}))(call(), answered))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


# --- api_key --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [{}, {"X-API-Key": ""}, {"X-API-Key": KEY + "x"}, {"X-API-Key": "\udcff"}, {"Authorization": KEY}],
)
async def test_h25_any_other_is_refused(headers: dict[str, str]) -> None:
    """With one sentence for a wrong key and for none."""
    assert await told(api_key({"value": KEY}, {}), headers) == "unauthorized: invalid api key"


async def test_h25_the_environment_has_the_key_of_a_policy_without_one() -> None:
    """It counts where the policy has none, and only there."""
    environ = {"HYPERTERSE_API_KEY": f"{KEY}\n"}
    assert await api_key({}, environ)(request({"X-API-Key": KEY})) is not None
    assert await api_key({"value": " "}, environ)(request({"X-API-Key": KEY})) is not None
    with pytest.raises(AuthRefused, match="invalid api key"):
        await api_key({"value": "another"}, environ)(request({"X-API-Key": KEY}))


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": ""}, {"X-API-Key": KEY}])
async def test_h25_without_any_key_everybody_is_refused(headers: dict[str, str]) -> None:
    """It fails closed, also for who sends the empty key that is expected nowhere."""
    plugin = api_key({}, {"HYPERTERSE_API_KEY": ""})
    assert plugin.keyless
    assert await told(plugin, headers) == "api_key plugin is configured but no expected key is set"


async def test_w3_there_may_be_several_keys_and_digests_of_keys() -> None:
    """So that keys are replaced one by one, and a file need not hold any."""
    plugin = api_key({"value": "a", "values": ["b", "c"], "sha256": [DIGEST.hex().upper()]}, {})
    names = [await plugin(request({"X-API-Key": sent})) for sent in ("a", "b", "c", KEY)]
    assert len(set(names)) == 4
    assert names[3] == f"key:{DIGEST.hex()[:16]}"
    with pytest.raises(AuthRefused):
        await plugin(request({"X-API-Key": DIGEST.hex()}))


NAMED = {"keys": [{"name": "ops", "value": KEY}, {"name": "ci", "sha256": hashlib.sha256(b"b").hexdigest()}]}


async def test_v22_a_key_has_the_name_of_whose_it_is() -> None:
    """Given itself or by its digest, beside keys without a name; one that is among both has its name."""
    plugin = api_key({**NAMED, "value": KEY, "values": ["c"]}, {"HYPERTERSE_API_KEY": "d"})
    names = [await plugin(request({"X-API-Key": sent})) for sent in (KEY, "b", "c")]
    assert names == ["ops", "ci", f"key:{hashlib.sha256(b'c').hexdigest()[:16]}"]
    with pytest.raises(AuthRefused):
        await plugin(request({"X-API-Key": "d"}))
    assert KEY not in repr(plugin)


@pytest.mark.parametrize(
    ("identity", "principal"),
    [("ann", "ann"), ({"sub": "ann"}, "ann"), ({"id": 7}, "alice:1"), (None, "alice:1")],
)
async def test_the_request_is_of_whom_a_plugin_found(identity: Any, principal: str) -> None:
    """Its name: a text, or the subject of claims; who has none is known by what the adapter itself was sent."""

    async def check(request: AuthRequest, policy: Mapping[str, Any]) -> Any:
        return identity

    planned = call()
    await stage(Custom(UserFunction(check), {}))(planned, answered)
    assert planned.context.request.principal == principal


async def test_v22_every_key_is_compared_whichever_is_right() -> None:
    """How long a refusal takes depends on the number of keys alone, since all that is compared are digests."""
    plugin = ApiKey({DIGEST: None, hashlib.sha256(b"other").digest(): None})
    assert await plugin(request({"X-API-Key": KEY})) != await plugin(request({"X-API-Key": "other"}))
    with pytest.raises(ValueError, match="32 bytes"):
        ApiKey({KEY.encode(): None})
    assert KEY not in repr(plugin)
    assert DIGEST.hex() not in repr(plugin)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({"value": "{{ env.API_KEY }}"}, "policy.value holds a placeholder that was not resolved"),
        ({"values": ["a", "${KEY}"]}, "policy.values holds a placeholder that was not resolved"),
        ({"sha256": "${HASH}"}, "policy.sha256 holds a placeholder that was not resolved"),
        ({"key": "a"}, "policy has no key key; known keys: keys, sha256, value, values"),
        ({"value": 12345}, "policy.value is a text; write it in quotes"),
        ({"values": [1]}, "policy.values is a text or a list of texts; write each in quotes"),
        ({"sha256": "abc"}, "policy.sha256 must be a SHA-256 digest of 64 hexadecimal digits"),
        ({"sha256": "abcd"}, "policy.sha256 must be a SHA-256 digest of 64 hexadecimal digits"),
        ({"keys": "a"}, "policy.keys is a list of mappings with name, value, sha256"),
        (
            {"keys": [{"value": "a"}]},
            "policy.keys[0].name must be a text of 1 to 128 characters: the owner of the key",
        ),
        (
            {"keys": [{"name": "x" * 129, "value": "a"}]},
            "policy.keys[0].name must be a text of 1 to 128 characters: the owner of the key",
        ),
        ({"keys": [{"name": "a"}]}, "policy.keys[0] must have a name, and either a value or a sha256"),
        (
            {"keys": [{"name": "a", "value": "b", "sha256": "0" * 64}]},
            "policy.keys[0] must have a name, and either a value or a sha256",
        ),
        (
            {"keys": [{"name": "a", "sha256": "b"}]},
            "policy.keys[0].sha256 must be a SHA-256 digest of 64 hexadecimal digits",
        ),
        (
            {"keys": [{"name": "a", "key": "b"}]},
            "policy.keys[0] has no key key; known keys: name, sha256, value",
        ),
        (
            {"keys": [{"name": n, "value": "b"} for n in "xy"]},
            "policy.keys[1] has the same key as another name",
        ),
        (
            {"keys": [{"name": "a", "value": "${B}"}]},
            "policy.keys.value holds a placeholder that was not resolved",
        ),
    ],
)
def test_w3_a_policy_that_cannot_be_meant_ends_the_start(policy: dict[str, Any], sentence: str) -> None:
    """A placeholder is never taken for the key, and no sentence shows a value."""
    with pytest.raises(ValueError, match="auth plugin") as refused:
        api_key(policy, {})
    assert str(refused.value) == f"auth plugin 'api_key': {sentence}"


# --- functions of the user's ----------------------------------------------------------------------------------


async def test_h25_functions_of_the_users_are_plugins_too() -> None:
    """Async or not; a plain function runs in a thread and sees the caller's context variables."""
    tenant = contextvars.ContextVar[str]("tenant")
    tenant.set("north")

    def plain_check(request: AuthRequest, policy: Mapping[str, Any]) -> Any:
        return f"{tenant.get()}/{request.headers['x-user']}"

    async def async_check(request: AuthRequest) -> Any:
        return {"name": request.headers["x-user"]}

    asked = request({"X-User": "ann"})
    assert await Custom(UserFunction(plain_check), {})(asked) == "north/ann"
    assert await Custom(UserFunction(async_check, parameters=1), {})(asked) == {"name": "ann"}


def failing(error: Exception) -> Custom:
    async def check(request: AuthRequest, policy: Mapping[str, Any]) -> None:
        raise error

    return Custom(UserFunction(check), {})


async def test_a_users_own_sentence_is_told_verbatim() -> None:
    """What is meant for callers has no prefix."""
    assert await told(failing(ToolUserError("Ask Ann for access."))) == "Ask Ann for access."


async def test_any_other_exception_refuses_and_is_told_with_care() -> None:
    """Its first line without secrets; the log has the rest."""
    plugin = failing(RuntimeError("no row for password=hunter2\nTraceback"))
    with capture_logs() as logged:
        assert await told(plugin) == "unauthorized: no row for password=[redacted]"
    assert [(entry["log_level"], entry["plugin"], entry["tool"]) for entry in logged] == [
        ("warning", "auth.py#check", "get-user"),
        ("debug", "auth.py#check", "get-user"),
    ]


async def test_safe_exposure_says_only_that_and_where() -> None:
    """The trace's id is what its reader can ask with."""
    planned = call()
    planned.context = planned.context.merged({"trace_id": "4bf9"})
    with pytest.raises(StageFailed) as failed:
        await stage(failing(RuntimeError("db is at 10.0.0.7")), "safe")(planned, answered)
    assert str(failed.value) == "unauthorized: The call failed. Trace: 4bf9"


@pytest.mark.parametrize("returned", [False, True, 0, ["ann"]])
async def test_what_is_no_identity_lets_nobody_in(returned: Any) -> None:
    """A function that returns False means no, and one that returns True has not said who."""

    async def check(request: AuthRequest, policy: Mapping[str, Any]) -> Any:
        return returned

    assert (await told(Custom(UserFunction(check), {}))).startswith(
        f"unauthorized: the auth plugin returned {type(returned).__name__}: it must return"
    )


async def test_a_function_that_hangs_refuses() -> None:
    """A call does not wait for ever to be let in."""

    async def check(request: AuthRequest, policy: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    plugin = Custom(UserFunction(check), {}, patience=0.01)
    assert await told(plugin) == "unauthorized: the auth plugin took longer than 0.01 s"
    assert await told(failing(TimeoutError("its database was slow"))) == "unauthorized: its database was slow"


def test_w3_placeholders_in_the_policy_of_a_function_end_the_start() -> None:
    """At any depth."""
    with pytest.raises(ValueError, match=r"policy\.db\.password holds a placeholder"):
        Custom(UserFunction(len), {"db": {"password": "{{ env.DB }}"}})


# --- by name --------------------------------------------------------------------------------------------------


async def never(url: str) -> bytes:
    raise AssertionError(url)


@pytest.fixture
def plugins() -> Plugins:
    return Plugins({"HYPERTERSE_API_KEY": KEY}, never, structlog.get_logger())


def test_w4_an_unknown_plugin_is_known_at_the_start(plugins: Plugins) -> None:
    """And a policy that the named one has no use for as well."""
    with pytest.raises(ValueError, match=r"^auth plugin 'jwt_baerer' is not registered$"):
        plugins.built_in("jwt_baerer", {})
    with pytest.raises(ValueError, match="policy has no key value"):
        plugins.built_in("allow_all", {"value": "x"})


async def test_h25_plugins_go_by_their_name_in_any_case(plugins: Plugins) -> None:
    """Trimmed; and tools with one policy share one plugin."""
    assert plugins.built_in(" Allow_All", {}).name == "allow_all"
    assert plugins.built_in("API_KEY", {}) is plugins.built_in("api_key", {})
    assert plugins.built_in("api_key", {}) is not plugins.built_in("api_key", {"value": "x"})
    assert await plugins.built_in("api_key", {})(request({"X-API-Key": KEY})) is not None


# --- identities as keys ---------------------------------------------------------------------------------------


def test_fingerprints_tell_identities_apart() -> None:
    """Whatever they are; the order of members is not a difference."""
    identities: list[Any] = ["ann", "bob", {"id": "ann"}, {"id": 1}, {"id": "1"}, {"id": "ﬁ"}, {"id": "fi"}]
    assert len({fingerprint(identity) for identity in identities}) == len(identities)
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint("ann") == "text:ann"


def test_a_renewed_token_is_the_same_caller() -> None:
    """Of one subject; other claims count, and without a subject all do."""
    before = {"sub": "ann", "scope": "read", "exp": 1, "iat": 0, "jti": "a"}
    assert fingerprint(before) == fingerprint({**before, "exp": 9, "iat": 8, "jti": "b"})
    assert fingerprint(before) != fingerprint({**before, "scope": "read write"})
    assert fingerprint(before) != fingerprint({**before, "sub": "bob"})
    assert fingerprint({"jti": "a"}) != fingerprint({"jti": "b"})
