# SPDX-License-Identifier: Apache-2.0
"""The agent's loop: hooks, timers, the GPU thread and the delivery thread around the keeper."""

from __future__ import annotations

import itertools
import logging
import selectors
import signal
import time
from collections.abc import Callable, Collection
from functools import partial
from types import FrameType
from typing import Any

from fairwatt.accounting.agent.asker import Asker, JobText
from fairwatt.accounting.agent.health import HealthSettings, HealthWatch
from fairwatt.accounting.agent.host.keeper import HostKeeper
from fairwatt.accounting.agent.journal import Journal
from fairwatt.accounting.agent.keeper import Keeper
from fairwatt.accounting.agent.metrics_file import MetricsFile
from fairwatt.accounting.agent.requests import (
    HookRequest,
    encode_answer,
    job_id_of,
    parse_request,
)
from fairwatt.accounting.agent.sampling import Sampling
from fairwatt.accounting.agent.server import HookServer, Reply
from fairwatt.accounting.agent.settings import AgentSettings
from fairwatt.accounting.agent.sources import Observation, Source
from fairwatt.accounting.agent.timers import Timers, next_border_ms
from fairwatt.accounting.agent.worker import Worker
from fairwatt.core.delivery import Batch, Delivery
from fairwatt.core.errors import DeviceError, SpoolError
from fairwatt.core.notify import ready
from fairwatt.core.post import Answer

__all__ = ["Daemon", "observe"]

HOOK_ANSWER_S = 0.12
"""A hook waits 200 ms; the rest is for the disk and the way back."""
HOUSEKEEPING_S = 1.0
METRICS_S = 60.0
SHIP_SOON_S = 0.5
LAST_READING_S = 1.0

_log = logging.getLogger(__name__)


