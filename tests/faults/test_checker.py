"""The checker finds each kind of broken promise in a history that breaks it, and nothing in one that does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.checker import Promises, excerpt, violations
from tests.faults.history import Execution, Fault, History, Operation, Told, Verb

PROMISES = Promises(silence=10, grace=0.5, ttl=100, quota=1000)

OPEN = Operation(Verb.OPEN, "a/1", "t0", 0, 1, Told.DONE, said="id-1")
CALL = Operation(Verb.COUNT, "a/1", "t1", 2, 3, Told.DONE, said="t1")
UPLOAD = Operation(Verb.UPLOAD, "a/1", "t2", 4, 5, Told.DONE, file="upload://f", digest="d1", size=600)
CONSUME = Operation(
    Verb.CONSUME, "a/1", "t3", 6, 7, Told.DONE, said="t3", file="upload://f", digest="d1", size=600
)
END = Operation(Verb.END, "a/1", "t4", 20, 21, Told.DONE)
RAN = (Execution("t1", "u1"), Execution("t3", "u1"))


def history(*operations: Operation, ran: tuple[Execution, ...] = RAN) -> History:
    """A history of these requests."""
    return History(list(operations), list(ran))


def broken(told: History) -> list[str]:
    """The names of the rules that a history breaks."""
    return [violation.rule for violation in violations(told, PROMISES)]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    """A session that opens, calls, moves a file and ends keeps every rule."""
    assert broken(history(OPEN, CALL, UPLOAD, CONSUME, END)) == []


def test_failures_that_say_so_are_no_violation() -> None:
    """A refused or broken request promises nothing, and may or may not have been executed."""
    refused = replace(CALL, told=Told.REFUSED, said="")
    assert broken(history(OPEN, refused, ran=())) == []
    assert broken(history(OPEN, replace(CALL, told=Told.BROKEN, said=""), ran=RAN[:1])) == []


def test_call_that_runs_twice() -> None:
    """Two executions of one request are found, also if its client has no answer."""
    lost = replace(CALL, told=Told.BROKEN, said="")
    assert broken(history(OPEN, lost, ran=(RAN[0], RAN[0]))) == ["executed_once"]


def test_answer_without_a_call() -> None:
    """A result of a request that has never run is found."""
    assert broken(history(OPEN, CALL, ran=())) == ["executed_if_done"]


def test_answer_of_another_request() -> None:
    """A result with the token of another request is found, with both requests."""
    other = replace(CALL, session="b/1", token="t9", said="t9")
    found = violations(
        history(OPEN, replace(CALL, said="t9"), other, ran=(*RAN, Execution("t9", "u2"))), PROMISES
    )
    assert [(each.rule, len(each.operations)) for each in found] == [("own_answer", 2)]


def test_session_of_the_upstream_for_two_clients() -> None:
    """An upstream session that serves two sessions is found."""
    other = replace(CALL, session="b/1", token="t9", said="t9")
    assert broken(history(OPEN, CALL, other, ran=(*RAN, Execution("t9", "u1")))) == ["own_upstream_session"]


def test_session_id_for_two_clients() -> None:
    """A session id that is given twice is found."""
    assert broken(history(OPEN, replace(OPEN, session="b/1", token="t9"))) == ["own_session"]


def test_session_that_is_lost() -> None:
    """An open session that is unknown is found; one that somebody has tried to end is not."""
    unknown = replace(CALL, told=Told.GONE, said="", begun=30, ended=31)
    assert broken(history(OPEN, unknown)) == ["sessions_kept"]
    assert broken(history(OPEN, replace(END, told=Told.BROKEN), unknown)) == []


def test_pinned_session_that_may_have_ended() -> None:
    """A change of a tool, by whichever client, may end each pinned session, and no other one."""
    change = replace(
        CALL, session="b/1", token="t9", verb=Verb.CHANGE, told=Told.BROKEN, said="", begun=25, ended=26
    )
    unknown = replace(CALL, told=Told.GONE, said="", begun=30, ended=31)
    pinned = [replace(each, pinned=True) for each in (OPEN, unknown)]
    assert broken(history(*pinned)) == ["sessions_kept"]
    assert broken(history(*pinned, change)) == []
    assert broken(history(OPEN, unknown, change)) == ["sessions_kept"]


def test_upload_that_is_lost() -> None:
    """A file that was acknowledged and is not there is found, until its time is over or its session may have ended."""
    gone = replace(CONSUME, told=Told.GONE, said="")
    assert broken(history(OPEN, UPLOAD, gone)) == ["files_kept"]
    assert broken(history(OPEN, UPLOAD, replace(gone, begun=110, ended=111))) == []
    assert broken(history(OPEN, UPLOAD, replace(END, told=Told.BROKEN, begun=5.5, ended=6), gone)) == []


def test_upload_that_made_room_for_others() -> None:
    """A file may be gone when the session has stored more than its quota since."""
    more = replace(UPLOAD, token="t9", begun=5.5, ended=5.6, told=Told.BROKEN, file="")
    assert broken(history(OPEN, UPLOAD, more, replace(CONSUME, told=Told.GONE, said=""))) == []


def test_file_with_other_bytes() -> None:
    """A file that reads back as another is found."""
    assert broken(history(OPEN, UPLOAD, replace(CONSUME, digest="d2"))) == ["files_kept"]


def test_credential_that_is_good_for_two_uploads() -> None:
    """Two acknowledged uploads by one URL are found."""
    first = replace(UPLOAD, credential="/upload?once", size=10)
    second = replace(first, token="t9", file="upload://g")
    assert broken(history(OPEN, first, second)) == ["one_upload_for_a_credential"]


@pytest.mark.parametrize("ending", [END, replace(END, verb=Verb.REVOKE)], ids=["ended", "revoked"])
def test_request_that_is_served_after_the_end(ending: Operation) -> None:
    """A call, a file and an upload that are served after the acknowledged end of their session are found."""
    call = replace(CALL, begun=22, ended=23)
    read = replace(CONSUME, begun=22, ended=23)
    upload = replace(UPLOAD, token="t9", file="upload://g", begun=22, ended=23, size=1)
    for late in (call, read, upload):
        assert broken(history(OPEN, UPLOAD, ending, late)) == ["nothing_after_the_end"]


def test_request_that_was_on_its_way_when_its_session_ended() -> None:
    """A request that began before the end was acknowledged, or within the grace of other replicas, may be served."""
    assert broken(history(OPEN, END, replace(CALL, begun=20.5, ended=23))) == []
    assert broken(history(OPEN, END, replace(CALL, begun=21.4, ended=23))) == []


def test_files_above_the_quota() -> None:
    """A session whose readable files are larger than its quota is found."""
    second = replace(UPLOAD, token="t9", file="upload://g")
    reads = [
        replace(CONSUME, begun=30, ended=31, calm=True),
        replace(CONSUME, begun=32, ended=33, calm=True, file="upload://g", token="t8", said="t8"),
    ]
    ran = (*RAN, Execution("t8", "u1"))
    assert broken(history(OPEN, UPLOAD, second, *reads, ran=ran)) == ["quota_kept"]


@pytest.mark.parametrize("told", [Told.SILENT, Told.EMPTY])
def test_request_without_an_answer(told: Told) -> None:
    """Silence, and an answer that ends without a response, are found."""
    assert broken(history(OPEN, replace(CALL, told=told, said=""))) == ["answered"]


def test_answer_that_comes_too_late() -> None:
    """An answer after more than the bound is found."""
    assert broken(history(OPEN, replace(CALL, ended=13))) == ["answered"]


def test_internal_error() -> None:
    """An internal error is found."""
    assert broken(history(OPEN, replace(CALL, told=Told.FAULTY, said=""))) == ["never_faulty"]


def test_session_that_does_not_recover() -> None:
    """A session that is refused when all faults are over is found."""
    refused = replace(CALL, told=Told.REFUSED, said="", calm=True)
    assert broken(history(OPEN, refused)) == ["recovered"]
    assert broken(history(OPEN, replace(END, told=Told.REFUSED, begun=1, ended=2), refused)) == []


def test_excerpt_is_about_one_violation() -> None:
    """The excerpt has the requests of the file or session and the faults meanwhile, and nothing else."""
    told = history(OPEN, CALL, UPLOAD, replace(CONSUME, told=Told.GONE, said=""), END)
    told.faults = [Fault("kill -9", "replica-1", 5.2, 5.9), Fault("pause", "upstream", 90, 91)]
    (violation,) = violations(told, PROMISES)
    shown = excerpt(told, violation)
    assert shown.startswith("files_kept: A file that was acknowledged is lost.")
    assert "kill -9 of replica-1" in shown
    assert "pause" not in shown
    requests = [line.split()[5].rstrip(":") for line in shown.splitlines() if "a/1" in line]
    assert requests == ["t0", "t2", "t3", "t4"]
