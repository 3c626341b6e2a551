"""Files in use: kept from eviction and expiry in this process, and in every other replica that shares the store.

The head of a scope says which replica uses which of its files. To remove one, another replica writes the head too, and
fails if a use was written in between. A use is written once and stays for a moment when it is over, so that calls that
use a file again and again write little.
"""

from __future__ import annotations

from collections.abc import Callable

from adapter.errors import FileGone
from adapter.relay.background import run_to_completion
from adapter.relay.files.file_index import FileIndex, ScopeFiles
from adapter.relay.files.file_transactions import FileTransactions
from adapter.relay.files.head_writer import HeadWriter
from adapter.relay.files.replica_leases import ReplicaLeases
from adapter.relay.files.scope_cache import ScopeCache
from adapter.rules.files.file_records import FileRecord

Release = Callable[[], None]


class FileHolds:
    """Holds files for calls, downloads and rounds."""

    def __init__(
        self,
        scopes: ScopeCache,
        index: FileIndex,
        transactions: FileTransactions,
        writer: HeadWriter,
        leases: ReplicaLeases,
    ) -> None:
        self._scopes = scopes
        self._index = index
        self._transactions = transactions
        self._writer = writer
        self._leases = leases

    async def hold(self, record: FileRecord) -> Release:
        """Keep a file until the function returned is called. Raises FileGone, StoreUnavailable."""
        await self._scopes.know(record.scope)
        release = self._index.hold(record)
        if not self._scopes.is_shared:
            return release
        scope = self._index.open_scope(record.scope)
        if record.key not in scope.announced or not self._leases.is_current:
            try:
                await run_to_completion(self._announce(scope.id, record))
            except BaseException:
                release()
                raise

        def end() -> None:
            release()
            scope.lingering.add(record.key)

        return end

    async def tend(self) -> None:
        """Let other replicas know which files are in use no longer, and find out what came of writes that failed.

        Raises StoreUnavailable, StorageFailed.
        """
        for scope in list(self._index.scopes.values()):
            scope.lingering.clear()
            if scope.doubts:
                await self._scopes.know(scope.id)
            if scope.announced != scope.held.keys():
                await self._transactions.in_turn(scope.id, self._write)

    async def _announce(self, scope_id: str, record: FileRecord) -> None:
        async def announce(scope: ScopeFiles) -> None:
            if record.key not in scope.records:
                raise FileGone()
            if record.key not in scope.announced:
                await self._writer.commit(scope)

        await self._transactions.in_turn(scope_id, announce)

    async def _write(self, scope: ScopeFiles) -> None:
        if scope.announced != scope.held.keys():
            await self._writer.commit(scope)
