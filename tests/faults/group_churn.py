"""Simulate a group whose consumers come, go, restart and fail for some seconds, as one seed decides.

Brokers, network and time are in memory; consumers and their coordinator are the product's own. A seed chooses
the assignors (range, cooperative-sticky, or both), whether members are static, and whether all goes well
(``gentle``).

What must hold:

- two members of one generation never have the same partition
- in the end every partition has an owner, and every record was returned to some member
- in a gentle seed no record was returned twice, and a static member that restarts makes no rebalance
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Collection
from typing import Any

from minikafka.base.errors import BrokerError, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.net.memory import Fault
from tests.support.group_consumer_harness import T0, T1, T2, T3, GroupHarness

STEPS = 40
QUIET_ROUNDS = 3_000
"""Longer than the sessions of members that were lost, each in a generation of its own."""
MEMBERS_MAX = 4
STILL_ROUNDS = 10
"""Longer than heartbeats take to tell of a rebalance."""
PARTITIONS = (T0, T1, T2, T3)
ASSIGNORS = (("range",), ("cooperative-sticky",), ("range", "cooperative-sticky"))


class Member:
    """A consumer, its name as a static member, and what its listener has heard."""

    def __init__(self, consumer: GroupConsumer, instance_id: str | None) -> None:
        self.consumer = consumer
        self.instance_id = instance_id
        self.owned: set[TopicPartition] = set()
        self.rebalances = 0

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        assert not self.owned & set(partitions), "assigned twice"
        self.owned |= set(partitions)
        self.rebalances += 1

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        assert set(partitions) <= self.owned, "revoked without having been assigned"
        self.owned -= set(partitions)


class GroupChurn:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.harness = GroupHarness()
        self.gentle = seed % 2 == 0
        self.static = self.random.random() < 0.5
        self.assignors = self.random.choice(ASSIGNORS)
        self.members: list[Member] = []
        self.found: Counter[bytes] = Counter()
        self.sent = {b"t-%d-%d" % (tp.partition, number) for tp in PARTITIONS for number in range(5)}
        self.happened: Counter[str] = Counter()

    def run(self) -> None:
        """Live through it, and check what must hold."""
        self.start()
        for _ in range(STEPS):
            actions = [self.start, self.restart, self.close, self.produce, self.produce, self.commit]
            actions += [self.pause, self.move_leader]
            if not self.gentle:
                actions += [self.kill, self.cut, self.move_coordinator, self.be_slow]
            action = self.random.choice(actions)
            action()
            for member in list(self.members) if self.gentle else self.random.choices(self.members or [None]):
                if member is not None:
                    self.poll(member)
        if not self.members:
            self.start()
        self.settle()
        for member in self.members:
            member.consumer.close()
        assert self.sent <= self.found.keys(), f"lost: {sorted(self.sent - self.found.keys())}"
        if self.gentle:
            twice = {value: count for value, count in self.found.items() if count > 1}
            assert not twice, f"returned more than once: {twice}"

    # --- what happens ---------------------------------------------------------------------------------------

    def start(self, instance_id: str | None = None) -> None:
        names = {f"i{number}" for number in range(MEMBERS_MAX)} - {one.instance_id for one in self.members}
        if len(self.members) >= MEMBERS_MAX:
            return
        if self.static and instance_id is None:
            instance_id = self.random.choice(sorted(names))
        config: dict[str, Any] = {"auto_commit": True, "auto_commit_interval_ms": 500}
        consumer = self.harness.bare(assignors=self.assignors, group_instance_id=instance_id, **config)
        member = Member(consumer, instance_id)
        consumer.subscribe(["t"], listener=member)
        self.members.append(member)
        self.happened["a member started"] += 1

    def restart(self) -> None:
        """A static member restarts, and nobody else must notice."""
        candidates = [one for one in self.members if one.instance_id is not None]
        if not candidates:
            return
        if self.gentle:
            self.settle()
        old = self.random.choice(candidates)
        others = [(one, one.rebalances) for one in self.members if one is not old]
        owned = set(old.owned)
        self.members.remove(old)
        self.close_quietly(old)
        self.start(old.instance_id)
        self.happened["a static member restarted"] += 1
        if self.gentle:
            for _ in range(8):
                for member in list(self.members):
                    self.poll(member)
            assert self.members[-1].owned == owned
            assert all(one.rebalances == before for one, before in others), "others have rebalanced"
            self.happened["and nobody noticed"] += 1

    def close(self) -> None:
        if self.members:
            if self.gentle:
                self.settle()  # whoever leaves while it joins cannot commit
            member = self.members.pop(self.random.randrange(len(self.members)))
            self.close_quietly(member)
            self.happened["a member left"] += 1
            if member.instance_id is not None and self.gentle:
                self.let_expire()

    def close_quietly(self, member: Member) -> None:
        try:
            member.consumer.close()
        except MinikafkaError:
            assert not self.gentle

    def kill(self) -> None:
        if self.members:
            self.members.pop(self.random.randrange(len(self.members)))
            self.happened["a member was killed"] += 1

    def cut(self) -> None:
        fault = self.random.choice([Fault.CUT_REQUEST, Fault.CUT_RESPONSE])
        self.harness.brokers.fault(self.random.choice([1, 2]), fault, self.random.randint(1, 3))
        self.happened["a connection broke"] += 1

    def move_coordinator(self) -> None:
        self.harness.brokers.move_coordinator(self.random.choice([1, 2]))
        self.happened["the coordinator moved"] += 1

    def be_slow(self) -> None:
        self.harness.brokers.advance(self.random.choice([1_000, 6_000, 15_000]))
        self.happened["nobody polled for seconds"] += 1

    def let_expire(self) -> None:
        """The session of a static member that is away ends, while the others poll."""
        for _ in range(260):
            for member in list(self.members):
                self.poll(member)
            self.harness.brokers.advance(50)

    def produce(self) -> None:
        tp = self.random.choice(PARTITIONS)
        values = [b"%d-%d" % (len(self.sent), number) for number in range(self.random.randint(1, 3))]
        self.harness.brokers.fill(tp, *values)
        self.sent |= set(values)
        self.happened["records were produced"] += 1

    def commit(self) -> None:
        for member in self.members:
            with contextlib.suppress(BrokerError if self.gentle else MinikafkaError):
                member.consumer.commit_sync(timeout_ms=1_000)

    def pause(self) -> None:
        """A member pauses some of its partitions, and resumes the others."""
        if self.members:
            member = self.random.choice(self.members)
            owned = member.consumer.assignment
            paused = [tp for tp in owned if self.random.random() < 0.5]
            member.consumer.pause(*paused)
            member.consumer.resume(*(tp for tp in owned if tp not in paused))
            self.happened["partitions were paused"] += bool(paused)

    def move_leader(self) -> None:
        self.harness.brokers.move_leader(self.random.choice(PARTITIONS), self.random.choice([1, 2]))
        self.happened["a leader moved"] += 1

    # --- looking --------------------------------------------------------------------------------------------

    def poll(self, member: Member) -> None:
        try:
            records = member.consumer.poll_records(50)
        except BrokerError:
            # Fenced, or refused for good: the application ends.
            assert not self.gentle
            self.members.remove(member)
            self.happened["a member was refused"] += 1
            return
        self.found.update(record.value or b"" for record in records)
        self.check()

    def check(self) -> None:
        seen: dict[tuple[int, TopicPartition], Member] = {}
        for member in self.members:
            assert member.owned == set(member.consumer.assignment)
            for tp in member.owned:
                if member.consumer.generation < 0:
                    continue
                other = seen.setdefault((member.consumer.generation, tp), member)
                assert other is member, f"{tp} has two owners in generation {member.consumer.generation}"

    def settle(self) -> None:
        """Poll until the partitions are shared for a while, among all, and all is read."""
        still = 0
        for member in self.members:
            member.consumer.resume(*member.consumer.paused)
        for _ in range(QUIET_ROUNDS):
            for member in list(self.members):
                self.poll(member)
            if not self.members:
                self.start()
            owned = [tp for member in self.members for tp in member.owned]
            generations = {member.consumer.generation for member in self.members}
            shared = sorted(owned) == list(PARTITIONS) and len(generations) == 1 and min(generations) > 0
            still = still + 1 if shared and self.sent <= self.found.keys() else 0
            if still > STILL_ROUNDS:
                return
        raise AssertionError(f"not settled: {[sorted(one.owned) for one in self.members]}")
