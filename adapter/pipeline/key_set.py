"""The public keys of an issuer, fetched from its URL and cached (RFC 7517 §5)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jwt
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.exceptions import InvalidKeyError, PyJWTError
from structlog.typing import FilteringBoundLogger

from adapter.pipeline.failures import AuthRefused
from adapter.rules.access.token_claims import read_object
from adapter.rules.results.refusals import exposed

OF_SECRETS = ("HS256", "HS384", "HS512")
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
OF_PUBLIC_KEYS = (*_OF_RSA, *_OF_CURVES.values(), "EdDSA")

_LEAST_RSA_BITS = 2048
"""RFC 7518 §3.3 and §3.5."""

_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")
_PRIVATE_MEMBERS = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


@dataclass(slots=True, eq=False)
class SigningKey:
    """``material`` as PyJWT takes it; ``algorithms`` are all that it may be used with.

    ``withdrawn``: its issuer no longer publishes it, so what it has signed counts for nothing.
    """

    material: Any
    algorithms: frozenset[str]
    kid: str | None = None
    withdrawn: bool = False


class Keys(Protocol):
    """The place where the key of a token is found."""

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """The key that goes by ``kid``, or the only one there is where a token names none, if it is for ``algorithm``.

        Raises AuthRefused.
        """


class OneKey:
    """A key set of one key; the key id in a token does not matter."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:  # noqa: ARG002  (see above: of kid)
        """See Keys."""
        return self._key if algorithm in self._key.algorithms else None


def of_secret(secret: str) -> SigningKey:
    """Return the key of an HMAC. Raises ValueError for a text that is no secret, and for one that is shorter than the
    digest (RFC 7518 §3.2), since it could be guessed from any token.
    """
    material = secret.encode("utf-8")
    fitting = frozenset(name for name in OF_SECRETS if len(material) * 8 >= int(name[2:]))
    if not fitting:
        raise ValueError("is shorter than the 32 bytes that HS256 requires")
    try:
        jwt.get_algorithm_by_name("HS256").prepare_key(material)
    except InvalidKeyError:
        raise ValueError("is a public key or a certificate, not a secret") from None
    return SigningKey(material, fitting)


def of_pem(pem: str) -> SigningKey:
    """The public key in a PEM text, also where line ends came as ``\\n`` out of a variable. Raises ValueError."""
    try:
        material = load_pem_public_key(pem.replace("\\n", "\n").encode("utf-8"))
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("is not a public key in PEM form") from None
    return SigningKey(material, algorithms_of(material))


