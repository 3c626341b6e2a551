"""The files that a form offers: those of the caller's own session."""

from __future__ import annotations

from pathlib import Path

from adapter.edge.console.status import OpenSessions, SessionsAndFiles
from adapter.rules.access.principals import ANONYMOUS
from adapter.rules.access.sessions import session_key
from adapter.settings.root import Settings
from adapter.state.sqlite import MemoryStore
from tests.edge.filing import filing


async def test_files_are_offered_of_a_session_that_was_let_go_of(tmp_path: Path) -> None:
    """A process with very many sessions knows but some of them; the others live on in their rows."""
    async with filing(tmp_path) as desk:
        session_id, scope = await desk.session()
        await desk.artifact(scope, b"bytes", "kept.png")
        opened = OpenSessions(MemoryStore(), desk.sessions)
        settings = Settings.model_validate({"uploads": {"max_file_bytes": 7}})
        belongings = SessionsAndFiles(opened, desk.scopes, desk.registry, settings)
        desk.sessions.cache.drop(session_key(session_id))
        offered = await belongings.files_of(ANONYMOUS, session_key(session_id))
        assert [each["filename"] for each in offered["files"]] == ["kept.png"] and offered["limit"] == 7
        assert (await belongings.files_of(ANONYMOUS, None))["files"] == []