class Daemon:
    """Runs until SIGTERM or SIGINT; see `run`."""

    def __init__(
        self,
        settings: AgentSettings,
        source: Source,
        journal: Journal,
        keeper: Keeper,
        host: HostKeeper,
        send: Callable[[bytes], Answer],
        job_text: JobText,
        health: HealthSettings | None = None,
    ) -> None:
        self._settings = settings
        self._source = source
        self._journal = journal
        self._keeper = keeper
        self._host = host
        self._send = send
        self._delivery = Delivery(journal, settings.spool_dir / "refused")
        self._selector = selectors.DefaultSelector()
        self._timers = Timers()
        self._gpu = Worker("gpu")
        self._meters = Worker("host")
        self._post = Worker("delivery")
        self._slurm = Worker("slurm")
        self._asker = Asker(keeper, self._timers, self._slurm, job_text)
        self._health = HealthWatch(health, self._selector) if health else None
        self._names = itertools.count()
        path = settings.metrics_file
        self._metrics = MetricsFile(path, journal, keeper, self._delivery) if path else None
        self._sampling = Sampling(self._timers, settings.sample_s, self._look, self._look_beside)
        self._stopping = False

    def run(self) -> None:
        """Serve until told to stop; then close the windows, so that little is left to a gap.

        Raises:
            OSError: the socket cannot be made.
        """
        server = HookServer(self._settings.socket, self._selector, self._on_line)
        for worker in (self._gpu, self._meters, self._post, self._slurm):
            self._selector.register(worker, selectors.EVENT_READ, worker.deliver)
        self._take_signals()
        self._visit(self._begin, enumerate_devices=True)
        self._plan_housekeeping(server)
        self._plan_metrics()
        ready(f"answers at {self._settings.socket}")
        try:
            while not self._stopping:
                self._turn()
            self._last_reading()
        finally:
            server.close()
            if self._health is not None:
                self._health.close()
            self._selector.close()
            self._journal.close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._timers.wait_s()):
            key.data()
        self._timers.run_due()
        if self._keeper.ship_soon:
            self._keeper.ship_soon = False
            if self._delivery.healthy:
                self._timers.hasten("ship", SHIP_SOON_S, self._ship)

    # -- signals -------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        # PEP 475 restarts the interrupted select; the pipe of a worker ends it.
        self._stopping = True
        self._gpu.wake()

    def _last_reading(self) -> None:
        done: list[Observation] = []
        self._visit(done.append)
        until = time.monotonic() + LAST_READING_S
        while not done and time.monotonic() < until:
            for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
                if key.fileobj is self._gpu:
                    self._gpu.deliver()
        for seen in done:
            self._keeper.late(seen, self._keeper.watched)
        self._cut_host(done[0] if done else None)

    # -- devices -------------------------------------------------------------------------------

    def _visit(
        self,
        done: Callable[[Observation], None],
        *,
        enumerate_devices: bool = False,
        with_utils: bool = False,
        with_extras: bool = False,
    ) -> None:
        wanted = enumerate_devices or self._keeper.wants_enumeration
        watched = self._keeper.watched
        shared = self._keeper.shared if with_extras else None
        source = self._source
        self._gpu.submit(lambda: observe(source, watched, wanted, with_utils, shared), done)

    def _begin(self, seen: Observation) -> None:
        self._keeper.begin(seen)
        self._cut_host(seen)
        self._timers.set("ship", SHIP_SOON_S, self._ship)
        self._asker.ask()
        self._sampling.soon()
        self._plan_border()

    def _look(self, done: Callable[[], None]) -> None:
        def observed(seen: Observation) -> None:
            done()
            self._keeper.sample(seen)

        self._visit(observed, with_utils=True, with_extras=True)

    def _look_beside(self) -> None:
        self._host.sample()
        self._ask_slow_meters()

    def _ask_slow_meters(self) -> None:
        for source in () if self._meters.outstanding else self._host.slow_sources:
            self._meters.submit(source.read, partial(self._host.take_slow, source.name))

    def _cut_host(self, seen: Observation | None, border_ms: int | None = None) -> None:
        self._note_gpus(seen)
        self._host.cut(border_ms)

    def _host_changes(self, seen: Observation | None) -> None:
        self._note_gpus(seen)
        self._host.before_change()

    def _note_gpus(self, seen: Observation | None) -> None:
        if seen is None:
            self._host.miss_gpus()
        elif self._host.measures:
            self._host.note_gpus(self._keeper.devices, self._keeper.energies(seen))

    def _plan_border(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        border_ms = next_border_ms(now_ms, self._settings.window_ms)
        # The wall clock may be set meanwhile: look again at least once a minute.
        delay_s = min(60.0, (border_ms - now_ms) / 1000)
        self._timers.set("border", delay_s, lambda: self._border(border_ms))

    def _border(self, border_ms: int) -> None:
        if time.time_ns() // 1_000_000 >= border_ms:
            at_border = partial(self._at_border, border_ms)
            self._visit(at_border, with_utils=True, with_extras=True)
        self._plan_border()

    def _at_border(self, border_ms: int, seen: Observation) -> None:
        self._keeper.border(seen, border_ms)
        self._cut_host(seen, border_ms)

    # -- hooks ---------------------------------------------------------------------------------

    def _on_line(self, line: bytes, reply: Reply) -> None:
        try:
            request = parse_request(line)
        except SpoolError as error:
            _log.warning("%s", error)
            reply(encode_answer(ok=False, error=str(error)))
            return
        if request.verb in ("prolog", "epilog"):
            self._on_hook(request, reply)
        else:
            health = {"health": self._health.status()} if self._health else {}
            status = self._keeper.status()
            status["faults"] = {**status["faults"], **self._host.faults}
            reply(encode_answer(ok=True, **status, **health))

    def _on_hook(self, request: HookRequest, reply: Reply) -> None:
        """Answer when the devices were read, or without them at the deadline."""
        name = f"hook {next(self._names)}"
        answered: list[set[str]] = []

        def answer(seen: Observation | None) -> None:
            with self._journal.synced_at_end():
                answer_first(seen)
            self._asker.ask()
            self._sampling.soon()

        def answer_first(seen: Observation | None) -> None:
            job_id = job_id_of(request) or 0
            devices = self._keeper.devices_of(job_id)
            self._host_changes(seen)
            durable = self._keeper.hook(request, seen)
            answered.append(devices | self._keeper.devices_of(job_id))
            # Not written: the hook had better leave its message in the inbox too.
            told = self._verdict_for(request, devices | self._keeper.devices_of(job_id))
            reply(encode_answer(ok=durable, read=seen is not None, **told))
            self._tell_holders(job_ended=request.verb == "epilog")

        def observed(seen: Observation) -> None:
            self._timers.cancel(name)
            if answered:
                self._late(seen, answered[0])
            else:
                answer(seen)

        enumerate_devices = request.verb == "prolog" and self._keeper.wants_change_detection
        self._timers.set(name, HOOK_ANSWER_S, lambda: answer(None))
        self._visit(observed, enumerate_devices=enumerate_devices, with_utils=True)

    def _late(self, seen: Observation, devices: Collection[str]) -> None:
        _log.warning(
            "the GPUs were slow to answer: the windows of %d are apportioned", len(devices)
        )
        self._keeper.late(seen, devices)

    # -- health --------------------------------------------------------------------------------

    def _verdict_for(self, request: HookRequest, devices: Collection[str]) -> dict[str, Any]:
        if self._health is None or request.verb != "prolog":
            return {}
        return {"verdict": self._health.answer(devices)}

    def _tell_holders(self, *, job_ended: bool = False) -> None:
        if self._health is not None:
            self._health.tell_holders(self._keeper.holders(), job_ended=job_ended)

    # -- delivery and housekeeping ---------------------------------------------------------------

    def _ship(self) -> None:
        self._timers.set("ship", self._settings.ship_s, self._ship)
        batch = None if self._post.outstanding else self._delivery.next_batch()
        if batch is not None:
            body, send = batch.body, self._send
            self._post.submit(lambda: send(body), lambda answer: self._shipped(batch, answer))

    def _shipped(self, batch: Batch, answer: Answer) -> None:
        delay_s = self._delivery.answered(batch, answer)
        if delay_s is not None:
            self._timers.set("ship", delay_s, self._ship)

    def _plan_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.write()
            self._timers.set("metrics", METRICS_S, self._plan_metrics)

    def _plan_housekeeping(self, server: HookServer) -> None:
        server.drop_idle()
        self._journal.retry()
        self._journal.keep_room()
        if self._keeper.has_mail and not self._gpu.outstanding:
            self._visit(self._keeper.sample, enumerate_devices=True)
        if self._health is not None:
            self._health.tick()
            self._tell_holders()
        self._timers.set("housekeeping", HOUSEKEEPING_S, lambda: self._plan_housekeeping(server))


def observe(
    source: Source,
    watched: Collection[str],
    enumerate_devices: bool,
    with_utils: bool,
    shared: Collection[str] | None = None,
) -> Observation:
    """Visit the source once: enumerate if wanted, read all devices, ask for utilisation.

    `shared` names the boards with several jobs; None, as a hook waits: of the rest only the
    utilisation is asked, which GPM tells as the mean since the last look.
    Whatever goes wrong becomes the observation's `fault`: the keeper must hear of every visit.
    """
    try:
        return _observed(source, watched, enumerate_devices, with_utils, shared)
    except Exception as error:
        _log.exception("the GPU library's answer was not understood")
        return Observation(None, fault=f"{type(error).__name__}: {error}")


def _observed(
    source: Source,
    watched: Collection[str],
    enumerate_devices: bool,
    with_utils: bool,
    shared: Collection[str] | None,
) -> Observation:
    devices = None
    driver = ""
    fault = None
    names = set(watched)
    if enumerate_devices:
        try:
            devices = source.devices()
            driver = source.driver_version()
            names |= {device.uuid for device in devices}
        except DeviceError as error:
            fault = str(error)
    order = sorted(names)
    samples = tuple(source.read(order))
    if not with_utils:
        return Observation(devices, samples, None, fault, driver=driver)
    utils = source.utilisation(order)
    if shared is None:
        return Observation(devices, samples, utils, fault, driver=driver)
    return Observation(
        devices,
        samples,
        utils,
        fault,
        clocks=source.clocks(order),
        memory=source.memory(order),
        extras=source.extras(order, shared),
        driver=driver,
    )
