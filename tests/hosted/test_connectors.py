"""What all connectors have in common: how they are chosen, and what they do with hostile values."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from adapter.extras import install_line
from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import ConnectorFailed, plain


def test_an_unknown_kind_is_refused() -> None:
    """The sentence lists the kinds there are."""
    with pytest.raises(ConnectorFailed, match="one of sqlite, postgres, mysql, redis, mongodb"):
        connector_for("oracle", "main", "x")


@pytest.mark.parametrize(
    ("kind", "connection_string", "options", "why"),
    [
        ("sqlite", "a.db", {"nonsense": "hunter2"}, "option 'nonsense' is not known"),
        ("sqlite", "a.db", {"mode": "hunter2"}, "option 'mode' is one of ro, rw, rwc"),
        ("sqlite", "a.db", {"pool_size": 0}, "option 'pool_size' must be a whole number of at least 1"),
        ("mysql", "mysql://a/b", {"tls": "hunter2"}, "option 'tls' is one of true, false, skip-verify"),
        (
            "postgres",
            "postgres://a/b",
            {"pool_size": True},
            "option 'pool_size' must be a whole number of at least 1",
        ),
    ],
)
def test_a_wrong_option_is_named_and_not_repeated(
    kind: str, connection_string: str, options: dict[str, object], why: str
) -> None:
    """A typing mistake is found at the start."""
    with pytest.raises(ConnectorFailed) as failure:
        connector_for(kind, "main", connection_string, options)
    assert str(failure.value) == f"connector 'main' ({kind}): {why}"


def test_drivers_are_imported_only_when_they_are_needed() -> None:
    """Who uses SQLite pays for no other database."""
    program = (
        "import sys, adapter.hosted.connectors as c; c.connector_for('sqlite', 'main', ':memory:');"
        "print([name for name in ('asyncpg', 'aiomysql', 'redis', 'pymongo', 'bson') if name in sys.modules])"
    )
    assert _python(program) == "[]"


@pytest.mark.parametrize(
    ("kind", "driver", "extra"),
    [
        ("postgres", "asyncpg", "postgres"),
        ("mariadb", "pymysql", "mysql"),
        ("redis", "redis", "redis"),
        ("mongodb", "pymongo", "mongodb"),
    ],
)
def test_a_missing_driver_is_one_sentence(kind: str, driver: str, extra: str) -> None:
    """It names the extra that brings the driver."""
    program = (
        f"import sys; sys.modules['{driver}'] = None\n"
        "from adapter.hosted.connectors import connector_for\n"
        f"try: connector_for('{kind}', 'main', 'x')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    sentence = f"ConnectorFailed connector 'main' ({extra}): its driver is missing: {install_line(extra)}"
    assert _python(program) == sentence


def test_what_drivers_return_becomes_json() -> None:
    """Nested values are gone through, and keys are texts."""
    assert plain({1: (Decimal("1.0"), {b"a"}), "x": float("-inf")}) == {"1": ["1.0", ["a"]], "x": "-Infinity"}


def _python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()
