"""Additions to results of upstreams, and results of the adapter's own. Pure.

A response is edited, not written again: numbers, order, duplicates and escapes keep their bytes, and a response in
which nothing changes is returned as the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from adapter.errors import BadJson, UpstreamBroken
from adapter.rules.files.structured_artifacts import Shown
from adapter.wire import spans
from adapter.wire.envelope import dump
from adapter.wire.scan import byte, end_of_value, skip_space, text_pieces

Withhold = Callable[[str], str]
"""A text, to what of it may be seen; the same text where that is all."""

LONG_TEXT = 1 << 16
"""Bytes of a string that is seen in parts: other threads wait for the end of a search."""

_OBJECT, _ARRAY, _COLON, _BACKSLASH = b"{[:\\"
_SPACE = b" \t\n\r"
_BASE64 = (b'"data"', b'"blob"')


# --- the upstream's results -----------------------------------------------------------------------------------


def succeeded(message: object) -> bool:
    """Tell whether a response to ``tools/call``, decoded, is the complete result of a call that did not fail."""
    result = message.get("result") if isinstance(message, dict) else None
    return (
        isinstance(result, dict)
        and result.get("isError") is not True
        and result.get("resultType") in (None, "complete")
    )


def is_task(result: object) -> bool:
    """Tell whether a call goes on in the background, so that this is not its result.

    Source of the rules: MCP 2025-11-25, "Tasks", and the extension of that name for 2026-07-28, which says so in
    ``resultType``.
    """
    if not isinstance(result, dict):
        return False
    return result.get("resultType") == "task" or (
        isinstance(result.get("task"), dict) and "content" not in result
    )


def with_artifacts(
    response: bytes,
    shown: Sequence[Shown],
    withheld: Withhold,
    names: Sequence[str] = (),
    *,
    refers: bool = False,
) -> bytes:
    """The result with these artifacts in ``_meta`` and behind its blocks, its paths withheld.

    ``_meta.artifact`` is the first, ``_meta.artifacts`` all of several. Structured content that is an object lists
    them under the first of the ``names`` that it does not have, with ``refers`` as file references. A response that did
    not succeed stays as it is.
    """
    meta: dict[str, Any] = {"artifact": shown[0].meta} if shown else {}
    if len(shown) > 1:
        meta["artifacts"] = [artifact.meta for artifact in shown]
    blocks = [block for artifact in shown for block in artifact.blocks()]
    entries = [artifact.reference if refers else artifact.entry for artifact in shown if names]
    listing = [(name, entries) for name in names if shown]
    return _with(response, meta, blocks, withheld, listing=listing)


def with_artifact_error(response: bytes, sentence: str, withheld: Withhold) -> bytes:
    """The result of a call that succeeded, with the sentence that says why its file was not kept in
    ``_meta.artifact_error``, its paths withheld. A response that did not succeed stays as it is.
    """
    return _with(response, {"artifact_error": sentence}, [], withheld)


def with_failure(response: bytes, sentence: str, withheld: Withhold) -> bytes:
    """The result of a call that succeeded as that of one that failed for want of its file: the upstream's blocks,
    behind them the sentence, its paths withheld. A response that did not succeed stays as it is.
    """
    block = {"type": "text", "text": sentence}
    return _with(response, {"artifact_error": sentence}, [block], withheld, failed=True)


def without_paths(response: bytes, withheld: Withhold) -> bytes:
    """Return a message of any kind with every string value as ``withheld`` lets it be seen.

    Three things stay: keys, the base64 members of content blocks (a path could only appear there by chance), and the
    ``requestState`` of a result that asks for input, because its server has to read it again. A long string is seen in
    parts that end with a line.
    """
    if _spares(withheld, response):
        return response
    return _patched(response, _patches(response, _read(response), withheld))


# --- the adapter's own ----------------------------------------------------------------------------------------


def rpc_result(id_bytes: bytes, result: Mapping[str, Any]) -> bytes:
    """A whole JSON-RPC response; ``id_bytes`` is the request's id as it was spelled. Raises UpstreamBroken where the
    result is nested too deep, which only an upstream's is.
    """
    try:
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id_bytes, dump(result))
    except BadJson as error:
        raise UpstreamBroken(str(error)) from None


def tool_result(
    id_bytes: bytes, text: str, structured: Mapping[str, Any] | None, modern: bool, is_error: bool = False
) -> bytes:
    """A whole JSON-RPC response to ``tools/call`` with one text block; a modern client is told that it is complete."""
    result: dict[str, Any] = {"resultType": "complete"} if modern else {}
    result["content"] = [{"type": "text", "text": text}]
    if structured is not None:
        result["structuredContent"] = structured
    result["isError"] = is_error
    return rpc_result(id_bytes, result)


# --- edits ----------------------------------------------------------------------------------------------------


_Parts = Mapping[str, spans.Span]
"""Where the values of a result's members stand; of duplicates the last counts."""

