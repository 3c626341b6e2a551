"""The databases that hosted tools ask: one connector for each kind of database, behind the port of ``port.py``.

SQLite is built in. The drivers of the others are extras of the package and are imported when a configuration
names their kind.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapter.extras import install_line
from adapter.hosted.connectors.port import Connector, ConnectorFailed
from adapter.hosted.connectors.sqlite import SqliteConnector

_DRIVEN = {
    "postgres": ("PostgresConnector", ("asyncpg",)),
    "mysql": ("MysqlConnector", ("aiomysql", "pymysql")),
    "redis": ("RedisConnector", ("redis",)),
    "mongodb": ("MongodbConnector", ("pymongo", "bson")),
}
"""The connector's class and its driver's packages; the connector's module and the extra bear the kind's name."""

_ALIASES = {"mariadb": "mysql", "postgresql": "postgres"}

KINDS = ("sqlite", *_DRIVEN, *_ALIASES)


def connector_for(
    kind: str,
    name: str,
    connection_string: str,
    options: Mapping[str, Any] | None = None,
    *,
    base: Path | None = None,
) -> Connector:
    """A connector that is not open yet. ``base`` is the folder that relative paths are under.

    Raises ConnectorFailed for an unknown kind, a missing driver, a wrong connection string or option.
    """
    chosen = _ALIASES.get(kind, kind)
    if chosen == "sqlite":
        return SqliteConnector(name, connection_string, options or {}, base=base)
    if chosen not in _DRIVEN:
        raise ConnectorFailed(f"connector '{name}': its kind must be one of {', '.join(KINDS)}")
    connector, packages = _DRIVEN[chosen]
    try:
        module = importlib.import_module(f"{__name__}.{chosen}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in packages:
            raise ConnectorFailed(
                f"connector '{name}' ({chosen}): its driver is missing: {install_line(chosen)}"
            ) from error
        raise
    driven: Connector = getattr(module, connector)(name, connection_string, options or {})
    return driven
