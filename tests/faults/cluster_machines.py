"""A machine of the simulated cluster: its disk, clock, broker process and ZooKeeper session.

The broker is the whole product over simulated ports. The work of its threads is events here: each request,
each job of a worker, each notification of ZooKeeper, each step of an inter-broker connection. A ZooKeeper
call takes time before and after its effect, in which everything else continues; so does each job.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from minikafka.base.errors import CoordinationLost, MinikafkaError
from minikafka.base.files import DiskSpace, File, Lock
from minikafka.base.memory_files import MemoryFiles
from minikafka.net.interfaces import Endpoint, RequestHandler
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.server.assembly import Ports, RunningBroker
from minikafka.server.config.properties import BrokerConfig
from minikafka.server.workers import worker as workers
from tests.faults.cluster_events import Action, Connector, Died, Events, Network, Server, listen

PORT = 9092
ZOOKEEPER = "zookeeper"
"""The host name of ZooKeeper."""
TICK_MS = 50
MOST_STEPS = 500
"""The limit of steps of connections at one moment: more are an endless loop."""


class MachineClock:
    """The clock of one machine: its wall clock is off, and it may run fast or slow."""

    def __init__(self, events: Events, wall_ms: int, up_ms: int) -> None:
        self._events = events
        self.wall_ms = wall_ms
        self._up_ms = up_ms
        self._passed_ms = 0
        """The time passed by this clock until ``_since_ms``."""
        self._since_ms = events.now_ms
        self._percent = 100

    def _passed(self) -> int:
        return self._passed_ms + (self._events.now_ms - self._since_ms) * self._percent // 100

    def now_ms(self) -> int:
        return self.wall_ms + self._passed()

    def monotonic_ms(self) -> int:
        return self._up_ms + self._passed()

    def run_at(self, percent: int) -> None:
        """Run at ``percent`` of the right speed from now on."""
        self._passed_ms, self._since_ms = self._passed(), self._events.now_ms
        self._percent = percent

    def passes_in_ms(self, deadline_ms: int) -> int:
        """Return the real time until this clock shows ``deadline_ms`` (monotonic)."""
        return -((self.monotonic_ms() - deadline_ms) * 100 // self._percent)


class Disk(MemoryFiles):
    """A disk that can kill the process after a number of changes."""

    changes_left = 1 << 60

    def note(self, kind: str, path: str = "", position: int = 0, length: int = 0) -> None:
        self.changes_left -= 1
        if self.changes_left <= 0:
            self.changes_left = 1 << 60
            self.ends()

    ends: Action
    """End the process, and raise Died."""


class ProcessFiles:
    """The disk for the process of one life, which cannot change it after its end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._life = machine.life
        self._disk = machine.disk

    def _use(self) -> Disk:
        if self._machine.life != self._life:
            raise Died
        return self._disk

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> File:
        return self._use().open(path, create=create, read_only=read_only, private=private)

    def map(self, path: str) -> memoryview:
        return self._use().map(path)

    def exists(self, path: str) -> bool:
        return self._use().exists(path)

    def is_dir(self, path: str) -> bool:
        return self._use().is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self._use().list_dir(path)

    def make_dirs(self, path: str) -> None:
        self._use().make_dirs(path)

    def rename(self, old: str, new: str) -> None:
        self._use().rename(old, new)

    def remove(self, path: str) -> None:
        self._use().remove(path)

    def remove_tree(self, path: str) -> None:
        self._use().remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self._use().sync_dir(path)

    def disk_space(self, path: str) -> DiskSpace:
        return self._use().disk_space(path)

    def lock(self, path: str) -> Lock:
        return self._use().lock(path)


