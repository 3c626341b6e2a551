"""Hostile values for commands of Redis and MongoDB: none becomes a second command, an operator or another's key."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosted.attacking import BOUND, OTHERS, SECRET, Attack, Said, attacked, tool
from tests.hosted.databases import Server
from tests.hosted.injections import PAYLOADS, SHAPES, UNSENDABLE
from tests.hosted.stating import Asking, opened

pytestmark = pytest.mark.deep

# --- Redis ----------------------------------------------------------------------------------------------------

GETTING = {
    "get": "GET note:{{ inputs.text }}",
    "get-quoted": 'GET "note:{{ inputs.text }}"',
    "get-single": "GET 'note:{{ inputs.text }}'",
    "get-some": "MGET note:{{ inputs.text }} note:none",
    "get-field": "HGET others {{ inputs.text }}",
    "get-script": "EVAL \"return redis.call('GET', KEYS[1])\" 1 note:{{ inputs.text }}",
    "get-like": "SCAN 0 MATCH note:{{ inputs.text }}* COUNT 1000",
}

ECHOING = {
    "echo": "ECHO {{ inputs.text }}",
    "echo-quoted": 'ECHO "{{ inputs.text }}"',
    "echo-single": "ECHO '{{ inputs.text }}'",
    "echo-script": 'EVAL "return ARGV[1]" 0 {{ inputs.text }}',
}

PUTTING = {
    "put": "SET note:{{ inputs.text }} {{ inputs.text }}",
    "put-quoted": 'SET "quoted:{{ inputs.text }}" "<{{ inputs.text }}>"',
    "put-field": "HSET bag {{ inputs.text }} {{ inputs.text }}",
    "put-last": "RPUSH list '{{ inputs.text }}'",
}

NUMBERED = {"range": "LRANGE list {{ inputs.number }} {{ inputs.skip }}"}


@pytest.fixture
async def keys(redis: Server) -> AsyncIterator[Asking]:
    """A canary among the keys; the server tells what takes long, and counts from here on."""
    async with opened(redis, pool_size=1) as direct:
        await direct.redis("FLUSHALL")
        await direct.redis("SET", "canary", SECRET)
        await direct.redis("HSET", "others", "diary", "diary of others")
        await direct.redis("CONFIG", "SET", "slowlog-log-slower-than", str(int(BOUND / 2 * 1_000_000)))
        await direct.redis("SLOWLOG", "RESET")
        yield direct
        assert (await direct.redis("GET", "canary")).rows == [{"value": SECRET}]
        assert (await direct.redis("HGETALL", "others")).rows == [{"value": {"diary": "diary of others"}}]
        assert (await direct.redis("SLOWLOG", "LEN")).rows == [{"value": 0}]
        await direct.redis("FLUSHALL")


async def carried_out(direct: Asking) -> Counter[str]:
    """Commands since ``CONFIG RESETSTAT``, those of whoever asks left out; scripts count what they call."""
    (row,) = (await direct.redis("INFO", "commandstats")).rows
    found = re.findall(r"cmdstat_([^:]+):calls=(\d+)", row["value"])
    own = ("config|resetstat", "info")
    return Counter({name: int(calls) for name, calls in found if name not in own})


async def asked(attack: Attack, direct: Asking, tools: dict[str, str]) -> tuple[list[Said], Counter[str]]:
    """Every tool with every payload, and what the server carried out for it."""
    await attack.each([next(iter(tools))], ["warm"] * 32)
    await direct.redis("CONFIG", "RESETSTAT")
    answers = await attack.each(list(tools), PAYLOADS)
    for said in answers:
        said.harmless()
    return answers, await carried_out(direct)


async def test_w1_redis_is_asked_for_one_key_a_call(redis: Server, keys: Asking, tmp_path: Path) -> None:
    """Neither spaces nor line ends nor quotes make a second word, and no pattern leaves its prefix."""
    tools = [tool(name, text) for name, text in GETTING.items()]
    async with attacked(tmp_path, "redis", redis.url, tools) as attack:
        answers, done = await asked(attack, keys, GETTING)
    count = len(PAYLOADS)
    assert done == {"get": 4 * count, "mget": count, "hget": count, "eval": count, "scan": count}
    for said in answers:
        if said.tool == "get-like":
            assert said.rows == [{"values": ["0", []]}], said
        elif said.tool == "get-some":
            assert said.rows == [{"values": [None, None]}], said
        else:
            assert said.failed and said.text.endswith("redis: nil"), said


async def test_w1_w2_redis_says_a_text_as_it_is(redis: Server, keys: Asking, tmp_path: Path) -> None:
    """Byte for byte, NUL and fragments of the protocol too."""
    tools = [tool(name, text) for name, text in ECHOING.items()]
    async with attacked(tmp_path, "redis", redis.url, tools) as attack:
        answers, done = await asked(attack, keys, ECHOING)
        for said in await attack.each(list(ECHOING), (*SHAPES, *UNSENDABLE)):
            assert said.failed and said.error["stage"] == "validation", said
    assert done == {"echo": 3 * len(PAYLOADS), "eval": len(PAYLOADS)}
    for said in answers:
        assert said.rows == [{"value": said.sent}], said


async def test_w1_redis_keeps_what_was_sent(redis: Server, keys: Asking, tmp_path: Path) -> None:
    """Under the key that was meant, and under no other."""
    tools = [tool(name, text) for name, text in (PUTTING | NUMBERED).items()]
    async with attacked(tmp_path, "redis", redis.url, tools) as attack:
        answers, done = await asked(attack, keys, PUTTING)
        read = await attack.call("range", -1, number=0, skip=-1)
        for said in await attack.each(["range"], PAYLOADS, "number"):
            said.harmless()
            assert said.failed or re.fullmatch(r"[+-]?\d+", said.sent), said
    count = len(PAYLOADS)
    assert not [said for said in answers if said.failed]
    assert done == {"set": 2 * count, "hset": count, "rpush": count}
    everything = {*PAYLOADS, "warm"}
    (bag,) = (await keys.redis("HGETALL", "bag", max_rows=1_000)).rows
    assert bag["value"] == {text: text for text in PAYLOADS}
    assert Counter(read.rows[0]["values"]) == Counter(PAYLOADS)
    (names,) = (await keys.redis("KEYS", "*", max_rows=5_000)).rows
    meant = {f"note:{text}" for text in everything} | {f"quoted:{text}" for text in PAYLOADS}
    assert set(names["values"]) == meant | {"canary", "others", "bag", "list"}
    for text in PAYLOADS[::7]:
        assert (await keys.redis("GET", f"note:{text}")).rows == [{"value": text}]
        assert (await keys.redis("GET", f"quoted:{text}")).rows == [{"value": f"<{text}>"}]


# --- MongoDB --------------------------------------------------------------------------------------------------

MATCHING = {
    "bare": '{"command": {"find": "people", "filter": {"owner": "me", "name": {{ inputs.text }}}}}',
    "quoted": '{"command": {"find": "people", "filter": {"owner": "me", "name": "{{ inputs.text }}"}}}',
    "equal": '{"command": {"find": "people", "filter": {"owner": "me", "name": {"$eq": {{ inputs.text }}}}}}',
    "among": '{"command": {"find": "people", "filter": {"owner": "me", '
    '"name": {"$in": ["{{ inputs.text }}", {{ inputs.text }}]}}}}',
    "stages": '{"command": {"aggregate": "people", "pipeline": '
    '[{"$match": {"owner": "me", "name": "{{ inputs.text }}"}}]}}',
    "between": '{"command": {"find": "people", "filter": {"owner": "me", "name": "x{{ inputs.text }}y"}}}',
}

INSERTING = {
    "keep": '{"command": {"insert": "notes", "documents": [{"owner": "me", "body": {{ inputs.text }}}]}}',
    "keep-quoted": '{"command": {"insert": "notes", "documents": '
    '[{"owner": "me", "body": "<{{ inputs.text }}>"}]}}',
}

FORGETTING = (
    '{"command": {"delete": "notes", "deletes": '
    '[{"q": {"owner": "me", "body": {{ inputs.text }}}, "limit": 0}]}}'
)

LIMITED = {
    "limited": (
        "number",
        '{"command": {"find": "people", "filter": {"owner": "me"}, "limit": {{ inputs.number }}}}',
    ),
    "sorted": (
        "column",
        '{"command": {"find": "people", "filter": {"owner": "me"}, "sort": {"{{ inputs.column | ident }}": 1}}}',
    ),
}

COMPUTING = (
    '{"command": {"aggregate": "people", "pipeline": '
    '[{"$match": {"owner": "me"}}, {"$project": {"_id": 0, "said": {{ inputs.text }}}}]}}'
)

OWN = [{"_id": 1, "owner": "me", "name": "Mia"}, {"_id": 2, "owner": "me", "name": '{"$gt": ""}'}]


@pytest.fixture
async def documents(mongodb: Server) -> AsyncIterator[Asking]:
    """A canary among the collections."""
    async with opened(mongodb, pool_size=2) as direct:
        for collection in ("vault", "people", "notes"):
            await direct.mongodb({"delete": collection, "deletes": [{"q": {}, "limit": 0}]})
        others = {"_id": 9, "owner": "other", "name": "Olga of others"}
        await direct.mongodb({"insert": "vault", "documents": [{"_id": 1, "secret": SECRET}]})
        await direct.mongodb({"insert": "people", "documents": [*OWN, others]})
        await direct.mongodb(
            {"insert": "notes", "documents": [{"_id": 1, "owner": "other", "body": OTHERS[2]}]}
        )
        before = await kept(direct)
        yield direct
        assert await kept(direct) == before


async def kept(direct: Asking) -> list[Any]:
    """All that no tool of these may change."""
    questions: tuple[dict[str, Any], ...] = (
        {"find": "vault"},
        {"find": "people", "sort": {"_id": 1}},
        {"find": "notes", "filter": {"owner": "other"}},
    )
    collections = (await direct.mongodb({"listCollections": 1, "nameOnly": True})).rows
    names = sorted(row["name"] for row in collections if row["name"] in ("vault", "people", "notes"))
    return [names, *[(await direct.mongodb(question)).rows for question in questions]]


async def test_w1_mongodb_compares_with_the_text(mongodb: Server, documents: Asking, tmp_path: Path) -> None:
    """What spells an operator is a text: only the document that holds that text is found."""
    tools = [tool(name, text) for name, text in MATCHING.items()]
    async with attacked(tmp_path, "mongodb", mongodb.url, tools) as attack:
        for said in await attack.each(list(MATCHING), PAYLOADS):
            said.harmless()
            found = [row for row in OWN if row["name"] == said.sent and said.tool != "between"]
            assert said.rows == found, said
        for said in await attack.each(list(MATCHING), (*SHAPES, *UNSENDABLE)):
            assert said.failed and said.error["stage"] == "validation", said


TYPES = {
    name.removeprefix(
        "$"
    ).lower(): f'{{"command": {{"find": "people", "filter": {{"owner": "me", "of": {value}}}}}}}'
    for name, value in {
        "$oid": '{"$oid": "{{ inputs.text }}"}',
        "$date": '{"$date": "{{ inputs.text }}"}',
        "$numberDecimal": '{"$numberDecimal": "{{ inputs.text }}"}',
        "$numberLong": '{"$numberLong": "{{ inputs.text }}"}',
        "$uuid": '{"$uuid": "{{ inputs.text }}"}',
        "$binary": '{"$binary": {"base64": "{{ inputs.text }}", "subType": "00"}}',
        "$timestamp": '{"$timestamp": {"t": {{ inputs.text }}, "i": 1}}',
    }.items()
}


async def test_w1_mongodb_s_extended_json_takes_no_other_type(
    mongodb: Server, documents: Asking, tmp_path: Path
) -> None:
    """A text in the place of an id, a date or a number is one, or the call fails in words of the adapter's own."""
    tools = [tool(name, text) for name, text in TYPES.items()]
    async with attacked(tmp_path, "mongodb", mongodb.url, tools) as attack:
        for said in await attack.each(list(TYPES), PAYLOADS):
            said.harmless("<class")
            assert said.failed or said.rows == [], said


