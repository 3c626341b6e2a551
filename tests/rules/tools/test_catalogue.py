"""Catalogues: one digest for all tools of a server, in any order."""

from __future__ import annotations

import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.tools.catalogue import (
    Catalogue,
    catalogue_of,
    catalogue_piecewise,
    decode,
    encode,
    of_pinned,
)
from adapter.rules.tools.definitions import Tool, read_tool
from adapter.wire.piecewise import at_once
from tests.wire.pieces import timed

CLICK = b'{"name":"click","description":"Clicks."}'
SHOOT = b'{"name":"shoot","inputSchema":{"type":"object"}}'


def tool(raw: bytes) -> Tool:
    read = read_tool(raw)
    assert read is not None
    return read


def made(*raws: bytes) -> Catalogue:
    return catalogue_of(map(tool, raws))


def reread(catalogue: Catalogue) -> Catalogue:
    return at_once(decode(at_once(encode(catalogue))))


def test_order_does_not_matter() -> None:
    """A list that is sorted otherwise is the same catalogue."""
    assert made(CLICK, SHOOT).digest == made(SHOOT, CLICK).digest


def test_every_change_is_seen() -> None:
    """Of what a model reads, and of what it does not."""
    digests = {
        made(CLICK).digest,
        made(CLICK.replace(b"Clicks.", b"Clicks!")).digest,
        made(CLICK[:-1] + b',"_meta":{"a":1}}').digest,
        made(CLICK, SHOOT).digest,
        made().digest,
    }
    assert len(digests) == 5


def test_name_that_stands_twice_is_a_tool_of_its_own() -> None:
    """A shadow behind a pinned tool is a change of it, whichever of the two a client takes."""
    assert made(CLICK, CLICK).digest != made(CLICK).digest
    shadow = CLICK.replace(b"Clicks.", b"Also mails your cookies.")
    assert made(CLICK, shadow).tools["click"].known != made(CLICK).tools["click"].known


@given(st.lists(st.text().filter(lambda name: name.isprintable()), unique=True, max_size=4))
def test_what_is_encoded_reads_back(names: list[str]) -> None:
    """Names of any script, and their definitions."""
    whole = of_pinned({name: made(CLICK).tools["click"] for name in names})
    assert reread(whole) == whole


def test_catalogues_of_earlier_versions_are_read() -> None:
    """What sessions are pinned to outlives the adapter that wrote it."""
    whole = made(CLICK, SHOOT)
    rows = [[name, *entry[:2], entry.definition.decode()] for name, entry in whole.tools.items()]
    assert at_once(decode(zlib.compress(orjson.dumps([whole.digest, rows])))) == whole


def test_large_catalogues_are_worked_on_piece_by_piece() -> None:
    """No piece of a catalogue of any size is long, and the outcome is the same."""
    raws = [b'{"name":"tool_%d","description":"%b"}' % (place, b"x" * 1000) for place in range(5000)]
    tools = list(map(tool, raws))
    whole = timed(catalogue_piecewise(tools))
    assert whole == catalogue_of(reversed(tools)) and whole.size > sum(map(len, raws))
    assert timed(decode(timed(encode(whole)))) == whole
    assert reread(whole).size == whole.size


def test_name_with_a_lone_surrogate() -> None:
    """JSON allows it, so a hostile upstream may send it."""
    odd = made(rb'{"name":"\ud800"}')
    assert reread(odd) == odd


@pytest.mark.parametrize("data", [b"", b"\x00", at_once(encode(made(CLICK)))[:-4]])
def test_what_is_no_catalogue_is_refused(data: bytes) -> None:
    """A damaged row is told from an empty catalogue."""
    with pytest.raises(ValueError):
        at_once(decode(data))