class Worker:
    """Runs jobs in order, one at a time, with delays. See ``server.workers``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._life = machine.life
        self._jobs: deque[workers.Job] = deque()
        self._scheduled = False
        self._stopped = False
        self.busy = False

    def submit(self, job: workers.Job) -> None:
        self._jobs.append(job)
        self._schedule()

    def resume(self) -> None:
        self._scheduled = False
        self._schedule()

    def stop(self) -> None:
        self._stopped = True

    def _schedule(self, delay_ms: int | None = None) -> None:
        if self._jobs and not self._scheduled and not self.busy:
            self._scheduled = True
            delay_ms = self._machine.job_delay_ms() if delay_ms is None else delay_ms
            self._machine.later(delay_ms, self._run, self._life)

    def _run(self) -> None:
        if self.busy or self._stopped or not self._jobs or not self._scheduled:
            return
        self._scheduled, self.busy = False, True
        try:
            done = workers._done(self._jobs[0])
        finally:
            self.busy = False
        if done:
            self._jobs.popleft()
        self._schedule(None if done else 1000)


class _Notifications:
    """The notifications of ZooKeeper to one session, in order."""

    def __init__(self, machine: Machine, life: int) -> None:
        self._machine = machine
        self._life = life
        self._waiting: deque[Action] = deque()
        self._due_ms = 0

    def append(self, notification: Action) -> None:
        events = self._machine.world.events
        self._waiting.append(notification)
        self._due_ms = max(self._due_ms, events.now_ms + self._machine.notification_delay_ms())
        self._machine.later(self._due_ms - events.now_ms, self._next, self._life)

    def _next(self) -> None:
        self._waiting.popleft()()


class _ZooKeeperOf:
    """The server, with a notification queue for one session."""

    def __init__(self, server: MemoryZooKeeper, queue: _Notifications) -> None:
        self._server = server
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


class Session(MemoryStore):
    """A session whose calls take time, and fail if the connection breaks meanwhile."""

    def __init__(self, machine: Machine) -> None:
        server = machine.world.zookeeper
        view: Any = _ZooKeeperOf(server, _Notifications(machine, machine.life))
        super().__init__(view, "")
        self._machine = machine
        self._life = machine.life
        self.losses = 0
        """The number of lost connections."""
        server._stores.append(self)

    @property
    def connected(self) -> bool:
        return self._connected

    def _full(self, path: str) -> str:
        self._machine.wait_a_little(self._life)
        return super()._full(path)

    def _answer(self, path: str) -> None:
        self._machine.world.events.trace.append(("zookeeper", self._machine.number, path))
        self._machine.wait_a_little(self._life)
        if not self._connected:
            raise CoordinationLost(f"lost the connection to ZooKeeper before the response for {path}")
        super()._answer(path)


class World:
    """The environment that all machines share: events, network, ZooKeeper and settings."""

    def __init__(self, seed: int, brokers: int, properties: dict[str, str]) -> None:
        self.dice = random.Random(seed)
        self.events = Events(self.dice)
        self.network = Network(self.events)
        self.zookeeper = MemoryZooKeeper(_WorldClock(self.events))
        self.properties = properties
        self.listener = "PLAINTEXT" if seed % 3 else "INSIDE"
        """The name of the brokers' listener, which is not that of its protocol in every third seed."""
        self.session_timeout_ms = 800
        self.machines = {number: Machine(self, number) for number in range(brokers)}
        self.look: Callable[[Machine], None] = lambda machine: None
        """Called after each event on a machine."""


class _WorldClock:
    def __init__(self, events: Events) -> None:
        self._events = events

    def now_ms(self) -> int:
        return self._events.now_ms

    monotonic_ms = now_ms