STRUCTURES = {
    "among": '{"command": {"find": "people", "filter": {"owner": "me", "name": {"$in": {{ inputs.tags }}}}}}',
    "like": '{"command": {"find": "people", "filter": {"owner": "me", "name": {"$eq": {{ inputs.who }}}}}}',
    "keep": '{"command": {"insert": "notes", "documents": [{"owner": "me", "body": {{ inputs.who }}}]}}',
}


async def test_w1_mongodb_takes_structures_without_operators(
    mongodb: Server, documents: Asking, tmp_path: Path
) -> None:
    """Members of arrays are compared as texts; an object with an operator or a path in it is refused at any depth."""
    tools = [tool(name, text) for name, text in STRUCTURES.items()]
    async with attacked(tmp_path, "mongodb", mongodb.url, tools) as attack:
        for said in await attack.each(["among"], [[one] for one in PAYLOADS], "tags"):
            said.harmless()
            assert said.rows == [row for row in OWN if [row["name"]] == said.sent], said
        for one in PAYLOADS:
            for sent in ({one: 1}, {"a": {"b": [{one: 1}]}}):
                for name in ("like", "keep"):
                    said = await attack.call(name, sent, who=sent)
                    said.harmless()
                    if one.startswith("$") or "." in one or "\0" in one:
                        assert said.failed and said.error["stage"] == "substitution", said
                    elif name == "like" and not said.failed:
                        assert said.rows == [], said
        for operator in ({"$gt": ""}, {"$ne": None}, {"$regex": ".*"}, {"$in": ["Mia"]}, {"a": [{"$gt": 1}]}):
            for name in ("like", "keep"):
                said = await attack.call(name, operator, who=operator)
                assert said.failed and said.error["stage"] == "substitution", said
        await documents.mongodb({"delete": "notes", "deletes": [{"q": {"owner": "me"}, "limit": 0}]})


