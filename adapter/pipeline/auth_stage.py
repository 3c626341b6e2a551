"""The check of who may call a tool: the stage that asks a plugin, and the built-in plugins."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from structlog.typing import FilteringBoundLogger

from adapter.pipeline.call import AuthRequest, Context, Forward, Function, PlannedCall
from adapter.pipeline.failures import AuthRefused, Outcome, StageFailed
from adapter.rules.access.token_claims import AuthPolicy, refuse_placeholders
from adapter.rules.results.outcomes import ToolUserError
from adapter.rules.results.refusals import Expose, exposed
from adapter.rules.text.json_values import plain

if TYPE_CHECKING:
    from adapter.pipeline.key_set import Fetch, KeySet


API_KEY_HEADER = "x-api-key"
API_KEY_VARIABLE = "HYPERTERSE_API_KEY"
"""The environment variable with the key of those ``api_key`` plugins whose policy holds none."""

LONGEST_NAME = 128
"""Characters of the name of an API key."""

PATIENCE = 10.0
"""Seconds that a function of the user's has to decide about a call."""

_PER_TOKEN = frozenset(("exp", "iat", "nbf", "jti"))


class Authenticator(Protocol):
    """A plugin that decides who is calling."""

    @property
    def name(self) -> str:
        """As the configuration calls it."""

    async def __call__(self, request: AuthRequest) -> Any:
        """The caller's identity, a text or a mapping of JSON values, or None for somebody who may stay unnamed.

        Raises AuthRefused, and ToolUserError with a sentence for the caller. Whatever else it raises refuses the call
        too.
        """


@dataclass(eq=False)
class AuthStage:
    """The stage of ``auth``: a call goes on only if ``authenticator`` lets its caller in.

    The result is the call's ``identity``, and ``user`` in the context that scripts see.
    """

    tool: str
    authenticator: Authenticator
    expose: Expose
    log: FilteringBoundLogger

    def __post_init__(self) -> None:
        self._log = self.log.bind(tool=self.tool, plugin=self.authenticator.name)

    def __repr__(self) -> str:
        return f"<AuthStage by {self.authenticator.name!r} for {self.tool!r}>"

    async def __call__(self, call: PlannedCall, forward: Forward) -> Outcome:
        """See PlanStage."""
        identity = await self._identity(call)
        if identity is not None:
            call.identity = identity
            call.context = call.context.merged(self._told(identity, call.context))
        return await forward(call)

    def _told(self, identity: Any, context: Context) -> dict[str, Any]:
        """The part of an identity that the user's code may know: ``user``, and whose request it is."""
        # A copy: whose limits and cached results count is nothing that a script can change.
        user = plain(identity)
        name = user if isinstance(user, str) else user.get("sub")
        request = context.get("request")
        if not (isinstance(name, str) and isinstance(request, AuthRequest)):
            return {"user": user}
        return {"user": user, "request": AuthRequest({**request, "principal": name})}

    async def _identity(self, call: PlannedCall) -> Any:
        # Not the context's request, since whoever adds to a context may have put another there.
        request = AuthRequest.of(call.server, call.tool, call.client.caller)
        try:
            return await self.authenticator(request)
        except AuthRefused as refused:
            self._log.info("a call was refused", why=str(refused))
            raise StageFailed("auth", str(refused), refused.reason, retry_after=refused.retry_after) from None
        except ToolUserError as sentence:
            self._log.info("a call was refused", why=str(sentence))
            raise StageFailed("auth", str(sentence)) from None
        except Exception as error:
            # To raise is how a plugin refuses; whether this is that or a defect, the log's readers know.
            self._log.warning("a call was refused by an exception", why=exposed(error))
            self._log.debug("where the plugin raised it", exc_info=True)
            why = exposed(error, expose=self.expose, trace_id=call.context.get("trace_id"))
            raise StageFailed("auth", f"unauthorized: {why}") from None


def fingerprint(identity: Any) -> str:
    """Return a text that stands for an identity in the keys of rates and of cached results.

    A text is never equal to a mapping's. Claims that differ between two tokens of one subject do not count: a renewed
    token is the same identity.
    """
    if isinstance(identity, str):
        return f"text:{identity}"
    members = plain(identity)
    if isinstance(members, dict) and isinstance(members.get("sub"), str):
        members = {name: value for name, value in members.items() if name not in _PER_TOKEN}
    # As in the cache's keys not the canonical form of ``rules``, to which texts that only look alike are one.
    return "sha256:" + hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()


# --- the plugins ----------------------------------------------------------------------------------------------


class AllowAll:
    """Lets everybody in. The settings name it, so that a missing plugin cannot be an oversight."""

    name = "allow_all"

    async def __call__(self, request: AuthRequest) -> None:
        """See Authenticator: nobody has a name."""


class ApiKey:
    """Lets a caller in that sends one of its keys as ``X-API-Key``. Keys are given by their SHA-256 digests, with
    names.

    The identity is the name of the key; without a name it is ``key:`` and the first 16 hex digits of the digest.
    Without any key everybody is refused.
    """

    name = "api_key"

    def __init__(self, keys: Mapping[bytes, str | None]) -> None:
        """Raises ValueError for a digest that is not 32 bytes."""
        if any(len(key) != hashlib.sha256().digest_size for key in keys):
            raise ValueError("an API key is given by its SHA-256 digest of 32 bytes")
        self._keys = {key: name or f"key:{key.hex()[:16]}" for key, name in keys.items()}

    def __repr__(self) -> str:
        return f"<ApiKey: {len(self._keys)} keys>"

    @property
    def keyless(self) -> bool:
        """Tell whether it lets nobody in, for a warning at the start."""
        return not self._keys

    async def __call__(self, request: AuthRequest) -> str:
        """See Authenticator. How long it takes tells nothing about any key."""
        if self.keyless:
            raise AuthRefused("api_key plugin is configured but no expected key is set")
        digest = _digest(request["headers"].get(API_KEY_HEADER, "").strip())
        # Every key is compared, whichever was right.
        right = [name for key, name in self._keys.items() if hmac.compare_digest(key, digest)]
        if not right:
            raise AuthRefused("unauthorized: invalid api key")
        return right[0]


