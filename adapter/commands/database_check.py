"""``mcp-adapter check``: what can be found out of the databases of hosted tools on this machine, without the network.

SQLite is asked about its statements. Others are asked when the adapter starts, as they may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from adapter.app.hosted import Placed
from adapter.app.tool_plans import Compiled
from adapter.hosted.connectors.port import ConnectorFailed
from adapter.hosted.connectors.sqlite import SqliteConnector
from adapter.hosted.connectors.sqlite_check import SqliteCheck, checking
from adapter.rules.statements.samples import sampled
from adapter.rules.statements.statements import EnvironmentFailed
from adapter.settings.problems import Problem, SettingsError


def inspect(made: Compiled) -> None:
    """Raises SettingsError for database files that are missing, and for statements that their database refuses."""
    problems = list(_problems(made))
    if problems:
        raise SettingsError(map(made.planning.materials.settings.traced, problems))


def _problems(made: Compiled) -> Iterator[Problem]:
    settings = made.planning.materials.settings
    for index, said in enumerate(settings.connectors):
        database = made.hosting.databases[said.name]
        if not isinstance(database.connector, SqliteConnector):
            continue
        statements = [each for each in made.hosting.statements if each.use == said.name]
        texts = [each.statement.text for each in statements]
        try:
            with checking(said.name, database.connector.uri, texts) as check:
                yield from _faults(check, statements)
        except ConnectorFailed as failed:
            # One that is not required may come later, and with it all that its statements speak of.
            if said.required:
                yield Problem(f"connectors[{index}]", str(failed))


def _faults(check: SqliteCheck, statements: list[Placed]) -> Iterator[Problem]:
    for placed in statements:
        try:
            faults = (
                check.fault(bound.text, len(bound.values))
                for bound in sampled(placed.statement, placed.inputs)
            )
            fault = next((each for each in faults if each is not None), None)
        except EnvironmentFailed:
            # A variable of each call's own environment, which this is not.
            continue
        if fault is not None:
            yield Problem(placed.place, f"SQLite refuses it: {fault}")
