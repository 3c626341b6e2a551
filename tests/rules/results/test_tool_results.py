"""Results: what is added to an upstream's, what is withheld from it, and that all else keeps its bytes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.files.structured_artifacts import Shown, ShownFile
from adapter.rules.results.tool_results import (
    LONG_TEXT,
    rpc_result,
    succeeded,
    tool_result,
    with_artifact_error,
    with_artifacts,
    without_paths,
)
from adapter.wire.envelope import parse

SHOT = Shown(
    uri="artifact://sessions/5c09e/a1/%E5%90%8D.png",
    id="a1",
    file=ShownFile("名.png", "image/png", 3, "ab" * 32),
    expires_at="2030-01-01T00:00:00Z",
    exposed=True,
)
META = {
    "artifact_uri": "artifact://sessions/5c09e/a1/%E5%90%8D.png",
    "artifact_id": "a1",
    "filename": "名.png",
    "mime_type": "image/png",
    "size_bytes": 3,
    "sha256": "ab" * 32,
    "expires_at": "2030-01-01T00:00:00Z",
    "expose_as_resource": True,
}
LINK = {"type": "resource_link", "uri": SHOT.uri, "name": "名.png", "mimeType": "image/png", "size": 3}


def shown(**changes: Any) -> Shown:
    fields = {name: getattr(SHOT, name) for name in Shown.__slots__}
    return Shown(**{**fields, **changes})


def as_it_is(text: str) -> str:
    return text


def hide(text: str) -> str:
    return text.replace("/store/x.png", "artifact://x")


def result_of(response: bytes) -> Any:
    return json.loads(response)["result"]


def test_an_artifact_is_added_behind_what_is_there() -> None:
    """The upstream's bytes all stay, in order; metadata and a link are new."""
    response = (
        b'{"jsonrpc":"2.0", "id":1 ,"result":{"n":1.0,"n":12345678901234567890123,'
        b'"content":[ {"type":"text","text":"\\ud800 \\u0041"} ],"_meta":{"k":1e2}} }'
    )
    added = with_artifacts(response, [SHOT], as_it_is)
    link = json.dumps(LINK, ensure_ascii=False, separators=(",", ":")).encode()
    meta = json.dumps(META, ensure_ascii=False, separators=(",", ":")).encode()
    assert added == response.replace(b'"} ]', b'"},%b ]' % link).replace(
        b"1e2}", b'1e2,"artifact":%b}' % meta
    )


def test_a_download_is_told_in_metadata_and_text() -> None:
    """The text block is the one that scripts of the reference read."""
    url = "http://h/artifacts/s/5c09e/a1/x?exp=1&sig=2"
    result = result_of(with_artifacts(b'{"result":{"content":[]}}', [shown(download_url=url)], as_it_is))
    assert result["_meta"] == {"artifact": {**META, "download_url": url}}
    text = f"Artifact download URL: {url}\n[Download artifact]({url})"
    assert result["content"] == [LINK, {"type": "text", "text": text}]


@pytest.mark.parametrize(
    ("raw", "held"),
    [
        ("né\x00", {"text": "né\x00"}),
        (b"\xff\x00", {"blob": "/wA="}),
        (b"", {"blob": ""}),
        ("", {"text": ""}),
    ],
)
def test_raw_output_is_embedded(raw: str | bytes, held: dict[str, str]) -> None:
    """Text as text, bytes in base64, under the artifact's own URI."""
    result = result_of(with_artifacts(b'{"result":{"content":[]}}', [shown(raw=raw)], as_it_is))
    resource = {"uri": SHOT.uri, "mimeType": "image/png", **held}
    assert result["content"] == [LINK, {"type": "resource", "resource": resource}]


def test_several_artifacts() -> None:
    """The first stands alone, all stand together, their blocks in the same order."""
    result = result_of(with_artifacts(b'{"result":{"content":[7]}}', [SHOT, shown(id="a2")], as_it_is))
    assert result["_meta"] == {"artifact": META, "artifacts": [META, {**META, "artifact_id": "a2"}]}
    assert result["content"] == [7, LINK, LINK]


ENTRY = {"uri": SHOT.uri, "name": "名.png", "mimeType": "image/png", "size": 3, "sha256": "ab" * 32}


