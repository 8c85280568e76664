"""The guarantees of a cluster, and the oracle that checks them.

While it runs
    In each leader epoch of a partition at most one broker leads, and its high watermark never decreases.
    All consumers read the same message at an offset.
    The coordinator of a group returns no older offset than the acknowledged one.
At the end, after the faults
    Every partition has a leader, and all its replicas are in sync and have the same bytes. Deleted topics do
    not exist, and a new topic of the same name has nothing of them; no request of an operator is left. A
    partition that was moved away from a broker has no log there, if that broker and the controller stayed.
    Messages acknowledged with acks=all are at their offsets; those of idempotent producers once, in order.
    After an unclean election this holds for the messages below the high watermark of the elected replica, and
    for those acknowledged since.
    Messages that a consumer has read are at the same offsets. Committed offsets are the last ones, or later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from minikafka.base.ids import TopicPartition
from minikafka.log.checkpoints.partition_metadata import read_topic_id
from minikafka.records.format.message_set import iterate
from minikafka.registry import paths
from minikafka.registry.topics import PartitionState, TopicAssignment
from minikafka.wire.frame_parts import buffer_of
from tests.faults.cluster_machines import Machine, World

PARTITIONS = 6
"""The limit of partitions of a topic: one, and one more for each action of the operator."""


class Broken(BaseException):
    """A broken guarantee. Not an Exception, which the product would handle."""


@dataclass
class Kept:
    """The messages of one partition, by its clients."""

    sent: dict[bytes, str] = field(default_factory=dict)
    """Value -> its producer."""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Messages acknowledged with acks=all, by offset."""
    in_order: dict[str, list[bytes]] = field(default_factory=dict)
    """Acknowledged messages of each idempotent producer, in send order."""
    once: set[bytes] = field(default_factory=set)
    """Messages that must not be duplicated."""
    read: dict[int, bytes] = field(default_factory=dict)
    old: frozenset[bytes] = frozenset()
    """Acknowledged messages of a deleted topic with the same name."""


