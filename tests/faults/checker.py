"""The rules that every history must keep, whatever fails. Pure: a history goes in, violations come out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.faults.history import CALLS, ENDING, STORING, Fault, History, Operation, Told, Verb

AROUND = 1.0
"""Seconds before the first and after the last request of a violation, of which faults are shown."""


@dataclass(frozen=True, slots=True)
class Promises:
    """``silence``: seconds within which each request has an answer or a broken connection. ``grace``: seconds after
    the end of a session in which another replica may still serve it. ``ttl``: seconds that a file is kept at least.
    ``quota``: bytes of one session.
    """

    silence: float
    grace: float
    ttl: float
    quota: int


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a history breaks; ``operations`` are the requests that prove it, in the order of their begin."""

    rule: str
    sentence: str
    operations: tuple[Operation, ...]


class Ledger:
    """A history, arranged for the questions of the rules."""

    def __init__(self, history: History, promises: Promises) -> None:
        self.promises = promises
        self.operations = sorted(history.operations, key=lambda operation: operation.begun)
        self.by_token = {operation.token: operation for operation in self.operations}
        # A request whose client was cancelled is not in the history; its execution proves nothing.
        self.executions = [each for each in history.executions if each.token in self.by_token]
        changes = (each.begun for each in self.operations if each.verb is Verb.CHANGE)
        self.first_change = min(changes, default=math.inf)
        self.of_session: dict[str, list[Operation]] = defaultdict(list)
        for operation in self.operations:
            self.of_session[operation.session].append(operation)

    def ending(self, session: str) -> Operation | None:
        """The first acknowledged end of the session."""
        ended = (each for each in self.of_session[session] if each.verb in ENDING and each.told is Told.DONE)
        return min(ended, key=lambda operation: operation.ended, default=None)

    def may_have_ended(self, session: str, moment: float) -> bool:
        """Tell whether a request after which the session may have ended had begun by then."""
        operations = self.of_session[session]
        if operations and operations[0].pinned and self.first_change <= moment:
            return True
        return any(each.verb in ENDING and each.begun <= moment for each in operations)

    def stored(self, session: str, moment: float) -> int:
        """Bytes of all files that the session may have at most, if none was deleted."""
        asked = (each for each in self.of_session[session] if each.verb in STORING and each.begun <= moment)
        return sum(each.size for each in asked)


Rule = Callable[[Ledger], Iterator[tuple[str, Sequence[Operation]]]]