@pytest.mark.parametrize("more", ['"content":[]', '"content":null', '"_meta":{"k":1},"content":[ ]'])
@pytest.mark.parametrize(
    ("came", "left"),
    [
        ("{}", '{"artifacts":%s}'),
        ('{ "n" : 1.0, "p":"/store/x.png"\n}', '{ "n" : 1.0, "p":"artifact://x","artifacts":%s\n}'),
        ('{"artifacts":1}', '{"artifacts":1,"adapter_artifacts":%s}'),
        ('{"\\u0061rtifacts":1}', '{"\\u0061rtifacts":1,"adapter_artifacts":%s}'),
        ('{"artifacts":1,"adapter_artifacts":2}', '{"artifacts":1,"adapter_artifacts":2}'),
        ('{"in":{"artifacts":1}}', '{"in":{"artifacts":1},"artifacts":%s}'),
        ("[{}]", "[{}]"),
        ("null", "null"),
    ],
)
def test_structured_content_lists_artifacts(came: str, left: str, more: str) -> None:
    """Behind its own members, whose bytes stay but for paths; what is no object stays."""
    response = f'{{"result":{{"structuredContent":{came},{more}}}}}'.encode()
    seen = with_artifacts(response, [SHOT], hide, ("artifacts", "adapter_artifacts")).decode()
    entry = json.dumps([ENTRY], ensure_ascii=False, separators=(",", ":"))
    assert f'"structuredContent":{left.replace("%s", entry)},' in seen
    assert result_of(seen.encode())["content"] == [LINK]


def test_structured_content_is_not_made() -> None:
    """Where there is none, where no name is free, and where nothing was kept, none is listed."""
    names = ("artifacts",)
    assert "structuredContent" not in result_of(with_artifacts(b'{"result":{}}', [SHOT], as_it_is, names))
    kept = b'{"result":{"structuredContent":{},"content":[]}}'
    assert with_artifacts(kept, [], as_it_is, names) is kept
    assert result_of(with_artifacts(kept, [SHOT], as_it_is))["structuredContent"] == {}


def test_a_listed_artifact_has_its_link() -> None:
    """A person who sees nothing else can fetch the file, whatever is in its name."""
    odd = ShownFile("\ud800", "image/png", 3, "ab" * 32)
    response = b'{"result":{"structuredContent":{},"content":[]}}'
    artifacts = [SHOT, shown(download_url="http://h/x", file=odd)]
    seen = result_of(with_artifacts(response, artifacts, as_it_is, ("artifacts",)))
    assert seen["structuredContent"]["artifacts"] == [
        ENTRY,
        {**ENTRY, "name": "\ud800", "download_url": "http://h/x"},
    ]


@pytest.mark.parametrize(
    ("result", "content", "meta"),
    [
        ("{}", [LINK], {"artifact": META}),
        ('{"content":null,"_meta":null}', [LINK], {"artifact": META}),
        ('{"content":"odd","_meta":[]}', "odd", {"artifact": META}),
        ('{"content":[],"_meta":{"artifact":"theirs","k":1}}', [LINK], {"artifact": META, "k": 1}),
        ('{"resultType":"complete","isError":false}', [LINK], {"artifact": META}),
        ('{"content":[1],"content":[2]}', [2, LINK], {"artifact": META}),
    ],
)
def test_results_of_odd_shape(result: str, content: Any, meta: Any) -> None:
    """Content and metadata are made where there are none; a member of another type gets no blocks."""
    added = result_of(with_artifacts(b'{"result":%b}' % result.encode(), [SHOT], as_it_is))
    assert added["content"] == content
    assert added["_meta"] == meta


FAILED = [
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no /store/x.png"}}',
    b'{"result":{"content":[{"type":"text","text":"no /store/x.png"}],"isError":true}}',
    b'{"result":{"resultType":"input_required","inputRequests":{}}}',
    b'{"result":null}',
    b'{"result":[]}',
]


@pytest.mark.parametrize("response", FAILED)
def test_what_did_not_succeed_is_left_alone(response: bytes) -> None:
    """Errors, failed calls and results that are not complete keep every byte."""
    assert not succeeded(parse(response))
    assert with_artifacts(response, [SHOT], hide) is response
    assert with_artifact_error(response, "sentence", hide) is response


def test_paths_of_an_error_can_be_withheld() -> None:
    """Whoever wants it applied to failures asks for that alone."""
    assert without_paths(FAILED[0], hide) == FAILED[0].replace(b"/store/x.png", b"artifact://x")
    assert without_paths(FAILED[1], hide) == FAILED[1].replace(b"/store/x.png", b"artifact://x")


def test_a_failed_capture_is_told() -> None:
    """The call's result stays, with a sentence why there is no artifact."""
    response = b'{"result":{"content":[{"type":"text","text":"at /store/x.png"}]}}'
    told = with_artifact_error(response, "It was not written – 名.", hide)
    assert result_of(told) == {
        "content": [{"type": "text", "text": "at artifact://x"}],
        "_meta": {"artifact_error": "It was not written – 名."},
    }