def of_jwk(member: Mapping[str, Any]) -> SigningKey | None:
    """Return the key of a member of a JWK set (RFC 7517 §4), None if signatures cannot be checked with it.

    Symmetric keys and keys with their private part are left out: everybody may read the set.
    """
    if is_disclosed(member):
        return None
    operations = member.get("key_ops")
    if member.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    if member.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        # Only what is public: with the rest it would be a private key, and with "alg" one that PyJWT might not know.
        material = jwt.PyJWK({name: member[name] for name in _PUBLIC_MEMBERS if name in member}).key
        fitting = algorithms_of(material)
    except (PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return None
    if (only := member.get("alg")) is not None:
        fitting &= {only} if isinstance(only, str) else frozenset()
    kid = member.get("kid")
    return SigningKey(material, fitting, kid if isinstance(kid, str) else None) if fitting else None


def is_disclosed(member: Mapping[str, Any]) -> bool:
    """Tell whether a member of a JWK set holds a private part, so that anybody can sign with it."""
    return not _PRIVATE_MEMBERS.isdisjoint(member)


def algorithms_of(material: object) -> frozenset[str]:
    """The algorithms that a public key is for. Raises ValueError with a sentence about it."""
    if isinstance(material, RSAPublicKey):
        if material.key_size < _LEAST_RSA_BITS:
            raise ValueError(f"is an RSA key of {material.key_size} bits; the minimum is {_LEAST_RSA_BITS}")
        return frozenset(_OF_RSA)
    if isinstance(material, EllipticCurvePublicKey) and material.curve.name in _OF_CURVES:
        return frozenset((_OF_CURVES[material.curve.name],))
    if isinstance(material, Ed25519PublicKey | Ed448PublicKey):
        return frozenset(("EdDSA",))
    raise ValueError("is a kind of key that cannot sign tokens")


FRESH = 600.0
"""Seconds for which fetched keys are used without asking again."""

LASTING = 86_400.0
"""Seconds for which they are used at most while nothing newer can be had: an outage lasts hours, and longer a key that
leaked must not be good because nobody can say so.
"""

PAUSE = 60.0
"""Seconds between two fetches, so that tokens with made-up key ids cannot make the adapter ask all day."""

PAUSE_WITHOUT_KEYS = 5.0
"""The same where nobody can be let in until there are keys."""

PATIENCE = 1.0
"""Seconds that a caller waits for newer keys where those that are there hold."""

LARGEST = 1 << 20
"""Bytes of a document that are read."""

MOST_KEYS = 256
"""Keys of a document; issuers publish a handful. To read the points of curves takes 0.2 ms each."""


Fetch = Callable[[str], Awaitable[bytes]]
"""Gets the document at a URL, or raises whatever tells why it cannot."""


@dataclass(eq=False)
class KeySet:
    """Keys at ``url``. ``clock`` gives seconds that never go back.

    An unknown key may be new, so it causes another fetch. All callers wait for the same fetch, and it goes on when
    they leave: more callers do not make more fetches.
    """

    url: str
    fetch: Fetch
    log: FilteringBoundLogger
    clock: Callable[[], float] = time.monotonic
    _keys: dict[bytes, SigningKey] = field(default_factory=dict, init=False)
    """By how the document spells them."""
    _renewal: asyncio.Future[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._fetched = self._next = -math.inf

    def __repr__(self) -> str:
        # Not the URL, whose query may hold a key of another kind.
        return f"<KeySet: {len(self._keys)} keys>"

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """See Keys. Raises AuthRefused where there are no keys to be had."""
        # Where somebody asks for newer ones already, those that are there will do: an issuer that does not answer
        # holds one call up, not all.
        if self._age() >= (FRESH if self._renewal is None else LASTING):
            await self._renew(PATIENCE if self._age() < LASTING else None)
        if self._age() >= LASTING:
            raise AuthRefused(
                "unauthorized: the keys for checking tokens cannot be fetched now",
                retry_after=PAUSE_WITHOUT_KEYS,
            )
        key = self._known(kid, algorithm)
        if key is None and (self._renewal is not None or self.clock() >= self._next):
            await self._renew()
            key = self._known(kid, algorithm)
        return key

    def unchanged_for(self) -> float:
        """Seconds for which nobody needs to ask again for a key that was just found: they are not fetched anew before,
        unless for an unknown one. At least one.
        """
        return max(max(self._fetched + FRESH, self._next) - self.clock(), 1.0)

    def _age(self) -> float:
        return self.clock() - self._fetched

    def _known(self, kid: str | None, algorithm: str) -> SigningKey | None:
        fitting = [
            key
            for key in self._keys.values()
            if algorithm in key.algorithms and (kid is None or key.kid == kid)
        ]
        # Of several a token has to say which; two of one id are a mistake of the issuer's, and the first is it.
        return fitting[0] if fitting and (kid is not None or len(fitting) == 1) else None

    async def _renew(self, patience: float | None = None) -> None:
        """Wait until the keys have been fetched, or for so many seconds, unless that was tried a moment ago."""
        if self._renewal is None:
            if self.clock() < self._next:
                return
            self._renewal = asyncio.ensure_future(self._fetched_anew())
        # It goes on when the caller leaves.
        await asyncio.wait((self._renewal,), timeout=patience)

    async def _fetched_anew(self) -> None:
        try:
            # In a thread, for a document may hold more than the loop has time for.
            members, disclosed = await asyncio.to_thread(read_key_set, await self.fetch(self.url))
        except Exception as error:
            # Whatever the network or the document are at fault for; the keys that are there have to do.
            self.log.warning("the keys of an issuer could not be fetched", why=exposed(error))
        else:
            if disclosed:
                self.log.warning("an issuer publishes private keys, which are not used", keys=disclosed)
            # A key that is still there stays the same object, and what was checked with it stays checked.
            before = self._keys
            self._keys = {text: before.get(text) or key for text, key in members.items()}
            self._fetched = self.clock()
            for text in before.keys() - members.keys():
                before[text].withdrawn = True
        finally:
            self._next = self.clock() + (PAUSE if self._age() < LASTING else PAUSE_WITHOUT_KEYS)
            self._renewal = None


def read_key_set(document: bytes) -> tuple[dict[bytes, SigningKey], int]:
    """Return the usable keys of a JWK set, and the number of private keys in it. Raises ValueError for no JWK set."""
    if len(document) > LARGEST:
        raise ValueError(f"the document is larger than {LARGEST >> 20} MiB")
    listed = read_object(document).get("keys")
    if not isinstance(listed, list):
        raise ValueError("the document is not a JWK set")
    if len(listed) > MOST_KEYS:
        raise ValueError(f"the document has more than {MOST_KEYS} keys")
    members = [member for member in listed if isinstance(member, Mapping)]
    keys: dict[bytes, SigningKey] = {}
    for member in members:
        if (key := of_jwk(member)) is not None:
            keys.setdefault(orjson.dumps(member, option=orjson.OPT_SORT_KEYS), key)
    return keys, sum(map(is_disclosed, members))
