"""Rows of the state store that only adapters with the same key can read or make: AES-GCM over each value."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from adapter.state.port import Row, Store, StoreListener

_FORMAT = b"1"
_NONCE = 12
_INFO = b"mcp-file-adapter grants "


def derived(secret: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose (RFC 5869)."""
    return HKDF(SHA256(), 32, salt=None, info=_INFO + purpose.encode()).derive(secret)


class StoreSeal(StoreListener):
    """The seal of all replicas over one ``store``. What is sealed for one place does not open for another.

    ``secret`` gives the secret of all replicas; it is told the one that is held, None for none. It is asked by ``open``
    at first, and when the store may be another one. All coroutines raise StoreUnavailable.
    """

    def __init__(self, store: Store, secret: Callable[[bytes | None], Awaitable[bytes]]) -> None:
        self.store = store
        self._secret = secret
        self._held: bytes | None = None
        self._doubts = 0
        self._read_at: int | None = None
        self._cipher: AESGCM | None = None
        self._names = b""
        store.listeners.append(self)

    async def open(self) -> None:
        """Derive the keys, unless that is done."""
        doubts = self._doubts
        if self._read_at == doubts:
            return
        secret = await self._secret(self._held)
        self._read_at = doubts
        if secret != self._held:
            self._held = secret
            self._names = derived(secret, "names")
            self._cipher = AESGCM(derived(secret, "rows"))

    def rows_unknown(self) -> None:
        """See StoreListener."""
        self._doubts += 1

    @property
    def name_key(self) -> bytes:
        """The key from which names follow that nobody can guess. ``open`` comes first."""
        assert self._names, "the keys are derived first"
        return self._names

    def sealed(self, plain: bytes, place: bytes) -> bytes:
        """The value as others may keep it. ``open`` comes first."""
        assert self._cipher is not None, "open comes first"
        # Random nonces of 96 bits under one key: far below 2**32 values are sealed (NIST SP 800-38D, 8.3).
        nonce = os.urandom(_NONCE)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, plain, place)

    def unsealed(self, value: bytes, place: bytes) -> bytes | None:
        """The value that was sealed; None where it was not sealed for this place with this key, or before ``open``."""
        if self._cipher is None or value[:1] != _FORMAT or len(value) <= _NONCE:
            return None
        try:
            return self._cipher.decrypt(value[1 : _NONCE + 1], value[_NONCE + 1 :], place)
        except InvalidTag:
            return None


class SealedRows(StoreSeal):
    """Rows whose values are sealed. A value belongs to its table and key."""

    async def get(self, table: str, key: str) -> tuple[Row, bytes] | None:
        """The row and what was sealed in it; None for no row, and for one that this key does not open."""
        row = await self.store.get(table, key)
        if row is None:
            return None
        plain = await self.opened(table, row)
        return None if plain is None else (row, plain)

    async def opened(self, table: str, row: Row) -> bytes | None:
        """The value that was sealed in a row; None where it was not sealed for this place with this key."""
        await self.open()
        return self.unsealed(row.value, _place(table, row.key))

    async def put(
        self, table: str, key: str, plain: bytes, *, expected: int | None = None, due: float | None = None
    ) -> Row:
        """Seal and write; as ``Store.put``. Raises Conflict."""
        await self.open()
        value = self.sealed(plain, _place(table, key))
        return await self.store.put(table, key, value, expected=expected, due=due)

    async def delete(self, table: str, key: str, *, expected: int | None = None) -> bool:
        """As ``Store.delete``. Raises Conflict."""
        return await self.store.delete(table, key, expected=expected)


def _place(table: str, key: str) -> bytes:
    return f"{table}\0{key}".encode()
