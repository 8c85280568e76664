"""What a cluster promises, and who looks whether it holds.

While it runs
    In each leader epoch of a partition one broker leads, at most, and its high watermark never goes back.
    What a consumer has read at an offset is what every consumer reads there.
    The coordinator of a group tells no older offset than was acknowledged.
At the end, when faults have stopped
    Every partition has a leader, all its replicas in sync and with the same bytes; topics that were to be
    deleted are gone, also where another one has their name, and no request of an operator is left.
    What was acknowledged with acks=all lies at its offset; of idempotent producers once, in their order.
    Where a replica may be elected that is not in sync, and was, that is what lay below its high watermark,
    and what was acknowledged since.
    What a consumer has read lies where it was read. Committed offsets are the last ones, or later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from minikafka.base.ids import TopicPartition
from minikafka.records.format.message_set import iterate
from minikafka.registry import paths
from minikafka.registry.paths import PartitionState, TopicAssignment
from minikafka.wire.frame_parts import buffer_of
from tests.faults.cluster_machines import Machine, World

PARTITIONS = 6
"""A topic has at most so many: one, and another with each deed of the operator."""


class Broken(BaseException):
    """A promise that was not kept. Not an Exception, which the product would take for its own."""


@dataclass
class Kept:
    """What the clients of one partition know."""

    sent: dict[bytes, str] = field(default_factory=dict)
    """Value -> who sent it."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """With acks=all, by offset."""
    in_order: dict[str, list[bytes]] = field(default_factory=dict)
    """What idempotent producers sent, and was acknowledged, in their order."""
    once: set[bytes] = field(default_factory=set)
    """What must not be there twice."""
    read: dict[int, bytes] = field(default_factory=dict)
    old: frozenset[bytes] = frozenset()
    """What was acknowledged by a topic of the same name before, and went with it."""


class Oracle:
    """Knows what was promised. ``Broken`` says what was not kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partitions: dict[TopicPartition, Kept] = {}
        self.deleted: set[str] = set()
        """Topics that somebody has asked to delete: nothing is promised of them any more."""
        self.lives: Counter[str] = Counter()
        """How often a topic of that name was made again."""
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.counts: Counter[str] = Counter()
        self.unclean: set[str] = set()
        """Topics of which a replica may be elected that is not in sync."""
        self._states: dict[TopicPartition, tuple[bytes, PartitionState]] = {}
        self._lossy: set[TopicPartition] = set()
        self._parted: dict[TopicPartition, int] = {}
        """From where on replicas elected out of sync may differ from the others."""
        """Of these one was."""
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._watermarks: dict[tuple[TopicPartition, int], int] = {}

    def kept(self, partition: TopicPartition) -> Kept:
        return self.partitions.setdefault(partition, Kept())

    def made_again(self, topic: str) -> None:
        """A topic of this name was deleted and is gone, and another one is made: nothing of the old one may
        be in it.
        """
        self.deleted.discard(topic)
        self.lives[topic] += 1
        self.counts["topics made again"] += 1
        for name, kept in list(self.partitions.items()):
            if name.topic == topic:
                gone = kept.old | set(kept.acknowledged.values())
                self.partitions[name] = Kept(sent=kept.sent, once=kept.once, old=frozenset(gone))
        for table in (self._leaders, self._watermarks):
            for key in [key for key in table if key[0].topic == topic]:
                del table[key]

    # --- what clients tell ----------------------------------------------------------------------------------

    def sending(self, who: str, partition: TopicPartition, values: Iterable[bytes], *, once: bool) -> None:
        kept = self.kept(partition)
        for value in values:
            kept.sent[value] = who
            if once:
                kept.once.add(value)

    def acknowledged(
        self, who: str, partition: TopicPartition, offset: int, values: list[bytes], life: int
    ) -> None:
        """With acks=all; ``offset`` -1 where the answer did not tell; ``life``: of the topic, when it was
        sent.
        """
        kept = self.kept(partition)
        self.counts["messages acknowledged by all"] += len(values)
        if life != self.lives[partition.topic]:
            return  # nobody knows by which of them
        if partition in self._lossy and not self._is_led_with(partition, offset, values[0]):
            return
        if values[0] in kept.once:
            kept.in_order.setdefault(who, []).extend(values)
        if partition.topic in self.deleted or offset < 0:
            return
        for at, value in enumerate(values, start=offset):
            other = kept.acknowledged.setdefault(at, value)
            if other != value:
                raise Broken(f"{partition}: offset {at} was acknowledged for {other!r} and for {value!r}")
            self._compare(partition, at, value, "acknowledged")
        if partition.topic == "safe":
            self._check_copies(partition, offset + len(values))

    def _check_copies(self, name: TopicPartition, end: int) -> None:
        """Two replicas have what lies below ``end``, unless the brokers of others are not there to ask."""
        without = []
        for machine in self.world.machines.values():
            if machine.running is None or machine.number not in self._replicas(name):
                continue
            log = machine.running.broker.logs.get(name)
            if log is None or log.end_offset < end:
                without.append(machine.number)
        if len(without) > len(self._replicas(name)) - 2:
            raise Broken(f"{name}: all below {end} is acknowledged, and brokers {without} do not have it")

    def read(self, partition: TopicPartition, offset: int, value: bytes, life: int) -> None:
        """A consumer has got this; ``life``: of the topic, when it asked."""
        kept = self.kept(partition)
        self.counts["messages read"] += 1
        if partition.topic in self.deleted or life != self.lives[partition.topic]:
            return
        if partition in self._lossy and not self._is_led_with(partition, offset, value):
            return
        if value in kept.old:
            raise Broken(f"{partition}: {value!r} was read at offset {offset}, of a topic that was deleted")
        if value not in kept.sent:
            raise Broken(f"{partition}: {value!r} was read at offset {offset}, and nobody sent it")
        kept.read.setdefault(offset, value)
        self._compare(partition, offset, value, "read")

    def _compare(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        kept = self.partitions[partition]
        for where, other_how in ((kept.acknowledged, "acknowledged"), (kept.read, "read")):
            other = where.get(offset, value)
            if other != value:
                raise Broken(
                    f"{partition}: offset {offset} was {other_how} with {other!r}, and {how} with {value!r}"
                )

    def _is_led_with(self, name: TopicPartition, offset: int, value: bytes) -> bool:
        """Whether the leader of now, by ZooKeeper, has a value at an offset: what an earlier one says is lost
        with it, once a replica was elected that was not in sync.
        """
        _, state = self._states[name]
        running = self.world.machines[state.leader].running if state.leader >= 0 else None
        partition = None if running is None else running.broker.partitions.get(name)
        if partition is None or self.coordinates(state.leader, name) < 0:
            return False
        if not partition.log.start_offset <= offset < partition.log.end_offset:
            return False
        found = partition.log.read(offset, 1, at_least_one=True).slice
        records = [] if found is None else iterate(found.read())
        return any(record.offset == offset and record.value == value for record in records)

    def _watch_elections(self) -> None:
        """Notice who is elected out of sync: what reaches beyond its high watermark may be lost then, and
        nothing else.
        """
        for name in (TopicPartition(topic, number) for topic in self.unclean for number in range(PARTITIONS)):
            znode = self.world.zookeeper._znodes.get(paths.partition_state_path(*name))
            known = self._states.get(name)
            if znode is None or (known is not None and known[0] == znode.data):
                continue
            state = PartitionState.from_json(znode.data, "")
            self._states[name] = znode.data, state
            if known is None or state.leader < 0 or state.leader in known[1].isr:
                continue
            self._lossy.add(name)
            self.counts["leaders elected out of sync"] += 1
            running = self.world.machines[state.leader].running
            partition = None if running is None else running.broker.partitions.get(name)
            end = 0 if partition is None else partition.high_watermark
            # What it has may be of a history that parted from the others' with such an election before.
            end = self._parted[name] = min(end, self._parted.get(name, end))
            kept = self.kept(name)
            for table in (kept.acknowledged, kept.read):
                for offset in [offset for offset in table if offset >= end]:
                    del table[offset]

    def coordinates(self, broker: int, name: TopicPartition) -> int:
        """The epoch in which a broker leads ``name``, by ZooKeeper and by itself; -1 where it does not."""
        znode = self.world.zookeeper._znodes.get(paths.partition_state_path(*name))
        running = self.world.machines[broker].running
        partition = None if running is None else running.broker.partitions.get(name)
        if znode is None or partition is None or partition.leadership is None:
            return -1
        state, known = PartitionState.from_json(znode.data, ""), partition.leadership
        agreed = (state.leader, state.leader_epoch) == (broker, known.leader_epoch)
        return state.leader_epoch if agreed and known.leader == broker else -1

    # --- while it runs --------------------------------------------------------------------------------------

    def look(self, machine: Machine) -> None:
        """At what a broker leads now."""
        self._watch_elections()
        if machine.running is None:
            return
        for name, partition in machine.running.broker.partitions.items():
            leadership = partition.leadership
            if leadership is None or leadership.leader != machine.number or name.topic in self.deleted:
                continue
            key = name, leadership.leader_epoch
            leader = self._leaders.setdefault(key, machine.number)
            if leader != machine.number:
                raise Broken(f"{name}: brokers {leader} and {machine.number} both lead in epoch {key[1]}")
            before, now = self._watermarks.get(key, 0), partition.high_watermark
            if now < before:
                raise Broken(f"{name}: the high watermark of epoch {key[1]} goes back from {before} to {now}")
            self._watermarks[key] = now

    # --- when it should be whole ----------------------------------------------------------------------------

    def unled(self) -> str:
        """A partition that somebody could lead who is there, and nobody leads; empty when there is none."""
        live = {number for number, machine in self.world.machines.items() if machine.running is not None}
        for name in sorted(self.partitions):
            znode = self.world.zookeeper._znodes.get(paths.partition_state_path(*name))
            if znode is not None and name.topic not in self.deleted:
                state = PartitionState.from_json(znode.data, "")
                could = self._replicas(name) if name.topic in self.unclean else state.isr
                if state.leader not in live and live & set(could):
                    return f"{name} is led by {state.leader}, and {state.isr} are in sync"
        return ""

    def whole(self, *, at_rest: bool = True) -> str:
        """What is still missing; empty when all is as it should be. ``at_rest``: nobody writes any more."""
        world, zookeeper = self.world, self.world.zookeeper
        znodes = zookeeper._znodes
        for machine in world.machines.values():
            if machine.running is None:
                return f"{machine.host} does not run"
            if machine.session is None or not machine.session.connected:
                return f"{machine.host} has no ZooKeeper"
        topics = znodes[paths.BROKER_TOPICS].children if paths.BROKER_TOPICS in znodes else set()
        for path in (paths.PREFERRED_ELECTION, paths.REASSIGN_PARTITIONS):
            if path in znodes:
                return f"{path} is still there"
        for topic in sorted(self.deleted):
            if topic in topics or f"{paths.DELETE_TOPICS}/{topic}" in znodes:
                return f"topic {topic} is not deleted"
            for machine in world.machines.values():
                assert machine.running is not None
                if machine.running.broker.logs.partitions_of(topic):
                    return f"{machine.host} still has logs of {topic}"
        for topic in sorted(topics):
            path = paths.topic_path(topic)
            for number, replicas in TopicAssignment.from_json(znodes[path].data, path).partitions.items():
                missing = self._missing(TopicPartition(topic, number), replicas, at_rest)
                if missing:
                    return missing
        return ""

    def _missing(self, name: TopicPartition, replicas: tuple[int, ...], at_rest: bool) -> str:
        znode = self.world.zookeeper._znodes.get(paths.partition_state_path(*name))
        if znode is None:
            return f"{name} has no state"
        state = PartitionState.from_json(znode.data, "")
        if state.leader not in replicas:
            return f"{name} is led by {state.leader}, its replicas are {replicas}"
        if set(state.isr) != set(replicas):
            return f"{name}: {state.isr} of {replicas} are in sync"
        leading = self.world.machines[state.leader].running
        assert leading is not None
        ends = set()
        for machine in self.world.machines.values():
            assert machine.running is not None
            partition = machine.running.broker.partitions.get(name)
            if machine.number not in replicas:
                continue  # a log may be left there: who was away when it was to go is not told again
            if partition is None or partition.leadership is None:
                return f"{machine.host} does not know {name}"
            known = partition.leadership
            if (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                return f"{machine.host} follows {known.leader}, epoch {known.leader_epoch}, for {name}"
            if partition.log.failure is not None:
                return f"{machine.host} cannot write {name}: {partition.log.failure}"
            ends.add(partition.log.end_offset)
            ends.add(partition.high_watermark)
            told = machine.running.broker.metadata_cache.leadership(name)
            if told is None or told.leader != state.leader:
                return f"{machine.host} tells clients another leader of {name}"
        return f"{name} ends at {sorted(ends)}" if at_rest and len(ends) > 1 else ""

    def _replicas(self, name: TopicPartition) -> tuple[int, ...]:
        path = paths.topic_path(name.topic)
        return TopicAssignment.from_json(self.world.zookeeper._znodes[path].data, path).partitions[
            name.partition
        ]

    # --- at the end -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """All promises, once the cluster is whole."""
        topics = self.world.zookeeper._znodes[paths.BROKER_TOPICS].children
        for name, kept in self.partitions.items():
            if name.topic not in self.deleted and name.topic in topics:
                self._check_partition(name, kept)

    def _check_partition(self, name: TopicPartition, kept: Kept) -> None:
        copies = {}
        for machine in self.world.machines.values():
            assert machine.running is not None
            partition = machine.running.broker.partitions.get(name)
            if partition is not None and machine.number in self._replicas(name):
                copies[machine.number] = b"".join(
                    bytes(buffer_of(segment.file.read_at(0, segment.size)))
                    for segment in partition.log.segments
                )
        (first, content), *others = copies.items()
        for number, other in others:
            if other != content:
                raise Broken(f"{name}: brokers {first} and {number} have different bytes")
        there: dict[int, bytes] = {}
        times: Counter[bytes] = Counter()
        for record in iterate(content):
            value = record.value or b""
            there[record.offset] = value
            times[value] += 1
        for offset, value in kept.acknowledged.items():
            if there.get(offset) != value:
                raise Broken(
                    f"{name}: {value!r} was acknowledged at offset {offset}, where {there.get(offset)!r} is"
                )
        for offset, value in kept.read.items():
            if there.get(offset) != value:
                raise Broken(f"{name}: {value!r} was read at offset {offset}, where {there.get(offset)!r} is")
        if kept.old & times.keys():
            raise Broken(f"{name}: {sorted(kept.old & times.keys())} are of a topic that was deleted")
        for value in kept.once:
            if times[value] > 1:
                raise Broken(f"{name}: {value!r} of an idempotent producer is there {times[value]} times")
        offsets = {value: offset for offset, value in there.items()}
        for who, values in kept.in_order.items():
            lost = [value for value in values if value not in offsets]
            if lost and name not in self._lossy:
                raise Broken(f"{name}: of {who}, {lost} were acknowledged and are lost")
            where = [offsets[value] for value in values if value in offsets]
            if where != sorted(where):
                raise Broken(f"{name}: of {who}, {values} are not in their order")
        self.counts["messages at the end"] += len(there)
