"""Spans of requests: which are recorded, what becomes a child of them, and what metrics can ask for."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import sampling

from adapter.rules.results.refusals import public_line
from adapter.telemetry.request_spans import RequestSpan, RequestSpans
from adapter.telemetry.signals import AttributeRedaction
from tests.telemetry.recording import Recording

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = (TRACE, PARENT, 1), (TRACE, PARENT, 0)


def spans(recorded: list[RequestSpan], sampler: sampling.Sampler) -> RequestSpans:
    """A recorder into this list."""
    return RequestSpans(recorded.append, sampler, AttributeRedaction(public_line))


@pytest.mark.parametrize(
    ("sampler", "recorded"),
    [
        (sampling.ParentBased(sampling.ALWAYS_ON), [True, True, False]),
        (sampling.ParentBased(sampling.ALWAYS_OFF), [False, True, False]),
        (sampling.ALWAYS_ON, [True, True, True]),
        (sampling.ALWAYS_OFF, [False, False, False]),
        (sampling.TraceIdRatioBased(0.0), [False, False, False]),
    ],
)
def test_the_sampler_decides(sampler: sampling.Sampler, recorded: list[bool]) -> None:
    """About a new trace, one that a client records, and one that it does not record."""
    ended: list[RequestSpan] = []
    recorder = spans(ended, sampler)
    sort = recorder.sort("ping", {}, client=False)
    found = []
    for parent in (None, SAMPLED, NOT_SAMPLED):
        span = recorder.begin(sort, 1, parent)
        assert recorder.current() is span
        found.append(span.sampled)
        recorder.end(span)
        assert recorder.current() is None
    assert found == recorded
    assert len(ended) == recorded.count(True)


def test_a_request_is_the_parent_of_what_happens_within() -> None:
    """Stages are its children, their notes are its attributes, and exemplars name its trace."""
    recording = Recording()
    ended: list[RequestSpan] = []
    recorder = spans(ended, sampling.ParentBased(sampling.ALWAYS_ON))
    assert recorder.exemplar() is None
    span = recorder.begin(recorder.sort("tools/call tool", {}, client=False), "a" * 100, SAMPLED)
    assert recorder.exemplar() == TRACE
    assert recording.tracing.trace_id() == TRACE
    recording.tracing.current().set("api_key", "SECRET-7")
    recording.tracing.current().fail(ValueError("no way to postgres://me:hunter2@db/x"))
    with recording.tracing.span("stage.auth", {}):
        assert recorder.exemplar() == TRACE
    recorder.end(span)
    assert recorder.exemplar() is None
    stage = recording.spans["stage.auth"]
    assert stage.parent is not None and f"{stage.parent.span_id:016x}" == span.span_id
    assert span.request_id == "a" * 64
    assert span.extras is not None and span.extras.failed
    assert span.extras.attributes == {"api_key": "[REDACTED]"}
    assert "hunter2" not in repr(span.extras.events) + span.extras.message


def test_what_is_within_an_unrecorded_request_is_not_recorded() -> None:
    """Neither stages nor exemplars."""
    recording = Recording()
    ended: list[RequestSpan] = []
    recorder = spans(ended, sampling.ParentBased(sampling.ALWAYS_ON))
    span = recorder.begin(recorder.sort("ping", {}, client=False), 1, NOT_SAMPLED)
    with recording.tracing.span("stage.auth", {}):
        assert recorder.exemplar() is None
    assert recorder.exemplar() is None
    recorder.end(span)
    assert recording.spans == {} and not ended
    assert "ParentBased" in repr(recorder)
    assert isinstance(span, RequestSpan) and "ping" in repr(span)
