"""Calls of tools that take files: what becomes of each argument on its way, and what never gets there."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pytest

from adapter.errors import BadRequest
from adapter.rules.access.principals import principal_scope
from adapter.rules.calls.arguments import annotated
from adapter.rules.files.quota import Limits
from adapter.settings.servers.file_adapters import Delivery
from adapter.upstream.port import UpstreamRequest, header
from adapter.wire.signed_urls import upload_handle
from tests.relay.relaying import whole
from tests.relay.tooling import META, READ, arguments_of, producing, result, said, saying, tools, uri_of
from tests.scripted import ScriptedAnswer
from tests.waiting import until

OK = saying("done")


def sentence(response: dict[str, Any]) -> str:
    """What the model reads of a call that was refused."""
    assert response["result"]["isError"] is True
    (block,) = response["result"]["content"]
    assert block["type"] == "text"
    text: str = block["text"]
    return text


# --- where handles stand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("path", '{"path":"@"}'),
        ("path", '{"path":["@","@"],"other":1}'),
        ("paths", '{"paths":["@"]}'),
        ("files[].path", '{"files":[{"path":"@"},{"note":"x"},{"path":"@"}]}'),
        ("form.file", '{"form":{"file":"@"}}'),
        ("path", '{"p\\u0061th":"@"}'),
    ],
)
async def test_handles_are_replaced_wherever_the_argument_leads(
    tmp_path: Path, argument: str, arguments: str
) -> None:
    """A text, a list, a member of each object in a list: every handle becomes the path of its file."""
    async with tools(tmp_path, OK, consuming=READ.model_copy(update={"file_path_argument": argument})) as one:
        handle = await one.handle(b"hello")
        assert "error" not in await one.call("read", arguments.replace("@", handle))
        (sent,) = one.upstream.requests
        path = next(str(path) for path in tmp_path.glob("uploads/*/*/*/note.txt"))
        assert orjson.loads(arguments.replace("@", path)) == arguments_of(sent)
        assert Path(path).read_bytes() == b"hello"


@pytest.mark.parametrize(
    "arguments", ["{}", '{"path":null}', '{"path":[]}', '{"path":[null]}', '{"other":"/etc/passwd"}', "null"]
)
async def test_argument_that_is_left_out_is_left_alone(tmp_path: Path, arguments: str) -> None:
    """An optional file needs no handle, and the message goes on as the same bytes."""
    async with tools(tmp_path, OK) as one:
        assert "isError" not in (await one.call("read", arguments))["result"]
        (sent,) = one.upstream.requests
        assert f'"arguments":{arguments}}}'.encode() in sent.body


async def test_bytes_outside_the_handle_stay(tmp_path: Path) -> None:
    """Number spelling, order, spaces and duplicates of others leave as they came; so does the whole result."""
    came = b'{"id": 1.0, "jsonrpc":"2.0","result": {"content":[],"big":12345678901234567890, "e":1e2}}'
    async with tools(tmp_path, lambda request: ScriptedAnswer(chunks=[came])) as one:
        handle = await one.handle(b"hello")
        before, behind = (
            b'{ "id": 1.0,"params" :{"arguments":{"n":1.50, "n":2e0 ,"path" : "',
            b'","z":"\\u00e9"}\n',
        )
        behind += b',"name":"read"},"jsonrpc":"2.0","method":"tools/call"}'
        assert await one.relaying.post(before + handle.encode() + behind, one.session) == came
        (path,) = tmp_path.glob("uploads/*/*/*/note.txt")
        assert one.upstream.requests[0].body == before + str(path).encode() + behind


async def test_other_tools_are_not_touched(tmp_path: Path) -> None:
    """What looks like a handle is any text in a tool that takes no files."""
    async with tools(tmp_path, OK) as one:
        handle = await one.handle(b"hello")
        await one.call("other", f'{{"path":"{handle}"}}')
        assert arguments_of(one.upstream.requests[0]) == {"path": handle}


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path":"/etc/passwd"}',
        '{"path":""}',
        '{"path":7}',
        '{"path":true}',
        '{"path":{"path":"@"}}',
        '{"path":[["@"]]}',
        '{"path":["@","/etc/passwd"]}',
        '{"path":"@/../../../etc/passwd"}',
        '{"path":" @"}',
        '{"path":"@?x"}',
        '{"path":"UPLOAD@"}',
    ],
)
async def test_what_is_not_exactly_one_handle_is_refused(tmp_path: Path, arguments: str) -> None:
    """Nothing goes upstream, and the model reads which tool to ask and which argument to use."""
    async with tools(tmp_path, OK) as one:
        handle = await one.handle(b"hello")
        refused = sentence(await one.call("read", arguments.replace("@", handle)))
        assert "one_get_upload_url" in refused and "path" in refused and str(tmp_path) not in refused
        assert one.upstream.requests == []


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("path", '{"path":"/etc/passwd","path":"@"}'),
        ("path", '{"path":"@","Path":"/etc/passwd"}'),
        ("files[].path", '{"files":[{"path":"@","path":"/etc/passwd"}]}'),
    ],
)
async def test_no_second_reading_smuggles_a_path_past(tmp_path: Path, argument: str, arguments: str) -> None:
    """A key twice, in another case or Unicode form, or a text in an object's place: some upstream would read it."""
    async with tools(tmp_path, OK, consuming=READ.model_copy(update={"file_path_argument": argument})) as one:
        handle = await one.handle(b"hello")
        assert "more than one way" in sentence(await one.call("read", arguments.replace("@", handle)))
        assert one.upstream.requests == []