async def test_w1_mongodb_keeps_what_was_sent(mongodb: Server, documents: Asking, tmp_path: Path) -> None:
    """As texts in documents of the tool's own, and gone when the same text is forgotten."""
    statements = {**INSERTING, "forget": FORGETTING}
    tools = [tool(name, text) for name, text in statements.items()]
    async with attacked(tmp_path, "mongodb", mongodb.url, tools) as attack:
        for said in await attack.each(list(INSERTING), PAYLOADS):
            said.harmless()
            assert not said.failed, said
        mine = {"find": "notes", "filter": {"owner": "me"}}
        written = Counter(row["body"] for row in (await documents.mongodb(mine, max_rows=5_000)).rows)
        assert written == Counter(PAYLOADS) + Counter(f"<{text}>" for text in PAYLOADS)
        for said in await attack.each(["forget"], PAYLOADS):
            said.harmless()
        left = Counter(row["body"] for row in (await documents.mongodb(mine, max_rows=5_000)).rows)
        for text in left - Counter(f"<{text}>" for text in PAYLOADS):
            # The stand-in does not find every text that it holds, whoever asks.
            assert not (await documents.mongodb({"find": "notes", "filter": {"body": text}})).rows, text
        assert left >= Counter(f"<{text}>" for text in PAYLOADS)
        await documents.mongodb({"delete": "notes", "deletes": [{"q": {"owner": "me"}, "limit": 0}]})


async def test_w1_mongodb_s_typed_inputs_are_of_their_type(
    mongodb: Server, documents: Asking, tmp_path: Path
) -> None:
    """A number or a name out of an enum, or the call is refused before the server hears of it."""
    tools = [tool(name, text) for name, (_, text) in LIMITED.items()]
    async with attacked(tmp_path, "mongodb", mongodb.url, tools) as attack:
        for name, (argument, _) in LIMITED.items():
            for said in await attack.each([name], (*PAYLOADS, *SHAPES, *UNSENDABLE), argument):
                said.harmless()
                assert said.failed and said.error["stage"] == "validation", said


async def test_w1_mongodb_computes_with_no_field_of_the_caller_s_choice(
    mongodb: Server, documents: Asking, tmp_path: Path
) -> None:
    """Where a text could be a reference, one with a dollar sign in front is refused and any other is itself."""
    async with attacked(tmp_path, "mongodb", mongodb.url, [tool("say", COMPUTING)]) as attack:
        for said in await attack.each(["say"], PAYLOADS):
            said.harmless()
            if said.sent.startswith("$"):
                assert said.failed and said.error["stage"] == "substitution", said
            elif not said.failed:
                assert all(row in ({"said": said.sent}, {}) for row in said.rows), said