_Read = Sequence[tuple[spans.Member, Sequence[spans.Member]]]
"""The members of a message, each with the members of its value if that is a result."""

_Patch = tuple[int, int, bytes]
"""Where a part of a message begins and ends, and what stands there then."""


_Listing = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]
"""What structured content may list, and under which name: the first of them whose name is free."""


def _read(response: bytes) -> _Read:
    message: list[tuple[spans.Member, Sequence[spans.Member]]] = []
    for member in spans.members(response):
        is_result = member.key == "result" and response.startswith(b"{", member.value_start)
        message.append((member, list(spans.members(response, member.value_start)) if is_result else ()))
    return message


def _parts_of_success(response: bytes, message: _Read) -> _Parts | None:
    result = None
    for each in message:
        if each[0].key == "result":
            result = each
    if result is None or not response.startswith(b"{", result[0].value_start):
        return None
    parts = {part.key: (part.value_start, part.value_end) for part in result[1]}
    failed = _text(response, parts.get("isError")) == b"true"
    complete = _text(response, parts.get("resultType")) in (b"", b"null", b'"complete"')
    return None if failed or not complete else parts


def _with(
    response: bytes,
    meta: Mapping[str, Any],
    blocks: Sequence[Mapping[str, Any]],
    withheld: Withhold,
    *,
    listing: _Listing = (),
    failed: bool = False,
) -> bytes:
    message = _read(response)
    parts = _parts_of_success(response, message)
    if parts is None:
        return response
    patches = [] if _spares(withheld, response) else _patches(response, message, withheld)
    patches += _listed(response, parts.get("structuredContent"), listing)
    content = parts.get("content")
    has_list = content is not None and byte(response, content[0]) == _ARRAY
    if content is not None and has_list and blocks:
        patches.append(_last(response, content[1], b",".join(map(dump, blocks))))
    if has_list and "_meta" not in parts and not failed:
        # All that most results need.
        if meta:
            tail = max(end for _, end in parts.values())
            patches.append((tail, tail, b',"_meta":' + dump(meta)))
        return _patched(response, sorted(patches))
    seen = _patched(response, sorted(patches))
    if seen is not response:
        parts = _parts_of_success(seen, _read(seen)) or {}
    edits = list(_meta_edits(seen, parts, meta))
    if blocks and (content is None or response.startswith(b"null", content[0])):
        # Content that is no list is not a place for any.
        edits.append(spans.Insert(("result", "content"), dump(blocks)))
    if failed:
        edits.append(spans.Insert(("result", "isError"), b"true"))
    return spans.edit(seen, edits) if edits else seen


def _listed(response: bytes, structured: spans.Span | None, listing: _Listing) -> Iterator[_Patch]:
    """Put one of the listings in the structured content, if that is an object in which its name is free."""
    if listing and structured is not None and byte(response, structured[0]) == _OBJECT:
        taken = {member.key for member in spans.members(response, structured[0])}
        for name, files in listing:
            if name not in taken:
                yield _last(response, structured[1], b'"%b":%b' % (name.encode("ascii"), dump(files)))
                return