@pytest.mark.parametrize(
    "arguments", ['{},"arguments":{"path":"@"}', '{"path":"@"},"Arguments":{"path":"/etc/passwd"}']
)
async def test_arguments_stand_there_once(tmp_path: Path, arguments: str) -> None:
    """No stage is asked about a message that has them twice, in whichever spelling."""
    async with tools(tmp_path, OK) as one:
        handle = await one.handle(b"hello")
        with pytest.raises(BadRequest, match=r"\b[Aa]rguments"):
            await one.call("read", arguments.replace("@", handle))
        assert one.upstream.requests == []


async def test_handle_of_another_scope_expired_or_never_given_gets_one_answer(tmp_path: Path) -> None:
    """Nobody can tell from the answer whether somebody else has such a file."""
    async with tools(tmp_path, OK) as one:
        stranger = await one.scope_of_session(await one.relaying.open())
        foreign = await one.uploaded(b"secret", scope=stranger)
        other_server = await one.uploaded(b"hello", server="two")
        expired = await one.handle(b"old")
        one.clock.now += 101
        handles = [
            upload_handle(foreign.scope, foreign.id),
            upload_handle(one.scope.id, foreign.id),
            upload_handle(one.scope.id, other_server.id),
            upload_handle(one.scope.id, "0" * 32),
            expired,
        ]
        answers = [await one.call("read", f'{{"path":"{handle}"}}') for handle in handles]
        assert all(answer == answers[0] for answer in answers) and sentence(answers[0])
        assert one.upstream.requests == []


async def test_plain_paths_pass_where_they_are_allowed(tmp_path: Path) -> None:
    """Then a text that is no handle is the tool's business; what only looks like one is still refused."""
    async with tools(tmp_path, OK, consuming=READ.model_copy(update={"allow_plain_paths": True})) as one:
        handle = await one.handle(b"hello")
        await one.call("read", f'{{"path":["/tmp/x","{handle}"]}}')
        plain, staged = arguments_of(one.upstream.requests[0])["path"]
        assert plain == "/tmp/x" and staged.endswith("/note.txt")
        for bad in (f'"{handle}x"', f'" {handle}"', '"UPLOAD://x"', '"artifact://x"', "7"):
            assert sentence(await one.call("read", f'{{"path":{bad}}}'))
        assert len(one.upstream.requests) == 1


# --- deliveries -----------------------------------------------------------------------------------------------

DATA = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def delivered(tmp_path: Path, delivery: Delivery) -> str:
    async with tools(tmp_path, OK, consuming=READ.model_copy(update={"delivery": delivery})) as one:
        handle = await one.handle(DATA, "bild ü.png")
        await one.call("read", f'{{"path":"{handle}"}}')
        text: str = arguments_of(one.upstream.requests[0])["path"]
        return text