def answered(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """Each request has an answer or a broken connection, within the bound."""
    for each in ledger.operations:
        if each.told is Told.SILENT or each.ended - each.begun > ledger.promises.silence:
            yield "A request had no answer in time.", [each]
        elif each.told is Told.EMPTY:
            yield "An answer ended in good order without a response.", [each]


def never_faulty(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """No request is answered with an internal error."""
    for each in ledger.operations:
        if each.told is Told.FAULTY:
            yield "A request was answered with an internal error.", [each]


def executed_once(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """No call runs twice."""
    seen: set[str] = set()
    for execution in ledger.executions:
        if execution.token in seen:
            yield "A call was executed twice.", [ledger.by_token[execution.token]]
        seen.add(execution.token)


def executed_if_done(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """A call that was answered with its result has run."""
    ran = {execution.token for execution in ledger.executions}
    for each in ledger.operations:
        if each.verb in CALLS and each.told is Told.DONE and each.token not in ran:
            yield "A call was answered and has never been executed.", [each]


def own_answer(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """A result is that of the request that it answers."""
    for each in ledger.operations:
        if each.verb in CALLS and each.told is Told.DONE and each.said != each.token:
            other = ledger.by_token.get(each.said)
            yield "A request was answered with the result of another.", [each, *([other] if other else [])]


def own_upstream_session(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """Two sessions never share a session of the upstream."""
    users: dict[str, Operation] = {}
    for execution in ledger.executions:
        operation = ledger.by_token[execution.token]
        first = users.setdefault(execution.upstream_session, operation)
        if first.session != operation.session:
            yield "Two sessions used one session of the upstream.", [first, operation]


def own_session(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """No two sessions have the same id."""
    opened: dict[str, Operation] = {}
    for each in ledger.operations:
        if each.verb is Verb.OPEN and each.told is Told.DONE:
            first = opened.setdefault(each.said, each)
            if first is not each:
                yield "Two sessions got the same id.", [first, each]


def sessions_kept(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """A session that nobody has ended is never unknown."""
    for each in ledger.operations:
        about_session = not each.file and each.verb is not Verb.OPEN
        if about_session and each.told is Told.GONE and not ledger.may_have_ended(each.session, each.ended):
            opened = ledger.of_session[each.session][0]
            yield "A session that nobody has ended is unknown.", [opened, each]


def files_kept(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """A file whose storing was acknowledged is there, with its own bytes, until its time is over."""
    stored = {
        each.file: each for each in ledger.operations if each.verb in STORING and each.told is Told.DONE
    }
    for each in ledger.operations:
        first = stored.get(each.file)
        if first is None or each.verb not in (Verb.CONSUME, Verb.DOWNLOAD):
            continue
        if each.told is Told.GONE and _must_be_there(ledger, first, each):
            yield "A file that was acknowledged is lost.", [first, each]
        if each.told is Told.DONE and each.digest != first.digest:
            yield "A file was read with other bytes than were stored.", [first, each]


def _must_be_there(ledger: Ledger, stored: Operation, used: Operation) -> bool:
    return (
        used.ended < stored.begun + ledger.promises.ttl
        and not ledger.may_have_ended(used.session, used.ended)
        and ledger.stored(used.session, used.ended) <= ledger.promises.quota
    )


def one_upload_for_a_credential(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """An upload URL is good for one upload."""
    used: dict[str, Operation] = {}
    for each in ledger.operations:
        if each.verb is Verb.UPLOAD and each.told is Told.DONE and each.credential:
            first = used.setdefault(each.credential, each)
            if first is not each:
                yield "An upload URL was used twice.", [first, each]


def nothing_after_the_end(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """After the end of a session was acknowledged nothing of it is served, but for uploads that were offered before."""
    for session, operations in ledger.of_session.items():
        ending = ledger.ending(session)
        for each in operations if ending is not None else ():
            assert ending is not None
            late = each.begun > ending.ended + ledger.promises.grace and not each.credential
            if late and each.told is Told.DONE and each.verb is not Verb.END:
                yield "A request was served after its session had ended.", [ending, each]


def quota_kept(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """The files of a session that can be read when all is calm are no larger than its quota."""
    for operations in ledger.of_session.values():
        read = {
            each.file: each
            for each in operations
            if each.calm and each.verb in (Verb.CONSUME, Verb.DOWNLOAD) and each.told is Told.DONE
        }
        if sum(each.size for each in read.values()) > ledger.promises.quota:
            yield "The files of a session are larger than its quota.", list(read.values())


def recovered(ledger: Ledger) -> Iterator[tuple[str, Sequence[Operation]]]:
    """Sessions that nobody has ended are served when all faults are over, without anybody's help."""
    for each in ledger.operations:
        refused = each.calm and each.verb in (Verb.COUNT, Verb.OPEN) and each.told is not Told.DONE
        if refused and not ledger.may_have_ended(each.session, each.ended):
            yield "A request is not served though all faults are over.", [each]


RULES: tuple[Rule, ...] = (
    executed_once,
    executed_if_done,
    own_answer,
    own_upstream_session,
    own_session,
    sessions_kept,
    files_kept,
    one_upload_for_a_credential,
    nothing_after_the_end,
    quota_kept,
    answered,
    never_faulty,
    recovered,
)


def violations(history: History, promises: Promises) -> list[Violation]:
    """All violations of a history, by rule."""
    ledger = Ledger(history, promises)
    return [
        Violation(rule.__name__, sentence, tuple(sorted(operations, key=lambda operation: operation.begun)))
        for rule in RULES
        for sentence, operations in rule(ledger)
    ]


def excerpt(history: History, violation: Violation) -> str:
    """The shortest history that shows a violation: its requests, what else was done with the same file or request,
    and the faults meanwhile.
    """
    proof = violation.operations
    files = {each.file for each in proof if each.file}
    credentials = {each.credential for each in proof if each.credential}
    endings = {each.session for each in proof}
    about = {
        each
        for each in history.operations
        if each in proof
        or each.file in files
        or each.credential in credentials
        or (each.session in endings and each.verb in (*ENDING, Verb.OPEN))
    }
    begun, ended = proof[0].begun - AROUND, max(each.ended for each in proof) + AROUND
    faults = [fault for fault in history.faults if fault.ended >= begun and fault.begun <= ended]
    lines: Iterable[Operation | Fault] = sorted((*about, *faults), key=lambda each: each.begun)
    runs = [
        execution for execution in history.executions if execution.token in {each.token for each in proof}
    ]
    ran = [f"{'executed':>24}  {run.token} in {run.upstream_session[:8]}" for run in runs]
    return "\n".join([f"{violation.rule}: {violation.sentence}", *map(str, lines), *ran])
