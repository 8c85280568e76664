"""Three replicas of a partition, ZooKeeper and a controller, in a random order of events.

Fetches and their responses, ISR writes and their results, and the controller's requests come late, or never.
The invariant after each event: all records that any leader ever committed are in the log of every replica in
ZooKeeper's ISR, at the same offsets; so the next leader of these has them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from minikafka.base.errors import BrokerError
from minikafka.log.checkpoints.leader_epochs import UNKNOWN
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.records.append.replicated import FollowerRecords
from tests.support.replicas import ALL, T, leadership, messages, replica, taken, values
from tests.support.seeds import seeds

LAG_MS = 100
STEPS = 300


class ReplicationHarness:
    """A partition, ZooKeeper and a controller; ``seed`` decides the events."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.made = 0
        self.zookeeper = leadership(1)
        self.replicas = {broker: replica(broker) for broker in ALL}
        self.announced: dict[int, LeaderAndIsr] = dict.fromkeys(ALL, self.zookeeper)
        """The last state from the controller that each broker has not received yet."""
        self.agrees: set[int] = set()
        """Followers that have cut their logs for their present leader."""
        self.coming: dict[int, tuple[int, FollowerRecords | None, int]] = {}
        """Fetch responses: leader epoch, messages, high watermark."""
        self.wanted: dict[int, LeaderAndIsr] = {}
        """ISRs that leaders want to write."""
        self.written: dict[int, tuple[LeaderAndIsr, LeaderAndIsr | None]] = {}
        """The results of these writes that leaders have not received yet."""
        self.committed: list[bytes | None] = []

    def leader_of(self, follower: int) -> Partition | None:
        """Return the leader of a follower, if it leads in the same epoch."""
        known = self.replicas[follower].leadership
        if known is None or known.leader in {follower, -1}:
            return None
        leader = self.replicas[known.leader]
        same = leader.leadership is not None and leader.leadership.leader_epoch == known.leader_epoch
        return leader if same and leader.is_leader else None

    # --- the leader -----------------------------------------------------------------------------------------

    def produce(self, broker: int) -> None:
        partition = self.replicas[broker]
        if partition.is_leader:
            self.made += 1
            count = self.chance.randint(1, 3)
            contents = (b"%d.%d by %d" % (self.made, number, broker) for number in range(count))
            partition.append(messages(*contents))

    def look_for_laggards(self, broker: int) -> None:
        self.want(broker, self.replicas[broker].shrink_isr(self.now_ms, LAG_MS))

    def let_time_pass(self, broker: int) -> None:
        self.now_ms += self.chance.randint(1, LAG_MS)

    # --- followers ------------------------------------------------------------------------------------------

    def fetch(self, follower: int) -> None:
        partition, leader = self.replicas[follower], self.leader_of(follower)
        if leader is None or leader.leadership is None:
            return
        if follower not in self.agrees:
            self.cut(partition, leader)
            self.agrees.add(follower)
        offset = partition.log.end_offset
        self.want(
            leader.leadership.leader,
            leader.update_follower_fetch_state(follower, offset, self.now_ms).proposed_isr,
        )
        more = offset < leader.log.end_offset
        found = taken(leader, offset) if more else None
        self.coming[follower] = leader.leadership.leader_epoch, found, leader.high_watermark

    def cut(self, partition: Partition, leader: Partition) -> None:
        """Truncate the follower's log at the point where the logs diverge, by their epochs."""
        log, known = partition.log, leader.leadership
        assert known is not None
        asked = log.epochs.latest
        while asked != UNKNOWN:
            epoch, end = leader.log.end_offset_for_epoch(asked)
            if end == UNKNOWN:
                assert asked > known.leader_epoch
                break
            own_epoch, own_end = log.end_offset_for_epoch(epoch)
            log.truncate_to(min(end, own_end))
            partition.complete_truncation()
            if own_epoch == epoch:
                break
            asked = own_epoch

    def receive(self, follower: int) -> None:
        """Apply a fetch response; late ones from other leaders are refused."""
        epoch, found, high_watermark = self.coming.pop(follower, (UNKNOWN, None, 0))
        partition = self.replicas[follower]
        try:
            partition.check_follower(epoch)
        except BrokerError:
            return
        if found is not None and found.first_offset == partition.log.end_offset:
            partition.append_as_follower(found, epoch)
        partition.update_high_watermark(high_watermark)

    # --- ZooKeeper ------------------------------------------------------------------------------------------

    def want(self, broker: int, wanted: LeaderAndIsr | None) -> None:
        if wanted is not None:
            self.wanted[broker] = wanted

    def write_isr(self, broker: int) -> None:
        broker = next(iter(self.wanted), broker)
        wanted = self.wanted.pop(broker, None)
        if wanted is not None:
            if self.zookeeper.version == wanted.version - 1:
                self.zookeeper = wanted
            self.written[broker] = wanted, self.zookeeper

    def lose_the_result_of_a_write(self, broker: int) -> None:
        if self.chance.random() < 0.5:
            self.write_isr(broker)
            self.written = {leader: (wanted, None) for leader, (wanted, _) in self.written.items()}
            return
        broker = next(iter(self.wanted), broker)
        wanted = self.wanted.pop(broker, None)
        if wanted is not None:
            self.written[broker] = wanted, None

    def read_the_written_state_again(self, broker: int) -> None:
        """The result was lost, and other leaders may have written since."""
        self.written = {leader: (wanted, self.zookeeper) for leader, (wanted, _) in self.written.items()}

    def hear_of_the_write(self, broker: int) -> None:
        broker = next(iter(self.written), broker)
        if broker in self.written:
            self.replicas[broker].complete_isr_update(*self.written.pop(broker))

    # --- the controller -------------------------------------------------------------------------------------

    def elect(self, leader: int, in_sync: tuple[int, ...]) -> None:
        state = self.zookeeper
        self.zookeeper = replace(
            state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=in_sync, version=state.version + 1
        )
        self.announced = dict.fromkeys(ALL, self.zookeeper)

    def another_leads(self, broker: int) -> None:
        if broker in self.zookeeper.isr:
            kept = {broker, *self.chance.choices(ALL, k=3)}
            self.elect(broker, tuple(replica for replica in self.zookeeper.isr if replica in kept))

    def hear_of_the_leader(self, broker: int) -> None:
        known, partition = self.announced.pop(broker, None), self.replicas[broker]
        if known is None:
            return
        if known.leader == broker:
            partition.log.start_epoch(known.leader_epoch)
        if partition.apply_leadership(known, self.now_ms):
            self.agrees.discard(broker)
            self.coming.pop(broker, None)

    def restart(self, broker: int) -> None:
        """Restart with an older high watermark checkpoint; another replica leads, if one is in sync."""
        old = self.replicas[broker]
        written_down = self.chance.randint(0, old.high_watermark)
        self.replicas[broker] = Partition(T, old.log, broker, high_watermark=written_down)
        self.agrees.discard(broker)
        for waiting in (self.coming, self.wanted, self.written):
            waiting.pop(broker, None)  # type: ignore[attr-defined]
        in_sync = tuple(replica for replica in self.zookeeper.isr if replica != broker) or (broker,)
        leader = self.zookeeper.leader if self.zookeeper.leader in in_sync else in_sync[0]
        self.elect(leader, in_sync)

    # --- invariants -----------------------------------------------------------------------------------------

    def check_replicas_in_sync(self) -> None:
        """Check that every replica in ZooKeeper's ISR has all committed records."""
        for partition in self.replicas.values():
            assert partition.log.start_offset <= partition.high_watermark <= partition.log.end_offset
            if partition.is_leader:
                seen = values(partition, partition.high_watermark)
                both = min(len(seen), len(self.committed))
                assert seen[:both] == self.committed[:both]
                self.committed = max(seen, self.committed, key=len)
        for broker in self.zookeeper.isr:
            assert values(self.replicas[broker])[: len(self.committed)] == self.committed

    def check_followers(self) -> None:
        """Check that no follower's high watermark exceeds the committed records."""
        for partition in self.replicas.values():
            known = partition.leadership
            if known is not None and not partition.is_leader:
                seen = values(partition, partition.high_watermark)
                assert seen == self.committed[: len(seen)]

    # --- all of it ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run random events, and check the invariants after each."""
        events: dict[Callable[[int], None], int] = {
            self.produce: 15,
            self.fetch: 25,
            self.receive: 25,
            self.let_time_pass: 12,
            self.look_for_laggards: 12,
            self.write_isr: 10,
            self.lose_the_result_of_a_write: 1,
            self.read_the_written_state_again: 2,
            self.hear_of_the_write: 8,
            self.another_leads: 3,
            self.hear_of_the_leader: 12,
            self.restart: 1,
        }
        for event in self.chance.choices(list(events), list(events.values()), k=STEPS):
            event(self.chance.choice(ALL))
            self.check_replicas_in_sync()
            self.check_followers()


@pytest.mark.parametrize("seed", seeds(25))
def test_committed_records_are_never_lost(seed: int) -> None:
    ReplicationHarness(seed).run()