async def test_path_and_file_uri_lead_to_the_file(tmp_path: Path) -> None:
    """For tools that share a disk with the adapter; a URI is percent-encoded."""
    path = Path(await delivered(tmp_path, "path"))
    assert path.is_absolute() and path.name == "bild ü.png"
    uri = await delivered(tmp_path, "file_uri")
    assert uri.startswith("file:///") and uri.endswith("/bild%20%C3%BC.png")


async def test_base64_and_data_uri_hold_the_file(tmp_path: Path) -> None:
    """For tools that share no disk with the adapter, and files that are small."""
    assert base64.b64decode(await delivered(tmp_path, "base64"), validate=True) == DATA
    uri = await delivered(tmp_path, "data_uri")
    assert uri == "data:image/png;base64," + base64.b64encode(DATA).decode()


async def test_url_is_signed_for_this_file_and_for_fetching_only(tmp_path: Path) -> None:
    """The URL is the adapter's own, short-lived, and opens no other file."""
    async with tools(tmp_path, OK, consuming=READ.model_copy(update={"delivery": "url"})) as one:
        record = await one.uploaded(DATA, "bild ü.png")
        body = {"name": "read", "arguments": {"path": upload_handle(record.scope, record.id)}}
        await one.request("tools/call", body)
        url = urlsplit(arguments_of(one.upstream.requests[0])["path"])
        assert f"{url.scheme}://{url.netloc}" == "http://adapter.test"
        assert url.path == f"/upload/one/{record.scope}/{record.id}/bild%20%C3%BC.png"
        query = dict(parse_qsl(url.query))
        one.credentials.check_file("delivery", ("one", record.scope, record.id), query)
        for purpose, file_id in (("download", record.id), ("delivery", "0" * 32)):
            with pytest.raises(Exception, match="not valid"):
                one.credentials.check_file(purpose, ("one", record.scope, file_id), query)


@pytest.mark.parametrize("delivery", ["base64", "data_uri"])
async def test_inline_deliveries_have_a_limit(tmp_path: Path, delivery: Delivery) -> None:
    """A file as large as the limit passes; one byte more is refused with the setting's name. Paths have none."""
    rule = READ.model_copy(update={"delivery": delivery, "max_inline_bytes": 10})
    async with tools(tmp_path, OK, consuming=rule) as one:
        fits, exceeds = await one.handle(b"x" * 10), await one.handle(b"x" * 11)
        assert "isError" not in (await one.call("read", f'{{"path":"{fits}"}}'))["result"]
        assert "max_inline_bytes" in sentence(await one.call("read", f'{{"path":"{exceeds}"}}'))
        assert len(one.upstream.requests) == 1


async def test_one_file_named_often_does_not_blow_a_message_up(tmp_path: Path) -> None:
    """A short message must not make one of gigabytes: what a call holds inline has a bound as a whole."""
    rule = READ.model_copy(update={"delivery": "base64"})
    async with tools(tmp_path, OK, consuming=rule) as one:
        handle = await one.handle(b"x" * (1 << 20))
        named = ",".join([f'"{handle}"'] * 65)
        assert "one call" in sentence(await one.call("read", f'{{"path":[{named}]}}'))


# --- while the tool runs --------------------------------------------------------------------------------------


async def test_file_stays_while_its_call_runs(tmp_path: Path) -> None:
    """Neither its time nor a neighbour in need of room takes it from the tool; afterwards its time begins anew."""
    go_on = asyncio.Event()

    def slow(request: UpstreamRequest) -> ScriptedAnswer:
        return ScriptedAnswer(chunks=[said("read")], after=go_on)

    limits = Limits(10, None, None, "lru_uploads_then_artifacts")
    async with tools(tmp_path, slow, limits=limits) as one:
        handle = await one.handle(b"12345678")
        call = asyncio.create_task(one.call("read", f'{{"path":"{handle}"}}'))
        await until(lambda: one.upstream.requests)
        one.clock.now += 1000
        await one.registry.tidy()
        with pytest.raises(Exception, match="max_total_session_size"):
            await one.uploaded(b"12345678")
        assert Path(arguments_of(one.upstream.requests[0])["path"]).read_bytes() == b"12345678"
        go_on.set()
        await call
        await one.registry.tidy()
        assert len(list(tmp_path.glob("uploads/*/*/note.txt"))) == 1
        one.clock.now += 101
        await one.registry.tidy()
        assert one.on_disk() == []


