"""The process that starts, watches and replaces workers, and handles no request.

Between two events it waits in one place. Everything that it decides is decided by what has ended, what serves, what a
signal asks for, and what time it is.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from adapter.edge.http.seats import open_sockets
from adapter.settings.file.changed import LOOK_SECONDS, FileWatch, changed_keys
from adapter.settings.file.reading import ForkedRead
from adapter.startup.failure import Obstacle
from adapter.startup.systemd import ServiceNotifier
from adapter.state.lock_file import WAIT_SECONDS, StateTaken
from adapter.workers.fleet import (
    HANDOVER_SECONDS,
    LONGEST_DELAY,
    MOST_FAILED_STARTS,
    STOP_SECONDS,
    Fleet,
    SettingsHandover,
    SignalInbox,
    WorkerProcess,
    WorkerReplacement,
    WorkerSlot,
    close_all,
    delay_after,
    news_file,
)
from adapter.workers.serve_plan import PlanLocks, PlanRefused, ReadPlan, RootTaken, ServePlan, begin_reading

if TYPE_CHECKING:
    # The log is most of what this process has in memory, and seldom has anything to say.
    from structlog.typing import FilteringBoundLogger

_UNTOLD = Obstacle("no worker can serve", "the log lines of the workers say why", "core.workers")
_KEPT = "serving with the old settings: the log says why the new ones cannot be used"


class WorkerSupervisor:
    """Serves ``plan`` until it is told to stop. ``read_again`` reads the plan anew, in a child process.

    ``watch`` tells when the settings file changed. ``now`` is a clock that never goes back, in seconds. ``service`` is
    told when the workers serve, are replaced and stop, and that the supervisor lives. ``obstacles`` are the reasons why
    no worker could serve, after ``run``.
    """

    def __init__(
        self,
        plan: ServePlan,
        sockets: Sequence[socket.socket],
        read_again: ReadPlan,
        logger: Callable[[], FilteringBoundLogger],
        service: ServiceNotifier | None = None,
        now: Callable[[], float] = time.monotonic,
        watch: FileWatch | None = None,
    ) -> None:
        self.obstacles: tuple[Obstacle, ...] = ()
        self._service = service or ServiceNotifier(None)
        self._locks = PlanLocks()
        self._plan = plan
        self._sockets = sockets
        self._read_again = read_again
        self._log = logger
        self._now = now
        self._inbox = SignalInbox()
        self._selector = selectors.DefaultSelector()
        self._fleet = Fleet(self._forget, self._locks.keep)
        self._slots = {number: WorkerSlot() for number in range(1, plan.workers + 1)}
        self._rolling: WorkerReplacement | None = None
        self._handover: SettingsHandover | None = None
        self._watch = watch or FileWatch(None)
        self._look_at = 0.0
        self._reading: ForkedRead[ServePlan] | None = None
        self._roll_again = False
        self._failed_starts = 0
        self._begun = False
        self._stops = 0
        self._status = 0

    def __repr__(self) -> str:
        return f"<WorkerSupervisor of {self._fleet!r}>"

    def run(self) -> int:
        """Return the exit status: 0 after a stop that was asked for, 1 if no worker can serve."""
        try:
            self._locks.take(self._plan, WAIT_SECONDS)
        except (RootTaken, StateTaken) as taken:
            self._log().error(taken.event, why=str(taken), setting=taken.setting)
            self.obstacles = (Obstacle(taken.event, str(taken), taken.setting),)
            return 1
        with self._inbox, contextlib.closing(self._fleet):
            self._selector.register(self._inbox, selectors.EVENT_READ, self._signalled)
            while len(self._fleet) or not self._stops:
                self._start_what_is_due()
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                # Each look is cheap, and a signal may have come while something else was done.
                self._notice_ends()
                self._look()
                for worker in self._fleet.overdue(self._now()):
                    self._log().warning("a worker did not end in time and is killed", number=worker.number)
            self._selector.close()
        return self._status

    def _forget(self) -> None:
        """Let go in a child of what is the supervisor's own."""
        self._selector.close()
        self._inbox.forget()

    def _forget_everything(self) -> None:
        self._fleet.forget_all()
        close_all(self._sockets)

    def _patience(self) -> float | None:
        """The seconds until something is due; None: for ever."""
        times = [slot.not_before for slot in self._slots.values() if slot.worker is None]
        if not self._begun:
            times = [] if len(self._fleet) else times[:1]
        if self._rolling is not None and not self._rolling.waits:
            times.append(self._rolling.not_before)
        if self._handover is not None:
            times.append(self._handover.not_after)
        if self._begun and self._plan.watch:
            times.append(self._look_at)
        if self._stops:
            times = []
        # A sign of life is given where one is due.
        sign_due = self._service.alive(self._now()) if self._begun else None
        times += [due for due in (self._fleet.next_deadline, sign_due) if due is not None]
        return max(0.0, min(times) - self._now()) if times else None

    # --- starting -----------------------------------------------------------------------------------------------

    def _start_what_is_due(self) -> None:
        """Start the workers that are missing. The others wait until the first has served: what is in its way is in
        everybody's.
        """
        if self._stops:
            return
        self._roll_on()
        now = self._now()
        if self._handover is not None and self._handover.not_after <= now:
            self._replace_instead(self._handover)
        for number, slot in self._slots.items():
            incoming = None if self._rolling is None else self._rolling.incoming
            comes = incoming is not None and incoming.number == number
            if comes or slot.worker is not None or slot.not_before > now:
                continue
            if not self._begun and len(self._fleet):
                return
            slot.worker = self._begin(number, self._plan, self._sockets)
            if slot.worker is None:
                slot.not_before = now + LONGEST_DELAY

    def _begin(self, number: int, plan: ServePlan, sockets: Sequence[socket.socket]) -> WorkerProcess | None:
        """Start a worker; None where the system allows no further process now."""
        first = not self._begun or (self._rolling is not None and not self._rolling.taken)
        try:
            worker = self._fleet.begin(number, plan, sockets, self._now(), first=first)
        except OSError as error:
            self._log().error("a worker cannot be started", number=number, why=error.strerror or str(error))
            return None
        self._selector.register(worker.channel, selectors.EVENT_READ, partial(self._heard, worker))
        return worker

    def _heard(self, worker: WorkerProcess) -> None:
        """A worker has something to say, or its end of the channel is closed."""
        if worker.heard(self._now()):
            self._serves(worker)
        elif worker.silent:
            self._selector.unregister(worker.channel)
        if worker.took_settings is not None:
            self._answered(worker, took=worker.took_settings)

    def _serves(self, worker: WorkerProcess) -> None:
        if not self._begun and not self._stops:
            self._service.ready(f"serving with {self._plan.workers} workers")
        self._begun = True
        self._failed_starts = 0
        rolling = self._rolling
        if rolling is None or rolling.incoming is not worker or self._stops:
            return
        rolling.incoming, rolling.taken, rolling.failures = None, True, 0
        self._plan, before = rolling.plan, self._sockets
        self._sockets = rolling.sockets
        if before is not rolling.sockets:
            close_all(before)
        slot = self._slots.setdefault(worker.number, WorkerSlot())
        slot.worker, old = worker, slot.worker
        slot.failures = 0
        if old is not None:
            self._stop(old, replaced=True)
            rolling.leaving = old

    # --- ends ---------------------------------------------------------------------------------------------------

    def _notice_ends(self) -> None:
        for worker, status in self._fleet.ended():
            if not worker.silent:
                self._selector.unregister(worker.channel)
            worker.close()
            self._ended(worker, status)

    def _ended(self, worker: WorkerProcess, status: int) -> None:
        rolling, now = self._rolling, self._now()
        slot = self._slots.get(worker.number)
        if slot is not None and slot.worker is worker:
            slot.worker = None
        if rolling is not None and rolling.leaving is worker:
            rolling.leaving = None
        self._answered(worker, took=True)
        if self._stops or worker.stopping:
            return
        if rolling is not None and rolling.incoming is worker:
            self._incoming_failed(rolling, status)
            return
        lived = 0.0 if worker.ready_at is None else now - worker.ready_at
        self._failed_starts += worker.ready_at is None
        if slot is not None:
            slot.ended(now, lived)
            self._log().warning(
                "a worker has ended and is started again",
                number=worker.number,
                process=worker.pid,
                status=status,
                after=round(slot.not_before - now, 1),
            )
        # Settings that were served once can be served again: a full disk, say, is not for ever.
        if self._failed_starts >= MOST_FAILED_STARTS and not self._begun:
            self._log().error("no worker can serve; giving up", starts=self._failed_starts)
            self.obstacles = worker.obstacles or (_UNTOLD,)
            self._status = 1
            self._stop_all()

    def _incoming_failed(self, rolling: WorkerReplacement, status: int) -> None:
        if rolling.failed(self._now(), delay_after(rolling.failures + 1)):
            return
        self._log().error(
            "a new worker could not serve, the others go on", status=status, left=len(rolling.numbers)
        )
        if rolling.sockets is not self._sockets:
            close_all(rolling.sockets)
        self._locks.keep(self._plan)
        self._rolling = None
        self._settled(_KEPT)

    # --- signals ------------------------------------------------------------------------------------------------

    def _signalled(self) -> None:
        for number in self._inbox.take():
            if number in (signal.SIGINT, signal.SIGTERM):
                self._stop_all()
            elif number == signal.SIGHUP and not self._stops:
                self._read_plan()

    def _stop_all(self) -> None:
        """Stop at the first time, without grace at the second, and by force at the third."""
        self._stops += 1
        if self._stops == 1:
            self._service.stopping()
            close_all(self._sockets)
            if self._rolling is not None and self._rolling.sockets is not self._sockets:
                close_all(self._rolling.sockets)
        for worker in self._fleet:
            if self._stops == 1:
                self._stop(worker)
            elif self._stops == 2:
                worker.cut(self._now() + STOP_SECONDS)
            else:
                worker.kill()

    def _stop(self, worker: WorkerProcess, *, replaced: bool = False) -> None:
        worker.stop(self._now() + self._plan.grace + STOP_SECONDS, replaced=replaced)

    # --- rolling ------------------------------------------------------------------------------------------------

    def _read_plan(self) -> None:
        """Read the settings again; what comes of it is heard of later."""
        self._service.reloading("reading the settings again")
        if self._reading is not None or self._rolling is not None or self._handover is not None:
            self._roll_again = True
            return
        try:
            self._reading = begin_reading(self._read_again, self._forget_everything)
        except OSError as error:
            self._log().error("the settings cannot be read", why=error.strerror or str(error))
            self._service.ready(_KEPT)
            return
        self._selector.register(self._reading, selectors.EVENT_READ, self._plan_read)

    def _plan_read(self) -> None:
        reading, self._reading = self._reading, None
        assert reading is not None, "it is what was heard of"
        self._selector.unregister(reading)
        try:
            plan = reading.result()
            self._locks.take(plan, 0)
            sockets = self._sockets
            if plan.address != self._plan.address:
                sockets = open_sockets(*plan.address)
        except (PlanRefused, RootTaken, StateTaken) as refused:
            event = "the settings cannot be used, workers go on with the old ones"
            self._log().error(event, why=str(refused))
            self._stay(str(refused))
        except OSError as error:
            why = error.strerror or str(error)
            self._log().error("cannot listen, workers go on at the old address", why=why, setting="core.port")
            self._stay(f"cannot listen: {why}")
        else:
            keys = changed_keys(self._plan.lasting, plan.lasting)
            if self._stops:
                return
            if keys:
                self._rolling = WorkerReplacement(plan, sockets)
                self._log().info("workers are replaced one by one", workers=plan.workers, settings=keys)
            else:
                self._hand_over(plan)

    def _stay(self, why: str) -> None:
        """Serve by the settings of now, and tell the workers why there are no others."""
        self._locks.keep(self._plan)
        self._give(why)
        self._settled(_KEPT)

    def _look(self) -> None:
        """Read the settings again when their file changed."""
        if not self._begun or self._stops or not self._plan.watch or self._now() < self._look_at:
            return
        self._look_at = self._now() + LOOK_SECONDS
        if self._watch.look():
            self._read_plan()

    def _settled(self, status: str) -> None:
        """All is as it stays. Read the settings again if that was asked for meanwhile."""
        self._service.ready(status)
        if self._roll_again:
            self._roll_again = False
            self._read_plan()

    # --- other settings for the workers that serve ---------------------------------------------------------------

    def _give(self, news: object) -> set[WorkerProcess]:
        """Tell all workers; returns those that will answer."""
        with news_file(news) as file:
            return {worker for worker in self._fleet if worker.give(file.fileno())}

    def _hand_over(self, plan: ServePlan) -> None:
        """Have the workers serve by other settings in place."""
        before, self._plan = self._plan, plan
        try:
            waits = self._give(plan.settings)
        except OSError as error:
            self._plan = before
            self._log().error("the settings cannot be read", why=error.strerror or str(error))
            self._settled(_KEPT)
            return
        self._handover = SettingsHandover(before, waits, self._now() + HANDOVER_SECONDS)
        self._end_handover()

    def _answered(self, worker: WorkerProcess, *, took: bool) -> None:
        """A worker serves by the other settings, or has ended, or cannot serve by them."""
        worker.took_settings = None
        handover = self._handover
        if handover is None or worker not in handover.waits:
            return
        handover.waits.discard(worker)
        if not took:
            self._replace_instead(handover)
        else:
            self._end_handover()

    def _end_handover(self) -> None:
        if self._handover is None or self._handover.waits:
            return
        self._handover = None
        self._log().info("all workers serve by the changed settings", workers=self._plan.workers)
        self._settled(f"serving with {self._plan.workers} workers")

    def _replace_instead(self, handover: SettingsHandover) -> None:
        """Replace the workers, as one of them does not get on with the other settings."""
        plan, self._plan, self._handover = self._plan, handover.before, None
        self._rolling = WorkerReplacement(plan, self._sockets)
        self._log().warning("workers are replaced one by one", workers=plan.workers, settings=[])

    def _roll_on(self) -> None:
        """Begin the next replacement, if nothing is waited for, or end the rolling."""
        rolling = self._rolling
        if rolling is None or rolling.waits or rolling.not_before > self._now():
            return
        if rolling.numbers:
            rolling.incoming = self._begin(rolling.numbers[0], rolling.plan, rolling.sockets)
            if rolling.incoming is None:
                rolling.not_before = self._now() + LONGEST_DELAY
            else:
                rolling.numbers.popleft()
            return
        for number in [each for each in self._slots if each > rolling.plan.workers]:
            worker = self._slots.pop(number).worker
            if worker is not None:
                self._stop(worker, replaced=True)
        self._rolling = None
        self._locks.keep(self._plan)
        self._log().info("all workers have been replaced", workers=rolling.plan.workers)
        self._settled(f"serving with {rolling.plan.workers} workers")
