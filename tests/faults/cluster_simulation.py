"""A whole cluster in one process, driven by one seed, for ``test_cluster_simulation``.

The brokers are the product's own, complete, over disks, a network, ZooKeeper and clocks in memory
(``cluster_machines``, ``cluster_events``). Clients of several kinds use the cluster (``cluster_clients``)
during faults, and an oracle checks its guarantees (``cluster_oracle``). Each seed has only some of the
faults, so that some runs have little else than the fault that matters.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from minikafka.base.ids import OFFSETS_TOPIC, TopicPartition
from tests.faults.cluster_clients import Client, Committer, Consumer, Operator, Producer, Replacer
from tests.faults.cluster_events import Died
from tests.faults.cluster_machines import ZOOKEEPER, Machine, World
from tests.faults.cluster_oracle import Broken, Oracle

PROPERTIES = {
    "log.segment.bytes": "100000",
    "log.index.size.max.bytes": "4096",
    "log.retention.ms": "-1",
    "log.cleaner.enable": "false",
    "replica.lag.time.max.ms": "600",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "900",
    "controller.socket.timeout.ms": "900",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "controlled.shutdown.retry.backoff.ms": "100",
    "controlled.shutdown.max.retries": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "leader.imbalance.check.interval.seconds": "4",
    "auto.create.topics.enable": "false",
}
LOAD_MS = 3_000
LED_MS = 15_000
"""The limit of simulated time until every partition that can have a leader has one."""
COMES_BACK_MS = 60_000
"""The limit of simulated time until the cluster has recovered after the faults."""


class Simulation:
    """The run of one seed. ``run`` raises AssertionError if a guarantee is broken."""

    PROPERTIES: ClassVar[Mapping[str, str]] = PROPERTIES

    def __init__(self, seed: int, focus: Collection[str] = (), *, more: bool | None = None) -> None:
        """``focus``: the names of faults that replace the seed's own. ``more``: True for events beside the
        faults; None: in every other seed.
        """
        self.seed = seed
        self.more = seed % 2 == 1 if more is None else more
        dice = random.Random(seed)
        self.brokers = dice.choice([3, 3, 4, 5])
        self.durable = "careful_power_cut" not in focus and dice.random() < 0.6
        """True if every message is flushed before its acknowledgement: then any machines may lose power. Else
        one at a time may, while all replicas of the others are in sync."""
        properties = dict(self.PROPERTIES)
        if self.durable:
            properties["log.flush.interval.messages"] = "1"
        self.world = World(seed, self.brokers, properties)
        self.events = self.world.events
        self.dice = self.world.dice
        self.oracle = Oracle(self.world)
        self.world.look = self.oracle.look
        self.clients: list[Client] = []
        self.problems: list[str] = []
        kinds = [fault for fault in FAULTS if self.durable or fault not in ONLY_DURABLE]
        self.faults = dice.sample(kinds, dice.randint(0, min(6, len(kinds))))
        self.careful = not self.durable and ("careful_power_cut" in focus or dice.random() < 0.5)
        if self.careful:
            self.faults = kinds = list(CAREFUL)
        if focus:
            self.faults = [fault for fault in kinds if fault.__name__ in focus]
        self.healing: list[Callable[[], None]] = []
        """The functions that end lasting faults."""
        self.recovered_ms = 0

    # --- the run --------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run load and faults for some seconds; then the cluster must recover and keep its guarantees."""
        try:
            self._begin()
            self.events.run(lambda: False, self.events.now_ms + LOAD_MS)
            self._stop_faults()
            self._wait_until_led()
            self._wait_until_whole()
            self.oracle.check()
            self._check_clients()
        except (Exception, Broken) as problem:
            messages = "\n".join(list(self.events.messages)[-60:])
            faults = ", ".join(fault.__name__ for fault in self.faults) or "none"
            summary = f"{self.brokers} brokers, faults: {faults}"
            raise AssertionError(
                f"seed {self.seed}: {problem or problem!r}\n{summary}\n{messages}"
            ) from problem

    @property
    def trace(self) -> str:
        """A hash of all events."""
        return hashlib.blake2b(repr(self.events.trace).encode(), digest_size=12).hexdigest()

    def _begin(self) -> None:
        world, dice = self.world, self.dice
        for machine in world.machines.values():
            machine.disk.ends = self._ended_by_disk(machine)
            self.events.at(dice.randrange(300), lambda host=machine: self._start(host))  # type: ignore[misc]
        operator = Operator(world, self.oracle, 0 if self.careful else dice.choice([0, 2, 5]))
        operator.create(OFFSETS_TOPIC, {0: operator.some_replicas(3)}, cleanup_policy="compact")
        self.clients = [operator, *self._begin_clients(operator)]
        if self.faults:
            self.events.at(450, self._strike)
        if self.more:
            self._begin_more()

    def _begin_clients(self, operator: Operator) -> list[Client]:
        """Create the topics, and return the clients beside the operator."""
        world, dice, more = self.world, self.dice, self.more
        operator.create(
            "safe", {0: operator.some_replicas(3), 1: operator.some_replicas(3)}, min_insync_replicas="2"
        )
        settings = {"min_insync_replicas": "1"}
        if more and not self.careful and dice.random() < 0.5:
            self.oracle.unclean.add("other")
            settings["unclean_leader_election_enable"] = "true"
        operator.create("other", {0: operator.some_replicas(2)}, **settings)
        return [
            Producer(world, self.oracle, "plain", acks=-1),
            Producer(world, self.oracle, "numbered", acks=-1, idempotent=True),
            Producer(world, self.oracle, "quick", acks=1),
            Consumer(world, self.oracle, "reader-0"),
            Consumer(world, self.oracle, "reader-1"),
            Committer(world, self.oracle, "group", TopicPartition("safe", 0), asks=more),
        ]

    def _begin_more(self) -> None:
        """Schedule events beside the faults, in every other seed."""
        dice = self.dice
        for _ in range(dice.choice([0, 1, 3])):
            self.events.at(dice.randrange(LOAD_MS), self._drift)
        if self.careful:
            return
        if dice.random() < 0.7:
            self.clients.append(Replacer(self.world, self.oracle))
        if dice.random() < 0.5:
            self.events.at(dice.randrange(600, LOAD_MS), self._die_together)

    def _stop_faults(self) -> None:
        self.events.note("faults", "stop")
        self.faults = []
        for heal in self.healing:
            heal()
        self.healing = []
        for client in self.clients:
            client.stopping = True

    def _wait_until_led(self) -> None:
        """Kill a broker for long; the others must take over its partitions."""
        away = self._some_machine()
        not_whole = self.careful and self.oracle.whole(at_rest=False)
        if away is None or not_whole or self.dice.random() < 0.6:
            return
        self.events.note(away.host, "is killed for long")
        away.kill()
        began_ms = self.events.now_ms
        while unled := self.oracle.unled():
            if self.events.now_ms - began_ms > LED_MS:
                raise Broken(f"without broker {away.number}, for {LED_MS} ms: {unled}")
            self.events.run(lambda: False, self.events.now_ms + 100)

    def _wait_until_whole(self) -> None:
        began_ms, missing = self.events.now_ms, "not looked yet"
        while missing or not all(client.done for client in self.clients):
            if self.events.now_ms - began_ms > COMES_BACK_MS:
                left = missing or [client.host for client in self.clients if not client.done]
                raise Broken(f"not whole {COMES_BACK_MS} ms after the faults: {left}")
            self.events.run(lambda: False, self.events.now_ms + 200)
            for machine in self.world.machines.values():
                self._look_after(machine)
            missing = self.oracle.whole()
        self.recovered_ms = self.events.now_ms - began_ms

    def _look_after(self, machine: Machine) -> None:
        """Restart a broker that is dead or has failed logs, as an operator would."""
        if not machine.up:
            self._start(machine)
        elif machine.running is not None and not machine.stopping:
            failed = [log for log in machine.running.broker.logs.logs().values() if log.failure is not None]
            if failed:
                self.events.note(machine.host, f"is restarted: {failed[0].failure}")
                machine.kill()

    def _check_clients(self) -> None:
        """Check the committed offsets."""
        committers = [client for client in self.clients if isinstance(client, Committer)]
        for client in committers:
            client.check()
        done = self.events.run(
            lambda: all(client.done for client in committers), self.events.now_ms + COMES_BACK_MS
        )
        if not done:
            raise Broken("committed offsets cannot be read")

    # --- faults ---------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        if not self.faults:
            return
        fault = self.dice.choice(self.faults)
        if fault(self):
            self.events.happened[words(fault)] += 1
        self.events.at(self.dice.choice([50, 150, 300, 700]), self._strike)

    def _some_machine(self) -> Machine | None:
        """Return a random running machine, or None."""
        running = [
            machine
            for machine in self.world.machines.values()
            if machine.running is not None and not machine.stopping
        ]
        return self.dice.choice(running) if running else None

    def _later(self, low_ms: int, high_ms: int, heal: Callable[[], None]) -> None:
        """Schedule the end of a fault, at the latest when all faults end."""
        done = [False]

        def once() -> None:
            if not done[0]:
                done[0] = True
                if again in self.healing:
                    self.healing.remove(again)
                heal()

        again = once
        self.healing.append(again)
        self.events.at(self.dice.randrange(low_ms, high_ms), once)

    def _start(self, machine: Machine) -> None:
        if not machine.up:
            self.events.note(machine.host, "starts")
            machine.start()

    def _restart_later(self, machine: Machine) -> None:
        def start() -> None:
            if not machine.up:
                self._start(machine)
                if not machine.up:
                    self._restart_later(machine)

        self.events.at(self.dice.choice([5, 50, 300, 1200, 2000]), start)

    def _ended_by_disk(self, machine: Machine) -> Callable[[], None]:
        def ends() -> None:
            partly = self.dice.random() < 0.7
            if self.durable and self.dice.random() < 0.6:
                self.events.note(machine.host, "power cut in the middle of a change")
                machine.power_cut(partly=partly)
            else:
                self.events.note(machine.host, "killed in the middle of a change")
                machine.kill()
            self._restart_later(machine)
            raise Died

        return ends

    def _drift(self) -> None:
        """Let a clock run fast or slow from now on."""
        machine = self.dice.choice(list(self.world.machines.values()))
        percent = self.dice.choice([80, 95, 105, 125])
        self.events.note(machine.host, f"its clock runs at {percent} percent")
        self.events.happened["A clock runs fast or slow"] += 1
        machine.clock.run_at(percent)

    def _die_together(self) -> None:
        """Kill and restart the controller and another broker at once: the next controller finds a broker that
        was a leader a moment ago.
        """
        running = [machine for machine in self.world.machines.values() if machine.running is not None]
        head = [
            machine
            for machine in running
            if machine.running is not None and machine.running.broker.zk_client.is_controller
        ]
        others = [machine for machine in running if machine not in head]
        if not head or not others:
            return
        delay_ms = self.dice.choice([5, 50, 200])
        self.events.happened["The controller and another broker die together"] += 1
        for machine in (head[0], self.dice.choice(others)):
            self.events.note(machine.host, "dies, the controller and another broker together")
            if self.durable and self.dice.random() < 0.5:
                machine.power_cut(partly=self.dice.random() < 0.7)
            else:
                machine.kill()
            start_ms = delay_ms + self.dice.randrange(10)
            self.events.at(start_ms, lambda victim=machine: self._start(victim))  # type: ignore[misc]

    def kill(self) -> bool:
        """A broker is killed."""
        machine = self._some_machine()
        if machine is None:
            return False
        self.events.note(machine.host, "killed")
        machine.kill()
        self._restart_later(machine)
        return True

    def power_cut(self) -> bool:
        """A machine loses its power."""
        machine = self._some_machine()
        if machine is None:
            return False
        self.events.note(machine.host, "power cut")
        machine.power_cut(partly=self.dice.random() < 0.7)
        self._restart_later(machine)
        return True

    def careful_power_cut(self) -> bool:
        """A machine loses its power, and what it has not flushed, while all replicas are in sync."""
        if self.oracle.whole(at_rest=False):
            return False
        return self.power_cut()

    def power_cut_everywhere(self) -> bool:
        """All machines lose their power."""
        for machine in self.world.machines.values():
            if machine.up:
                self.events.note(machine.host, "power cut, with all others")
                machine.power_cut(partly=self.dice.random() < 0.7)
                self._restart_later(machine)
        return True

    def end_in_the_middle(self) -> bool:
        """A broker ends in the middle of a change of its disk."""
        machine = self._some_machine()
        if machine is None:
            return False
        machine.disk.changes_left = self.dice.randrange(1, 40)
        return True

    def stop(self) -> bool:
        """A broker is stopped and started again."""
        machine = self._some_machine()
        if machine is None or self.events.depth:
            return False
        self.events.note(machine.host, "stops")
        machine.stop()
        self.events.note(machine.host, "has stopped")
        self._restart_later(machine)
        return True

    def pause(self) -> bool:
        """A broker is paused."""
        machine = self._some_machine()
        if machine is None or machine.paused:
            return False
        self.events.note(machine.host, "is paused")
        machine.pause()
        life = machine.life

        def resume() -> None:
            if machine.life == life:
                self.events.note(machine.host, "resumes")
                machine.resume()

        self._later(50, 2500, resume)
        return True

    def expire(self) -> bool:
        """A session with ZooKeeper expires."""
        machine = self._some_machine()
        if machine is None or machine.session is None or not machine.session.connected:
            return False
        self.events.note(machine.host, "its ZooKeeper session expires")
        self.world.zookeeper.expire(machine.session)
        return True

    def lose_zookeeper(self) -> bool:
        """ZooKeeper cannot be reached from a machine."""
        machine = self._some_machine()
        if machine is None:
            return False
        self.events.note(machine.host, "is cut off from ZooKeeper")
        self._block([(machine.host, ZOOKEEPER)], 50, 2000)
        return True

    def partition(self) -> bool:
        """Two machines cannot reach each other."""
        one, other = self.dice.sample(sorted(machine.host for machine in self.world.machines.values()), 2)
        ways = self.dice.choice([[(one, other), (other, one)], [(one, other)]])
        self.events.note("network", f"nothing passes {' and '.join(f'{a} -> {b}' for a, b in ways)}")
        self._block(ways, 50, 2500)
        return True

    def isolate(self) -> bool:
        """A machine cannot reach any other one."""
        machine = self.dice.choice(list(self.world.machines.values()))
        others = [other.host for other in self.world.machines.values() if other is not machine]
        ways = [(machine.host, other) for other in others] + [(other, machine.host) for other in others]
        with_zookeeper = self.dice.random() < 0.5
        if with_zookeeper:
            ways.append((machine.host, ZOOKEEPER))
        self.events.note(machine.host, f"cannot reach other brokers{' nor ZooKeeper' * with_zookeeper}")
        self._block(ways, 50, 2500)
        return True

    def _block(self, ways: list[tuple[str, str]], low_ms: int, high_ms: int) -> None:
        network = self.world.network
        machines = {machine.host: machine for machine in self.world.machines.values()}
        for way in ways:
            network.block(*way)
            if way[1] == ZOOKEEPER:
                machines[way[0]].lose_zookeeper()

        def heal() -> None:
            self.events.note("network", f"free again: {' and '.join(f'{a} -> {b}' for a, b in ways[:2])}")
            for way in ways:
                network.unblock(*way)
                if way[1] == ZOOKEEPER:
                    machines[way[0]].find_zookeeper()

        self._later(low_ms, high_ms, heal)

    def clog(self) -> bool:
        """Nothing moves anywhere for a time."""
        hosts = [machine.host for machine in self.world.machines.values()]
        self._block([(source, other) for source in hosts for other in hosts if source != other], 20, 400)
        return True

    def lose_connections(self) -> bool:
        """Connections break."""
        connections = list(self.world.network.connections)
        if not connections:
            return False
        for connection in self.dice.sample(connections, min(3, len(connections))):
            connection.break_off()
        return True

    def hang_connections(self) -> bool:
        """Connections hang."""
        connections = list(self.world.network.connections)
        for connection in self.dice.sample(connections, min(2, len(connections))):
            connection.hang()
        return bool(connections)

    def slow_network(self) -> bool:
        """The network is slow, some connections more than others."""
        network = self.world.network
        network.delays_ms = (0, 1, 5, 20, 80)

        def heal() -> None:
            network.delays_ms = (0, 1, 1, 2)

        self._later(200, 1500, heal)
        return True

    def slow_notifications(self) -> bool:
        """ZooKeeper's notifications to a broker are late."""
        machine = self.dice.choice(list(self.world.machines.values()))
        machine.notification_delays_ms = [0, 20, 200, 800]

        def heal() -> None:
            machine.notification_delays_ms = [0, 1, 2]

        self._later(500, 3000, heal)
        return True

    def slow_control(self) -> bool:
        """A broker's control path is slow."""
        machine = self.dice.choice(list(self.world.machines.values()))
        machine.job_delays_ms, machine.call_delays_ms = [0, 1, 20, 100], [0, 0, 2, 30]

        def heal() -> None:
            machine.job_delays_ms, machine.call_delays_ms = [0, 0, 1], [0, 0, 0, 0, 1]

        self._later(500, 3000, heal)
        return True

    def jump(self) -> bool:
        """A wall clock jumps."""
        machine = self.dice.choice(list(self.world.machines.values()))
        machine.clock.wall_ms += self.dice.choice([-3_600_000, -5_000, 700, 60_000, 7_200_000])
        return True

    def fill_disk(self) -> bool:
        """A disk is full for a time."""
        machine = self.dice.choice(list(self.world.machines.values()))
        machine.disk.capacity_bytes = machine.disk.used_bytes() + self.dice.randrange(200)
        self.events.note(machine.host, "its disk is full")

        def heal() -> None:
            machine.disk.capacity_bytes = None

        self._later(100, 2000, heal)
        return True

    def break_disk(self) -> bool:
        """A disk fails once."""
        machine = self.dice.choice(list(self.world.machines.values()))
        fail = self.dice.choice(
            [machine.disk.fail_next_write, machine.disk.fail_next_sync, machine.disk.fail_next_truncate]
        )
        fail(match=self.dice.choice(["safe", "other", "data"]))
        self.events.note(machine.host, "its disk fails once")
        return True


Fault = Callable[[Simulation], bool]


def words(fault: Fault) -> str:
    """Return the description of a fault."""
    return (fault.__doc__ or "").rstrip(".")


FAULTS: tuple[Fault, ...] = (
    Simulation.kill,
    Simulation.power_cut,
    Simulation.power_cut_everywhere,
    Simulation.end_in_the_middle,
    Simulation.stop,
    Simulation.pause,
    Simulation.expire,
    Simulation.lose_zookeeper,
    Simulation.partition,
    Simulation.isolate,
    Simulation.clog,
    Simulation.lose_connections,
    Simulation.hang_connections,
    Simulation.slow_network,
    Simulation.slow_notifications,
    Simulation.slow_control,
    Simulation.jump,
    Simulation.fill_disk,
    Simulation.break_disk,
)
CAREFUL: tuple[Fault, ...] = (Simulation.careful_power_cut, Simulation.lose_connections, Simulation.jump)
"""The faults of runs with power cuts and without flushes."""
ONLY_DURABLE = frozenset({Simulation.power_cut, Simulation.power_cut_everywhere})