async def test_refused_call_holds_nothing(tmp_path: Path) -> None:
    """A good handle beside a bad one is let go of again."""
    async with tools(tmp_path, OK) as one:
        handle = await one.handle(b"hello")
        sentence(await one.call("read", f'{{"path":["{handle}","/etc/passwd"]}}'))
        one.clock.now += 101
        await one.registry.tidy()
        assert one.on_disk() == []


# --- artifacts as input ---------------------------------------------------------------------------------------


async def test_artifact_is_taken_wherever_an_upload_is(tmp_path: Path) -> None:
    """Under its own name and no other."""

    def write(request: UpstreamRequest) -> ScriptedAnswer:
        if b'"write"' in request.body:
            Path(arguments_of(request)["filename"]).write_bytes(b"made")
        return ScriptedAnswer(chunks=[said("done")])

    async with tools(tmp_path, write, producing=producing()) as one:
        made = await one.call("write", '{"filename":"a.txt"}')
        uri = made["result"]["_meta"]["artifact"]["artifact_uri"]
        await one.call("read", f'{{"path":"{uri}"}}')
        assert Path(arguments_of(one.upstream.requests[-1])["path"]).read_bytes() == b"made"
        renamed = uri.replace("a.txt", "b.txt")
        assert sentence(await one.call("read", f'{{"path":"{renamed}"}}'))
        (record,) = await one.artifacts()
        assert uri == uri_of(record)


# --- headers that mirror --------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"path": {"type": "string", "x-mcp-header": "File"}}}


async def modern_call(
    tmp_path: Path, headers: Sequence[tuple[str, str]], schema: object, arguments: str = '{"path":"@"}'
) -> tuple[str, UpstreamRequest]:
    """The handle, and what went upstream of a modern call whose headers say ``@`` where the handle stands."""
    async with tools(tmp_path, lambda request: ScriptedAnswer(chunks=[result('"content":[]')])) as one:
        if schema is not None:
            one.mirrors.learn(["read"], {"read": dict(annotated(schema))})
        record = await one.uploaded(b"hello", scope=principal_scope(b"", "anonymous"))
        handle = upload_handle(record.scope, record.id)
        params = {"name": "read", "arguments": orjson.loads(arguments.replace("@", handle)), "_meta": META}
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        sent = [(name, value.replace("@", handle)) for name, value in headers]
        await whole(await one.relaying.relay.handle(one.ask(body, None, headers=sent)))
        return handle, one.upstream.requests[-1]


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["known schema", "unknown schema"])
async def test_mirror_of_the_argument_says_what_the_body_says(tmp_path: Path, schema: object) -> None:
    """Otherwise the upstream would have to refuse the call; headers about other arguments stay."""
    headers = [("mcp-param-file", "@"), ("Mcp-Param-Size", "7"), ("Mcp-Name", "read")]
    _, request = await modern_call(tmp_path, headers, schema)
    path = arguments_of(request)["path"]
    assert path.endswith("/note.txt") and header(request.headers, "mcp-param-file") == path
    assert header(request.headers, "mcp-param-size") == "7"
    assert header(request.headers, "mcp-name") == "read"


async def test_known_schema_leaves_equal_values_of_others_alone(tmp_path: Path) -> None:
    """Another argument may hold the same text and has a mirror of its own, which still says so."""
    headers = [("Mcp-Param-File", "@"), ("Mcp-Param-Label", "@")]
    handle, request = await modern_call(tmp_path, headers, SCHEMA, '{"path":"@","label":"@"}')
    assert header(request.headers, "mcp-param-file") == arguments_of(request)["path"]
    assert header(request.headers, "mcp-param-label") == handle


async def test_schema_names_no_header_that_is_none(tmp_path: Path) -> None:
    """A name with a line break in it would begin a header of its own; it is passed over."""
    schema = {"properties": {"path": {"x-mcp-header": "File\r\nX-Evil: 1"}}}
    _, request = await modern_call(tmp_path, [("Mcp-Param-File", "@")], schema)
    assert not any("Evil" in name for name, _ in request.headers)
