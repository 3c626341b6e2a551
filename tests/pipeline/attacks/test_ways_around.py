"""Calls spelled so that an upstream might run what no stage has looked at."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path

import orjson
import pytest

from adapter.pipeline.auth_stage import api_key
from tests.pipeline.attacks.hostile import Hostile, behind, spoken
from tests.pipeline.end_to_end.living import ERAS


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("arguments", [b"[]", b'"x"', b"false", b"0", b'""'])
async def test_w_arguments_that_are_no_object_get_around_no_stage(
    tmp_path: Path, era: str, arguments: bytes
) -> None:
    """A tool whose plan nobody walked is not run, however lenient its upstream is."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front, front.speaker(era) as speaker:
        answer = await spoken(speaker, b'{"name":"locked_a","arguments":%b}' % arguments, "locked_a")
    assert (answer.error["code"], upstream.ran) == (-32602, [])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("params", "named"),
    [
        (b'{"name":"free","Name":"locked_a"}', "free"),
        ('{"name":"free","argument\u017f":{"a":1},"arguments":{}}'.encode(), "free"),
        (b'{"name":"free","TASK":{}}', "free"),
        (b'{"name":"free","\\u004eame":"locked_a"}', "free"),
    ],
)
async def test_w_no_key_in_another_case_gets_around_a_stage(
    tmp_path: Path, era: str, params: bytes, named: str
) -> None:
    """Readers that do not mind case, such as Go's, would take such a key for the one that was judged."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front, front.speaker(era) as speaker:
        answer = await spoken(speaker, params, named)
    assert (answer.head.status, upstream.ran) == (400, [])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("key", ["Params", "METHOD", "\u0130d", "Id", "param\u017f"])
async def test_w_no_member_in_another_case_gets_around_a_stage(tmp_path: Path, era: str, key: str) -> None:
    """The same of the members of the message itself; some readers compare in capitals, where an i may have a dot."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front, front.speaker(era) as speaker:
        answer = await spoken(speaker, b'{"name":"free"}', "free", **{key: '{"name":"locked_a"}'})
    assert (answer.head.status, upstream.ran) == (400, [])


@pytest.mark.parametrize("name", [b'["locked_a"]', b"{}", b"null", b"5"])
async def test_w_a_tool_is_named_by_its_name(tmp_path: Path, name: bytes) -> None:
    """A name that is no text is not made up for by a URI: to an upstream the list of one text may be that text."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front, front.speaker() as speaker:
        answer = await spoken(speaker, b'{"name":%b,"uri":"free"}' % name, "free")
    assert (answer.error["code"], upstream.ran) == (-32602, [])


@pytest.mark.parametrize("era", ERAS)
async def test_w_a_repeated_task_is_refused(tmp_path: Path, era: str) -> None:
    """Whether a call runs as a task is not left to which of two members an upstream reads."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front, front.speaker(era) as speaker:
        answer = await spoken(speaker, b'{"name":"shown_a","task":{},"task":null}', "shown_a")
    assert (answer.head.status, upstream.ran) == (400, [])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("value", [b"1" * 300, b"[" * 900 + b"]" * 900, b"1.50"])
async def test_odd_arguments_pass_stages_that_do_not_mind(tmp_path: Path, era: str, value: bytes) -> None:
    """Numbers of hundreds of digits and deep nesting are legal JSON and reach the upstream as they came."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front, front.speaker(era) as speaker:
        answer = await spoken(speaker, b'{"name":"rare_a","arguments":{"a":%b}}' % value, "rare_a")
    assert answer.head.status == 200
    assert upstream.ran[0].count(b'{"a":%b}' % value) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", ["Locked_a", "LOCKED_A", "\uff4cocked_a", "\u200blocked_a", " locked_a"])
async def test_w_no_other_spelling_of_a_name_gets_around_its_stages(
    tmp_path: Path, era: str, name: str
) -> None:
    """An upstream that does not mind the difference would run the tool without the stages of its name."""
    upstream = Hostile(listed=["locked_a"])
    async with behind(upstream, tmp_path) as front, front.speaker(era) as speaker:
        params = orjson.dumps({"name": name})
        answer = await spoken(speaker, params, f"=?base64?{b64encode(name.encode()).decode()}?=")
    assert upstream.ran == []
    assert answer.error["code"] == -32602


async def test_a_tool_that_is_listed_goes_by_its_own_name(tmp_path: Path) -> None:
    """Of two tools that differ by case each has the stages that are set for it."""
    upstream = Hostile(listed=["locked_a", "Locked_a"])
    async with behind(upstream, tmp_path) as front, front.speaker() as speaker:
        free, locked = await speaker.call("Locked_a"), await speaker.call("locked_a")
    assert (free.result.get("isError"), locked.failure["stage"]) == (None, "auth")


@pytest.mark.parametrize("name", ["locked_a\n", "locked_a/../b", "locked_\u0130"])
async def test_w_a_glob_is_one_for_every_rest_of_a_name(tmp_path: Path, name: str) -> None:
    """Neither a line end nor a slash ends what a star stands for."""
    upstream = Hostile()
    async with behind(upstream, tmp_path) as front:
        answer = await front.call(name)
    assert (answer.failure["stage"], upstream.ran) == ("auth", [])


# --- keys that nobody has to know ------------------------------------------------------------------------------


def test_w_the_digest_of_nothing_is_no_key() -> None:
    """Whoever sends no key at all would have it."""
    with pytest.raises(ValueError, match="not a key"):
        api_key({"sha256": [hashlib.sha256(b"k").hexdigest(), hashlib.sha256(b"").hexdigest()]}, {})