def _last(response: bytes, end: int, text: bytes) -> _Patch:
    """Put a text behind the last item of the list or object that ends there."""
    at = end - 1
    while response[at - 1] in _SPACE:
        at -= 1
    comma = b"" if response[at - 1] in (_ARRAY, _OBJECT) else b","
    return at, at, comma + text


def _patched(response: bytes, patches: Sequence[_Patch]) -> bytes:
    """The response with these patches, which stand in their order; itself where there are none."""
    if not patches:
        return response
    # Most of it may be megabytes, which are copied once.
    came = memoryview(response)
    pieces: list[bytes | memoryview] = []
    at = 0
    for start, end, text in patches:
        pieces += (came[at:start], text)
        at = end
    return b"".join((*pieces, came[at:]))


def _meta_edits(response: bytes, parts: _Parts, meta: Mapping[str, Any]) -> Iterator[spans.Edit]:
    there = _text(response, parts.get("_meta"))
    if not there or there.startswith(b"{"):
        for key, value in meta.items():
            yield spans.Insert(("result", "_meta", key), dump(value))
    elif meta:
        yield spans.Insert(("result", "_meta"), dump(meta))


def _spares(withheld: Withhold, response: bytes) -> bool:
    """Tell whether it is known without reading its strings that none changes."""
    # Late: only an adapter with files has any, and has loaded it by then.
    from adapter.rules.files.redaction import Redaction

    return isinstance(withheld, Redaction) and withheld.spares(response)


def _patches(response: bytes, message: _Read, withheld: Withhold) -> list[_Patch]:
    return [
        patch
        for start, end, skip in _readable(response, message)
        for patch in _seen(response, start, end, skip, withheld)
    ]


def _readable(response: bytes, message: _Read) -> Iterator[tuple[int, int, tuple[bytes, ...]]]:
    """Yield the places in a message that hold strings that are read, in order.

    With each place come the keys under which it holds no such strings.
    """
    for member, parts in message:
        if parts:
            asks = any(
                part.key == "resultType" and response.startswith(b'"input_required"', part.value_start)
                for part in parts
            )
            for part in parts:
                if not (asks and part.key == "requestState"):
                    yield part.value_start, part.value_end, _BASE64 if part.key == "content" else ()
        elif member.key in ("result", "error", "params"):
            yield member.value_start, member.value_end, ()


def _seen(
    response: bytes, start: int, end: int, skip: tuple[bytes, ...], withheld: Withhold
) -> Iterator[_Patch]:
    """The string values between two places that change, and what they become."""
    key = b""
    # Outside a string JSON has no quote, so one after the other is found without a look at the nesting.
    at = response.find(b'"', start, end)
    while at >= 0:
        string_end = end_of_value(response, at)
        if byte(response, skip_space(response, string_end)) == _COLON:
            key = response[at:string_end]
        else:
            if key not in skip:
                for begin, stop in _parts_of_text(response, at + 1, string_end - 1):
                    text = "".join(text_pieces(response, begin, stop))
                    seen = withheld(text)
                    if seen != text:
                        steps = range(0, len(seen), LONG_TEXT)
                        yield begin, stop, b"".join(dump(seen[at : at + LONG_TEXT])[1:-1] for at in steps)
            key = b""
        at = response.find(b'"', string_end, end)


def _parts_of_text(response: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut what stands between the quotes of a string behind line ends, since no path goes on there."""
    stop = at
    while end - at > LONG_TEXT:
        line_end = response.find(b"\\n", max(stop, at + LONG_TEXT), end)
        if line_end < 0:
            break
        stop = line_end + 2
        # Behind another backslash it may be an escaped backslash and the letter.
        if response[line_end - 1] != _BACKSLASH:
            yield at, stop
            at = stop
    yield at, end


def _text(response: bytes, span: spans.Span | None) -> bytes:
    return b"" if span is None else response[span[0] : span[1]]
