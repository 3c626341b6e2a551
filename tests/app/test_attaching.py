"""Tools to whose calls hosts attach files, where callers see differing definitions of one."""

from __future__ import annotations

from typing import cast

import orjson

from adapter.app.attaching import Attaching
from adapter.relay.files.attachments import AttachedFiles
from adapter.relay.sessions.session_map import client_infos
from adapter.relay.stages import Call, CallOrigin
from adapter.rules.files.attached_files import parameter_of
from adapter.rules.tools.visibility import ShapedDefinition
from adapter.wire.envelope import Envelope, read_envelope
from tests.edge.raw import call_body
from tests.relay.filing import ALICE
from tests.relay.relaying import Relaying
from tests.scripted import ScriptedUpstream


async def test_an_argument_that_is_the_tools_for_anybody_is_not_taken() -> None:
    """Whichever definition was read last: a call may be of a caller to whom the argument means something else."""
    body = call_body("read")
    envelope, parameter = read_envelope(body), parameter_of("options.path")
    assert isinstance(envelope, Envelope) and parameter is not None
    names = client_infos(Relaying(ScriptedUpstream([])).sessions)
    attaching = Attaching({"read": parameter}, names, always=True)
    learned = attaching.learning(lambda _, definition: ShapedDefinition(definition))
    rule, call = (
        attaching.stage("read", "upload://", cast(AttachedFiles, None)),
        Call(CallOrigin("desk"), ALICE, envelope, body),
    )
    options = {"type": "object", "properties": {"path": {"type": "string"}}}
    properties = {"options": options, "options_path": {}}
    own = orjson.dumps({"name": "read", "inputSchema": {"type": "object", "properties": properties}})
    lifted = own.replace(b',"options_path":{}', b"")
    learned("read", lifted)
    assert await rule.applies(call)
    for definition in (own, lifted):
        learned("read", definition)
        assert not await rule.applies(call)