class Custom:
    """Asks a function of the user's, called with the request and the policy.

    It raises to refuse, and returns an identity or None. It has ``patience`` seconds.
    """

    def __init__(self, function: Function, policy: Mapping[str, Any], patience: float = PATIENCE) -> None:
        """Raises ValueError for a policy with placeholders that were not resolved."""
        refuse_placeholders(function.reference, policy)
        self.name = function.reference
        self._function = function
        self._policy = dict(policy)
        self._patience = patience

    async def __call__(self, request: AuthRequest) -> Any:
        """See Authenticator. Raises TypeError for what is neither text, mapping nor None: ``False`` lets nobody in."""
        arguments = (request, dict(self._policy))[: self._function.parameters]
        scope = asyncio.timeout(self._patience)
        try:
            async with scope:
                identity = await self._function(*arguments)
        except TimeoutError:
            if not scope.expired():
                raise
            raise AuthRefused(
                f"unauthorized: the auth plugin took longer than {self._patience:g} s", "timeout"
            ) from None
        if identity is not None and not isinstance(identity, str | Mapping):
            raise TypeError(
                f"the auth plugin returned {type(identity).__name__}: it must return a text, a mapping or "
                "None, or raise an exception to refuse"
            )
        return plain(identity)


def api_key(policy: Mapping[str, Any], environ: Mapping[str, str]) -> ApiKey:
    """Return the plugin of a policy. Keys are in ``value``, ``values``, ``sha256`` (one or a list of hex digests) and
    ``keys`` (a list of ``{name, value}`` and ``{name, sha256}``); without any of them in HYPERTERSE_API_KEY.

    Raises ValueError.
    """
    read = AuthPolicy(ApiKey.name, policy, ("value", "values", "sha256", "keys"))
    keys = dict(_named_keys(read))
    for key in _nameless_keys(read, "policy"):
        keys.setdefault(key, None)
    if not keys and (expected := environ.get(API_KEY_VARIABLE, "").strip()):
        keys[_digest(expected)] = None
    return ApiKey(keys)


def _named_keys(read: AuthPolicy) -> Iterator[tuple[bytes, str | None]]:
    seen: dict[bytes, str] = {}
    for place, entry in read.entries("keys", ("name", "value", "sha256")):
        name, found = entry.text("name"), list(_nameless_keys(entry, place))
        if name is None or not name.isprintable() or len(name) > LONGEST_NAME:
            raise read.refused(
                f"{place}.name must be a text of 1 to {LONGEST_NAME} characters: the owner of the key"
            )
        if len(found) != 1:
            raise read.refused(f"{place} must have a name, and either a value or a sha256")
        if seen.setdefault(found[0], name) != name:
            raise read.refused(f"{place} has the same key as another name")
        yield found[0], name


def _nameless_keys(read: AuthPolicy, place: str) -> Iterator[bytes]:
    """The digests of the keys of a policy, or of one entry of its ``keys``."""
    value = read.text("value")
    yield from map(_digest, [*([value] if value else []), *read.texts("values")])
    for text in read.texts("sha256"):
        try:
            key = bytes.fromhex(text)
        except ValueError:
            raise read.refused(f"{place}.sha256 must be a SHA-256 digest of 64 hexadecimal digits") from None
        if len(key) != hashlib.sha256().digest_size:
            raise read.refused(f"{place}.sha256 must be a SHA-256 digest of 64 hexadecimal digits")
        if key == _digest(""):
            # What a pipeline makes of a variable that is not set, and what whoever sends no key would match.
            raise read.refused(f"{place}.sha256 is the digest of an empty text, which is not a key")
        yield key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


BUILT_IN = ("allow_all", "api_key", "jwt")


class Plugins:
    """Makes plugins of policies. Tools of one policy share one plugin, and policies of one URL its keys."""

    def __init__(self, environ: Mapping[str, str], fetch: Fetch, log: FilteringBoundLogger) -> None:
        self._environ = environ
        self._fetch = fetch
        self._log = log
        self._made: dict[tuple[str, bytes], Authenticator] = {}
        self._key_sets: dict[str, KeySet] = {}

    def built_in(self, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        """Return the plugin of that name, in any case. Raises ValueError for an unknown name and for an unusable
        policy.
        """
        name = plugin.strip().lower()
        # A digest: policies hold secrets, of which the plugins keep no more than they need.
        spelled = json.dumps(policy, sort_keys=True, default=repr).encode()
        key = (name, hashlib.sha256(spelled).digest())
        if key not in self._made:
            self._made[key] = self._make(name, plugin, policy)
        return self._made[key]

    def _make(self, name: str, plugin: str, policy: Mapping[str, Any]) -> Authenticator:
        if name == "allow_all":
            AuthPolicy(name, policy, ())
            return AllowAll()
        if name == "api_key":
            return api_key(policy, self._environ)
        if name == "jwt":
            # Cryptography takes eleven megabytes, of those who ask for it.
            from adapter.pipeline.jwt import Jwt

            return Jwt.of(policy, self._key_set)
        raise ValueError(f"auth plugin {plugin!r} is not registered")

    def _key_set(self, url: str) -> KeySet:
        from adapter.pipeline.key_set import KeySet

        if url not in self._key_sets:
            self._key_sets[url] = KeySet(url, self._fetch, self._log)
        return self._key_sets[url]