class Machine:
    """One of the cluster's machines. Its number is the broker's id."""

    def __init__(self, world: World, number: int) -> None:
        dice = world.dice
        self.world = world
        self.number = number
        self.host = f"machine-{number}"
        self.clock = MachineClock(
            world.events, 1_700_000_000_000 + dice.randrange(10_000), dice.randrange(1 << 20)
        )
        self.disk = Disk(clock=self.clock)
        self.life = 0
        self.running: RunningBroker | None = None
        self.starting = self.stopping = False
        self.paused = False
        self.job_delays_ms = [0, 0, 1]
        self.notification_delays_ms = [0, 1, 2]
        self.call_delays_ms = [0, 0, 0, 0, 1]
        self.session: Session | None = None
        self._held: list[tuple[int, Action]] = []
        self._worker = Worker(self)
        self._server: Server | None = None
        self._wakes_at_ms = 1 << 62
        self._steps = False

    # --- events ---------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True while a broker process exists, even if it is paused, starting or stopping."""
        return self.running is not None or self.starting

    def execute(self, life: int, action: Action) -> None:
        """See ``cluster_events.Host``."""
        if life != self.life or not self.up:
            return
        if self.paused:
            self._held.append((life, action))
            return
        try:
            action()
            self._step_connections()
        except Died:
            pass

    def later(self, delay_ms: int, action: Action, life: int) -> None:
        """Call ``execute`` in ``delay_ms``."""
        self.world.events.at(delay_ms, lambda: self.execute(life, action))

    def _step_connections(self) -> None:
        """Let the inter-broker connections handle responses and send requests."""
        if self.running is not None and not self._steps and not self.starting:
            self._steps = True
            try:
                steps = 0
                while self.running is not None and self.running.step():
                    steps += 1
                    assert steps < MOST_STEPS, f"{self.host}: endless loop of an inter-broker connection"
            finally:
                self._steps = False
            self.world.look(self)

    def job_delay_ms(self) -> int:
        return self.world.dice.choice(self.job_delays_ms)

    def notification_delay_ms(self) -> int:
        return self.world.dice.choice(self.notification_delays_ms)

    def wait_a_little(self, life: int) -> None:
        """Run other events during a ZooKeeper call; the process may be paused or killed meanwhile."""
        events = self.world.events
        if self._worker.busy and events.depth < 6:
            delay_ms = self.world.dice.choice(self.call_delays_ms)
            if delay_ms or self.paused:
                events.wait(lambda: False, delay_ms)
                if self.paused and self.life == life:
                    events.wait(lambda: not self.paused or self.life != life, 1 << 40)
        if self.life != life:
            raise Died

    def _tick(self) -> None:
        if self.running is not None:
            life = self.life
            self.running.housekeeper.tick()
            self.later(TICK_MS, self._tick, life)

    def _wake_by(self, deadline_ms: int) -> None:
        if deadline_ms < self._wakes_at_ms:
            self._wakes_at_ms = deadline_ms
            self.later(self.clock.passes_in_ms(deadline_ms), lambda: self._expire(deadline_ms), self.life)

    def _expire(self, deadline_ms: int) -> None:
        if self.running is not None and self._wakes_at_ms == deadline_ms:
            self._wakes_at_ms = 1 << 62
            next_ms = self.running.broker.expire()
            if next_ms is not None:
                self._wake_by(max(next_ms, self.clock.monotonic_ms() + 1))

    # --- its process ----------------------------------------------------------------------------------------

    def start(self) -> bool:
        """Start a broker. Return False if that fails."""
        world, files = self.world, ProcessFiles(self)
        self._worker = Worker(self)
        self._wakes_at_ms = 1 << 62

        def listen_here(config: BrokerConfig, handler: RequestHandler) -> Server:
            endpoints = [Endpoint(at.name, at.host, at.port) for at in config.listeners]
            self._server = listen(world.network, self, endpoints, handler)
            return self._server

        def connect_store() -> Session:
            if world.network.blocked(self.host, ZOOKEEPER):
                raise CoordinationLost("failed to connect to ZooKeeper")
            self.session = Session(self)
            return self.session

        given = {
            "broker.id": str(self.number),
            "listeners": f"{world.listener}://{self.host}:{PORT}",
            "listener.security.protocol.map": f"{world.listener}:PLAINTEXT",
            "log.dirs": "data",
            "zookeeper.connect": "memory",
        }
        ports = Ports(
            files=files,
            clock=self.clock,
            worker=self._worker,
            loader=Worker(self),
            connect_store=connect_store,
            listen=listen_here,
            random_bytes=world.dice.randbytes,
            connector=Connector(world.network, self),
        )
        life = self.life
        self.starting = True
        try:
            running = RunningBroker(
                BrokerConfig.from_properties({**given, **world.properties}), ports, self._fatal
            )
        except Died:
            return False
        except (MinikafkaError, FileNotFoundError) as error:
            world.events.note(self.host, f"failed to start: {error}")
            if self.life == life:
                self.vanish(reset=True)
            return False
        finally:
            self.starting = False
        self.running = running
        running.broker.deadline_added = self._wake_by
        self.later(world.dice.randrange(TICK_MS), self._tick, self.life)
        return True

    def _fatal(self, reason: str) -> None:
        self.world.events.note(self.host, f"fatal error: {reason}")
        self.disk.kill_process()
        self.vanish(reset=True)
        raise Died

    def stop(self) -> None:
        """Stop the broker cleanly. It may be killed meanwhile."""
        assert self.running is not None
        life, running = self.life, self.running
        self.stopping = True
        try:
            running.stop()
        except Died:
            return
        except (MinikafkaError, FileNotFoundError) as error:
            self.world.events.note(self.host, f"failed to stop cleanly: {error}")
        if self.life == life:
            self.disk.kill_process()
            self.vanish(reset=True)

    def vanish(self, *, reset: bool) -> None:
        """Remove the process. Its session stays until its time-out; with ``reset`` peers notice at once."""
        self.life += 1
        self.running = None
        self.starting = self.stopping = self.paused = False
        self._held.clear()
        self.disk.changes_left = 1 << 60
        if self._server is not None:
            network = self.world.network
            if network.servers.get(self.host) is self._server:
                del network.servers[self.host]
            for connection in list(network.connections):
                mine = connection.server is self._server
                if mine and reset:
                    connection.end_by_server("Connection reset by peer")
                elif connection.source is self:
                    network.connections.pop(connection, None)
                    if reset:
                        connection._requests.send(None)
            self._server = None
        session = self.session
        if session is not None:
            self.session = None
            session._connected = False
            if session in self.world.zookeeper._stores:
                self.world.zookeeper._stores.remove(session)
            self.world.events.at(self._timeout_ms(), lambda: self.world.zookeeper.expire(session))

    def kill(self) -> None:
        """Kill the process; the disk keeps all writes."""
        self.disk.kill_process()
        self.vanish(reset=True)

    def power_cut(self, *, partly: bool) -> None:
        """Cut the power; the disk keeps flushed data, and with ``partly`` some of the rest."""
        self.disk.power_cut(self.world.dice if partly else None)
        self.vanish(reset=False)

    # --- its session ----------------------------------------------------------------------------------------

    def _timeout_ms(self) -> int:
        timeout_ms = self.world.session_timeout_ms
        return timeout_ms + self.world.dice.randrange(timeout_ms // 2)

    def lose_zookeeper(self) -> None:
        """Break the connection; the session ends after its time-out unless it reconnects."""
        session = self.session
        if session is None or not session.connected:
            return
        world = self.world
        world.zookeeper.suspend(session)
        session.losses += 1
        losses = session.losses

        def time_out() -> None:
            if not session.connected and session.losses == losses:
                world.events.happened["a session that ends"] += world.zookeeper.alive(session.session_id)
                world.zookeeper.expire(session)

        world.events.at(self._timeout_ms(), time_out)

    def find_zookeeper(self) -> None:
        """Reconnect soon, if the process runs and ZooKeeper is reachable then."""
        session = self.session

        def find() -> None:
            reachable = not self.paused and not self.world.network.blocked(self.host, ZOOKEEPER)
            if session is self.session and session is not None and reachable:
                self.world.zookeeper.resume(session)

        self.world.events.at(self.world.dice.randrange(20), find)

    def pause(self) -> None:
        """Pause the process (SIGSTOP)."""
        self.paused = True
        self.lose_zookeeper()

    def resume(self) -> None:
        """Resume the process (SIGCONT)."""
        self.paused = False
        self.find_zookeeper()
        held, self._held = self._held, []
        for life, action in held:
            self.execute(life, action)