def test_paths_are_withheld_from_values_only() -> None:
    """String values of blocks and structured content change; keys, base64, numbers and spaces do not."""
    response = (
        b'{"result":{"content":[{"type":"text" ,"text" : "a\\u0020\\/store\\/x.png"},'
        b'{"type":"resource","resource":{"uri":"u","blob" : "/store/x.png"}},{"data":"/store/x.png"},'
        b'"/store/x.png",{"type":"resource_link","uri":"file:///store/x.png","name":"n"}],'
        b'"structuredContent":{"/store/x.png":["/store/x.png",1.0,{"data":"/store/x.png"}]}}}'
    )
    assert without_paths(response, hide) == (
        b'{"result":{"content":[{"type":"text" ,"text" : "a artifact://x"},'
        b'{"type":"resource","resource":{"uri":"u","blob" : "/store/x.png"}},{"data":"/store/x.png"},'
        b'"artifact://x",{"type":"resource_link","uri":"file://artifact://x","name":"n"}],'
        b'"structuredContent":{"/store/x.png":["artifact://x",1.0,{"data":"artifact://x"}]}}}'
    )


def test_nothing_to_withhold_is_the_same_object() -> None:
    """A response in which nothing changes need not be written again."""
    response = b'{"result":{"content":[{"type":"text","text":"\\ud800"}]}}'
    assert without_paths(response, hide) is response
    assert with_artifacts(response, [], hide) is response


def test_a_name_that_is_no_unicode() -> None:
    """A lone surrogate in a file's name, or in a text that is withheld, comes out as an escape."""
    added = with_artifacts(
        b'{"result":{"content":[{"text":"\\ud800/store/x.png"}]}}',
        [shown(file=SHOT.file._replace(filename="\udcff.png"))],
        hide,
    )
    result = result_of(added)
    assert result["content"][0] == {"text": "\ud800artifact://x"}
    assert result["_meta"]["artifact"]["filename"] == "\udcff.png"
    assert b"\\udcff.png" in added


def test_nesting_and_size_are_no_obstacle() -> None:
    """Depth beyond any parser's and a hundred thousand strings are passed over in one go."""
    deep = b'{"a":' * 50_000 + b'"/store/x.png"' + b"}" * 50_000
    many = b",".join([b'"\\"/store/x.png"'] * 100_000)
    response = b'{"result":{"structuredContent":%b,"content":[%b]}}' % (deep, many)
    added = with_artifacts(response, [SHOT], hide)
    assert b"/store" not in added
    assert added.count(b"artifact://x") == 100_001


def test_a_long_text_is_seen_in_parts() -> None:
    """A text of megabytes is never searched in one piece, and each path in it is withheld all the same."""
    parts: list[int] = []

    def watching(text: str) -> str:
        parts.append(len(text))
        return hide(text)

    line = 'at /store/x.png "C:\\\\new" \\\n'
    text = (line * 8 + "seen\n") * 10_000
    response = json.dumps({"result": {"content": [{"text": text}]}}).encode()
    assert json.loads(without_paths(response, watching)) == hidden(json.loads(response))
    assert sum(parts) == len(text) and max(parts) < 2 * LONG_TEXT


def test_a_result_of_our_own() -> None:
    """The id is spelled as the client spelled it; only a modern client reads resultType."""
    legacy = tool_result(b"1.0", "done", None, modern=False)
    assert legacy == (
        b'{"jsonrpc":"2.0","id":1.0,"result":{"content":[{"type":"text","text":"done"}],"isError":false}}'
    )
    modern = tool_result(b'"\\u0061"', "no", {"n": 1}, modern=True, is_error=True)
    assert json.loads(modern) == {
        "jsonrpc": "2.0",
        "id": "a",
        "result": {
            "resultType": "complete",
            "content": [{"type": "text", "text": "no"}],
            "structuredContent": {"n": 1},
            "isError": True,
        },
    }
    assert not succeeded(parse(modern))
    assert succeeded(parse(legacy))
    assert rpc_result(b"null", {"s": "\ud800"}) == b'{"jsonrpc":"2.0","id":null,"result":{"s": "\\ud800"}}'


texts = st.sampled_from(["", "/store/x.png", "see /store/x.png\n", '"\\', "\ud800", "名"]) | st.text(
    max_size=4
)
trees = st.recursive(
    texts | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


def hidden(value: Any) -> Any:
    """What withholding means, said over decoded JSON."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [hidden(item) for item in value]
    return {key: hidden(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(trees, st.lists(trees, max_size=3), st.binary(max_size=4), st.booleans())
def test_any_result_means_the_same_with_artifacts(
    structured: Any, content: list[Any], raw: bytes, spaced: bool
) -> None:
    """Editing bytes and loading them is loading them and editing the value."""
    result = {"structuredContent": structured, "content": content}
    separators = (" ,\n", " :\t") if spaced else (",", ":")
    response = json.dumps({"id": 1, "result": result}, separators=separators).encode()
    added = with_artifacts(response, [shown(raw=raw)], hide)
    resource = {"uri": SHOT.uri, "mimeType": "image/png", "blob": base64.b64encode(raw).decode()}
    assert result_of(added) == {
        "structuredContent": hidden(structured),
        "content": [*hidden(content), LINK, {"type": "resource", "resource": resource}],
        "_meta": {"artifact": META},
    }