class Oracle:
    """Checks the guarantees. Raises ``Broken``."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partitions: dict[TopicPartition, Kept] = {}
        self.deleted: set[str] = set()
        """Topics marked for deletion, which have no guarantees."""
        self.lives: Counter[str] = Counter()
        """The number of times that a topic of this name was recreated."""
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.counts: Counter[str] = Counter()
        self.unclean: set[str] = set()
        """Topics with unclean leader election."""
        self._states: dict[TopicPartition, tuple[bytes, PartitionState]] = {}
        self._lossy: set[TopicPartition] = set()
        """Partitions with an unclean election."""
        self._diverged_from: dict[TopicPartition, int] = {}
        """The offset from which replicas elected out of sync may differ from the others."""
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._watermarks: dict[tuple[TopicPartition, int], int] = {}
        self._moved_from: dict[tuple[TopicPartition, int], Sequence[int | None]] = {}
        """(Partition, broker that it was moved away from) -> ``_registrations`` before the move."""
        self._last_replicas: dict[TopicPartition, tuple[int, ...]] = {}
        """The replicas of partitions of deleted topics, as long as ZooKeeper had them."""

    def kept(self, partition: TopicPartition) -> Kept:
        return self.partitions.setdefault(partition, Kept())

    def recreated(self, topic: str) -> None:
        """Record that a deleted topic is created again: it must have nothing of the old one."""
        self.deleted.discard(topic)
        self.lives[topic] += 1
        self.counts["topics recreated"] += 1
        for name, kept in list(self.partitions.items()):
            if name.topic == topic:
                old = kept.old | set(kept.acknowledged.values())
                self.partitions[name] = Kept(sent=kept.sent, once=kept.once, old=frozenset(old))
        for table in (self._leaders, self._watermarks):
            for key in [key for key in table if key[0].topic == topic]:
                del table[key]

    def moving(self, name: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Record that an operator requests the move of a partition to ``replicas``."""
        for number in self.world.machines.keys() - set(replicas):
            self._moved_from[name, number] = self._registrations(number)

    # --- reports of clients ---------------------------------------------------------------------------------

    def sending(self, who: str, partition: TopicPartition, values: Iterable[bytes], *, once: bool) -> None:
        kept = self.kept(partition)
        for value in values:
            kept.sent[value] = who
            if once:
                kept.once.add(value)

    def acknowledged(
        self, who: str, partition: TopicPartition, offset: int, values: list[bytes], life: int
    ) -> None:
        """Record messages acknowledged with acks=all. ``offset``: -1 if unknown. ``life``: that of the topic
        when they were sent.
        """
        kept = self.kept(partition)
        self.counts["messages acknowledged by all"] += len(values)
        if life != self.lives[partition.topic]:
            return  # it is unknown which of the topics has them
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
        """Check that two replicas have all messages below ``end``, as far as their brokers are alive."""
        without = []
        for machine in self.world.machines.values():
            if machine.running is None or machine.number not in self._replicas(name):
                continue
            log = machine.running.broker.logs.get(name)
            if log is None or log.end_offset < end:
                without.append(machine.number)
        if len(without) > len(self._replicas(name)) - 2:
            raise Broken(f"{name}: all below {end} is acknowledged, but brokers {without} do not have it")

    def read(self, partition: TopicPartition, offset: int, value: bytes, life: int) -> None:
        """Record a message that a consumer has read. ``life``: that of the topic when it was requested."""
        kept = self.kept(partition)
        self.counts["messages read"] += 1
        if partition.topic in self.deleted or life != self.lives[partition.topic]:
            return
        if partition in self._lossy and not self._is_led_with(partition, offset, value):
            return
        if value in kept.old:
            raise Broken(f"{partition}: {value!r} of a deleted topic was read at offset {offset}")
        if value not in kept.sent:
            raise Broken(f"{partition}: {value!r} was read at offset {offset}, but was never sent")
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
        """Return True if the current leader by ZooKeeper has this value at this offset. After an unclean
        election, responses of an earlier leader do not count.
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
        """Detect unclean elections: messages above the high watermark of the elected replica may be lost, and
        no others.
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
            # Its log may have diverged from the others at an earlier unclean election.
            end = self._diverged_from[name] = min(end, self._diverged_from.get(name, end))
            kept = self.kept(name)
            for table in (kept.acknowledged, kept.read):
                for offset in [offset for offset in table if offset >= end]:
                    del table[offset]

    def _watch_deletions(self) -> None:
        znodes = self.world.zookeeper._znodes
        for topic in self.deleted:
            if paths.topic_path(topic) in znodes:
                for number, replicas in self._assignment(topic).partitions.items():
                    self._last_replicas[TopicPartition(topic, number)] = replicas

    def _registrations(self, broker: int) -> Sequence[int | None]:
        """Return the transactions that registered a broker and the controller; None if not registered."""
        znodes = map(self.world.zookeeper._znodes.get, (paths.broker_path(broker), paths.CONTROLLER))
        return [None if znode is None else znode.created_at for znode in znodes]

    def _may_keep_log(self, machine: Machine, name: TopicPartition) -> bool:
        """Return True if a broker may keep a log that it does not lead: the partition was moved away from it,
        and its registration, or the controller's, has ended since the move began. A broker that is away is
        not asked to delete the log, and a controller that ends may not have asked.
        """
        assert machine.running is not None
        move, partition = (name, machine.number), machine.running.broker.partitions.get(name)
        leadership = None if partition is None else partition.leadership
        return (
            (leadership is None or leadership.leader != machine.number)
            and machine.number not in self._last_replicas.get(name, ())
            and move in self._moved_from
            and self._moved_from[move] != self._registrations(machine.number)
        )

    def coordinates(self, broker: int, name: TopicPartition) -> int:
        """Return the epoch in which a broker leads ``name``, by ZooKeeper and by itself; else -1."""
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
        """Check the partitions that a broker leads now."""
        self._watch_elections()
        self._watch_deletions()
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

    # --- after the faults -----------------------------------------------------------------------------------

    def unled(self) -> str:
        """Return the problem of a partition that lacks a leader and could have one; empty if none."""
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
        """Return what a whole cluster lacks; empty if nothing. ``at_rest``: all writes have ended."""
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
                logs = machine.running.broker.logs.partitions_of(topic)
                if not all(self._may_keep_log(machine, name) for name in logs):
                    return f"{machine.host} still has logs of {topic}"
        for topic in sorted(topics):
            for number, replicas in self._assignment(topic).partitions.items():
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
                if machine.running.broker.logs.get(name) is not None and not self._may_keep_log(
                    machine, name
                ):
                    return f"{machine.host} still has the log of {name}, which was moved away"
                continue
            if partition is None or partition.leadership is None:
                return f"{machine.host} does not know {name}"
            known = partition.leadership
            if (known.leader, known.leader_epoch) != (state.leader, state.leader_epoch):
                return f"{machine.host} follows {known.leader}, epoch {known.leader_epoch}, for {name}"
            if partition.log.failure is not None:
                return f"{machine.host} cannot write {name}: {partition.log.failure}"
            topic_id = self._assignment(name.topic).topic_id
            if topic_id and read_topic_id(machine.disk, partition.log.directory) != topic_id:
                return f"{machine.host} has another topic id in its log of {name}"
            ends.add(partition.log.end_offset)
            ends.add(partition.high_watermark)
            cached = machine.running.broker.metadata_cache.leadership(name)
            if cached is None or cached.leader != state.leader:
                return f"{machine.host} returns another leader of {name} in metadata"
        return f"{name} ends at {sorted(ends)}" if at_rest and len(ends) > 1 else ""

    def _replicas(self, name: TopicPartition) -> tuple[int, ...]:
        return self._assignment(name.topic).partitions[name.partition]

    def _assignment(self, topic: str) -> TopicAssignment:
        path = paths.topic_path(topic)
        return TopicAssignment.from_json(self.world.zookeeper._znodes[path].data, path)

    # --- at the end -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check all guarantees of a whole cluster."""
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
                    f"{name}: {value!r} was acknowledged at offset {offset}, which has {there.get(offset)!r}"
                )
        for offset, value in kept.read.items():
            if there.get(offset) != value:
                raise Broken(
                    f"{name}: {value!r} was read at offset {offset}, which has {there.get(offset)!r}"
                )
        if kept.old & times.keys():
            raise Broken(f"{name}: {sorted(kept.old & times.keys())} are of a deleted topic")
        for value in kept.once:
            if times[value] > 1:
                raise Broken(f"{name}: idempotent {value!r} was written {times[value]} times")
        offsets = {value: offset for offset, value in there.items()}
        for who, values in kept.in_order.items():
            lost = [value for value in values if value not in offsets]
            if lost and name not in self._lossy:
                raise Broken(f"{name}: acknowledged messages {lost} of {who} are lost")
            where = [offsets[value] for value in values if value in offsets]
            if where != sorted(where):
                raise Broken(f"{name}: messages {values} of {who} are not in order")
        self.counts["messages at the end"] += len(there)
