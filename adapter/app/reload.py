"""Changed settings, put into force while the adapter serves.

Servers that did not change keep all they have. One that changed, or is new, is built as at the start and takes the
place of the old one in one turn of the event loop; the old one ends when nobody uses it any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from adapter.app.build import App, build_mounts
from adapter.app.run import FAREWELL
from adapter.app.servers import Servers
from adapter.app.tools import locks
from adapter.edge.health import SettingsState
from adapter.rules.tools.catalogue import Catalogue
from adapter.settings.changes import digests_of_mounts, digests_of_servers, lasting_digests
from adapter.settings.file.changed import changed_keys
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from adapter.settings.servers.server import ServerSettings

if TYPE_CHECKING:
    # Only the console has any.
    from adapter.relay.http_api.sessions import HttpSessions
    from adapter.relay.mounts.merged import MergedMount


class SettingsDigests(NamedTuple):
    """Digests of servers, of merged mounts, and of what lasts, with the files that they name."""

    servers: dict[str, str]
    mounts: dict[str, str]
    lasting: dict[str, str]

    @classmethod
    async def of(cls, settings: Settings) -> SettingsDigests:
        """Look at the files as they are now."""

        def digests() -> SettingsDigests:
            return cls(digests_of_servers(settings), digests_of_mounts(settings), lasting_digests(settings))

        # In a thread: files are looked at.
        return await asyncio.to_thread(digests)


class SettingsReload:
    """Puts changed settings into force in ``app``, one change after another.

    ``begin`` notes what the settings say, with the files that they name; a change is what differs from that.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._one_by_one = asyncio.Lock()
        self._servers: dict[str, str] = {}
        self._mounts: dict[str, str] = {}
        self._lasting: dict[str, str] = {}

    @property
    def watches(self) -> bool:
        """True where the file is looked at without a word."""
        return self._app.settings.core.watch

    def __repr__(self) -> str:
        return f"<SettingsReload of {len(self._servers)} servers>"

    @property
    def needs_restart(self) -> bool:
        """True where the last change can be used by a new process only."""
        changed = self._app.health.changed
        return changed is not None and changed.state == "needs_restart"

    async def begin(self, said: SettingsDigests | None = None) -> None:
        """Note what the settings say now, or ``said`` before their files were used."""
        async with self._one_by_one:
            self._servers, self._mounts, self._lasting = said or await SettingsDigests.of(self._app.settings)

    async def apply(self, settings: Settings) -> bool:
        """Serve by other settings. Returns False where they cannot be used in this process, which then goes on as it
        is; the log and health say why.
        """
        app = self._app
        async with self._one_by_one:
            servers, mounts, lasting = await SettingsDigests.of(settings)
            if keys := changed_keys(self._lasting, lasting):
                app.health.changed = SettingsState(time.time(), "needs_restart", keys=keys)
                app.log.warning("the changed settings need a restart", settings=keys)
                return False
            try:
                found = await asyncio.to_thread(locks, settings)
                left = {name for name, digest in self._servers.items() if servers.get(name) != digest}
                built = [each for each in settings.servers if self._servers.get(each.id) != servers[each.id]]
                kept = {name for name, digest in self._mounts.items() if mounts.get(name) == digest}
                self._replace(settings, found, left, built, kept)
            except SettingsError as refused:
                self.refuse(str(refused))
                return False
            except Exception:
                app.log.exception("the changed settings cannot be used")
                self.refuse("the changed servers could not be built: the log has the details")
                return False
            self._tell(left, [entry.id for entry in built])
            self._servers, self._mounts = servers, mounts
        return True

    def reopen(self) -> None:
        """Open the files again that the adapter writes to: SIGHUP also comes when they were renamed."""
        app = self._app
        if app.audit is not None and app.settings.core.audit.file is not None:
            app.audit.reopen()

    def refuse(self, why: str) -> None:
        """Tell that changed settings cannot be used, so that all stays as it is."""
        self._app.health.changed = SettingsState(time.time(), "refused", why)
        self._app.log.error("the changed settings cannot be used, the old ones stay in force", why=why)

    def _tell(self, left: set[str], built: Sequence[str]) -> None:
        self._app.health.changed = SettingsState(time.time(), "in_force")
        self._app.log.info(
            "the settings are in force",
            changed=sorted(left.intersection(built)),
            added=sorted(set(built) - left),
            left=sorted(left.difference(built)),
        )

    def _replace(
        self,
        settings: Settings,
        found: dict[str, Catalogue],
        left: Collection[str],
        built: Sequence[ServerSettings],
        kept: Collection[str],
    ) -> None:
        """Take servers out, and build others in their place; merged mounts too, but those that are ``kept``. Raises
        SettingsError, and then all is as it was.
        """
        app, parts = self._app, self._app.server_parts
        before = [(each, dict(each)) for each in app.by_server]
        settings_before, locks_before = app.settings, app.tools.locks
        leaving = parts.only(left)
        callers = [each for name, each in app.console.known.items() if name in left]
        try:
            self._use(settings, found)
            for each, _ in before:
                # A bridge has the id of its server and a word behind a number sign.
                for name in [name for name in each if name.partition("#")[0] in left]:
                    del each[name]
            for entry in built:
                if app.plans is not None:
                    app.plans.add(entry)
                parts.add(entry)
            mounts = build_mounts(app, {each.mount.id: each for each in app.merged if each.mount.id in kept})
        except BaseException:
            self._use(settings_before, locks_before)
            for each, was in before:
                each.clear()
                each.update(was)
            raise
        ended = [each for each in app.merged if each not in mounts]
        app.merged = mounts
        in_order = {entry.id: parts.by_id[entry.id] for entry in settings.servers}
        parts.by_id.clear()
        parts.by_id.update(in_order)
        if app.metering is not None:
            app.metering.detach_servers(leaving)
            app.metering.attach_servers(parts.only({entry.id for entry in built}))
        for act in app.on_change:
            act()
        parts.begin()
        if leaving.by_id or ended:
            app.retire(self._retired(leaving, callers, ended))

    def _use(self, settings: Settings, found: dict[str, Catalogue]) -> None:
        app = self._app
        app.settings, app.tools.locks = settings, found
        if app.plans is not None:
            app.plans.planning.settings = settings

    async def _retired(
        self, leaving: Servers, callers: Sequence[HttpSessions], ended: Sequence[MergedMount]
    ) -> None:
        """End servers and merged mounts that are served no more, when nobody uses them."""
        app = self._app
        unused = [*leaving.by_id.values(), *(each.mount for each in ended)]
        await app.front.leave(unused, app.settings.core.shutdown_grace_seconds)
        await asyncio.gather(*(each.leave(FAREWELL) for each in ended))
        await leaving.leave(FAREWELL)
        await asyncio.gather(*(each.close(FAREWELL) for each in callers))
        await leaving.close()
