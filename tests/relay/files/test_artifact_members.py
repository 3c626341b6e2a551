"""The member of structured content that lists artifacts, where callers see differing definitions of a tool."""

from __future__ import annotations

import orjson

from adapter.relay.files.artifact_members import ArtifactMembers
from adapter.relay.stages import Call, CallOrigin
from adapter.rules.files.structured_artifacts import MEMBERS
from adapter.wire.envelope import Envelope, read_envelope
from tests.edge.raw import call_body
from tests.relay.filing import ALICE


async def test_differing_definitions_leave_no_member_free() -> None:
    """Whichever was read last: a client checks the answer by the schema that it was given itself."""
    body = call_body("write")
    envelope = read_envelope(body)
    assert isinstance(envelope, Envelope)
    call, members = Call(CallOrigin("desk"), ALICE, envelope, body), ArtifactMembers()
    taken = orjson.dumps(
        {"name": "write", "outputSchema": {"type": "object", "properties": {"artifacts": {}}}}
    )
    free = taken.replace(b'"artifacts":{}', b"")
    members.learn("write", free)
    members.learn("write", free)
    assert await members.of(call) == MEMBERS
    for definition in (taken, free):
        members.learn("write", definition)
        assert await members.of(call) == ()
