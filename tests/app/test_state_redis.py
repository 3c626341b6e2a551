"""The store in Redis from settings, and an adapter that has its state there."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from adapter.app.state import build_redis_store
from adapter.errors import StoreUnavailable
from adapter.extras import install_line
from adapter.settings.file.load import load
from adapter.settings.root import Settings
from adapter.settings.section import SettingsError
from adapter.state.redis.address import RedisAddress, RedisServer, RedisTls, redis_address
from tests.hosted.databases import URL_PASSWORD, Server


def settings(**redis: Any) -> Settings:
    """Settings with state in Redis."""
    overrides = {
        "servers": [{"id": "a", "upstream": {"url": "http://u/"}}],
        "state_persistence.type": "redis",
        **{f"state_persistence.redis.{key}": value for key, value in redis.items()},
    }
    return load(None, overrides=overrides, environ={})


def test_single_values_are_an_address() -> None:
    """Host, port, database, login and TLS may stand by themselves; a password is written as it is."""
    state = settings(
        host="h", port=7000, db=2, username="me", password="p@ss/%2F", tls=True
    ).state_persistence
    wanted = RedisAddress((RedisServer("h", 7000),), "me", "p@ss/%2F", 2, tls=RedisTls())
    assert redis_address(state.redis) == wanted
    state = settings(host="h", tls_insecure=True).state_persistence
    assert redis_address(state.redis) == RedisAddress((RedisServer("h", 6379),), tls=RedisTls(insecure=True))


def test_a_url_is_an_address() -> None:
    """A URL stands for all of them, and for a cluster."""
    state = settings(url="redis+cluster://me:p%40ss@h:7000").state_persistence
    wanted = RedisAddress((RedisServer("h", 7000),), "me", "p@ss", cluster=True)
    assert redis_address(state.redis) == wanted


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, r"state_persistence\.redis\.host: or redis\.url is required"),
        ({"url": "redis://h", "host": "h"}, r"redis\.host: is in redis\.url"),
        ({"url": "redis://h", "password": "s3cret"}, r"redis\.password: is in redis\.url"),
        ({"host": "h", "key_base": "a{b}"}, r"redis\.key_base"),
        ({"host": "h", "key_base": "a b"}, r"redis\.key_base"),
    ],
)
def test_values_that_contradict_are_refused(values: dict[str, Any], sentence: str) -> None:
    """The setting is named, and no secret."""
    with pytest.raises(SettingsError, match=sentence) as refused:
        settings(**values)
    assert "s3cret" not in str(refused.value)


def test_a_url_that_is_none_is_refused() -> None:
    """The setting is named, with nothing of its value."""
    with pytest.raises(
        SettingsError, match=r"^state_persistence\.redis\.url: must be a URL with redis://"
    ) as refused:
        build_redis_store(settings(url="http://me:s3cret@h"))
    assert "s3cret" not in str(refused.value)


def test_a_missing_driver_is_told() -> None:
    """Without the packages of the extra there is one sentence that names it."""
    script = (
        "import sys\n"
        "sys.modules['hiredis'] = None\n"
        "from adapter.app.state import build_redis_store\n"
        "from adapter.settings.root import Settings\n"
        "from adapter.settings.section import SettingsError\n"
        "try: build_redis_store(Settings.model_validate({'state_persistence': {'type': 'redis'}}))\n"
        "except SettingsError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (
        done.stdout.strip() == f"state_persistence.type: redis needs its driver: {install_line('redis')}"
    ), done.stderr


def test_other_stores_do_not_load_the_driver() -> None:
    """An adapter with its state on disk or in memory imports nothing of Redis."""
    script = (
        "import sys\n"
        "from adapter.app.state import build_store\n"
        "from adapter.settings.root import Settings\n"
        "for kind in ('disk', 'memory'): build_store(Settings.model_validate({'state_persistence': {'type': kind}}))\n"
        "print([name for name in sys.modules if 'redis' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


async def test_a_store_of_settings_works(redis_server: Server) -> None:
    """Rows of a store are there for another one with the same settings, and not for one with another key_base."""
    url = f"redis://:{URL_PASSWORD}@127.0.0.1:{redis_server.port}/1"
    one, two, other = (build_redis_store(settings(url=url, key_base=base)) for base in ("x", "x", "y"))
    for store in (one, two, other):
        await store.open()
    await one.put("sessions", "a", b"1")
    assert await two.get("sessions", "a") is not None
    assert await other.get("sessions", "a") is None
    for store in (one, two, other):
        await store.close()


async def test_another_database_has_other_rows(redis_server: Server) -> None:
    """The number in the URL chooses it, and a number that is none is told."""
    url = f"redis://:{URL_PASSWORD}@127.0.0.1:{redis_server.port}"
    three, four, none = (build_redis_store(settings(url=f"{url}/{number}")) for number in (3, 4, 99))
    for store in (three, four):
        await store.open()
    await three.put("sessions", "a", b"1")
    assert await four.count("sessions") == 0
    with pytest.raises(StoreUnavailable, match="Redis refuses"):
        await none.open()
    for store in (three, four):
        await store.close()
