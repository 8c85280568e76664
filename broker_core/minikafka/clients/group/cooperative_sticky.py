"""The cooperative-sticky assignor (KIP-429): an even assignment in which members keep what they own.

A member that rejoins keeps reading the partitions that it owns, and names them. A partition that is to move
is assigned to nobody until its owner has given it up: the owner rejoins without it, and the next assignment
gives it to the new owner. So the others read on while some partitions move.

The loads are as even as the subscriptions allow: no partition, and no chain of partitions from member to
member, can be moved so that a load falls and one that is smaller by two or more rises. Only then partitions
move at all. The members' choice among equal assignments is the leader's own, which may be a client in another
language.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from minikafka.base.ids import TopicPartition
from minikafka.clients.group.member_subscriptions import Assignments, Subscriptions, in_order, readers_of


def assign_cooperative_sticky(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignments:
    """Assign evenly and leave out the partitions that another member has to give up first.

    ``partitions`` has the number of partitions of each topic; a topic that is not in it has none.
    """
    readers = {
        topic: tuple(members) for topic, members in readers_of(subscriptions) if partitions.get(topic, 0)
    }
    owners = _owners(subscriptions, partitions)
    balance = _Balance(in_order(subscriptions), readers, owners)
    balance.assign(TopicPartition(topic, number) for topic in readers for number in range(partitions[topic]))
    balance.even_out()
    claims: dict[TopicPartition, set[str]] = {}
    for member, subscription in subscriptions.items():
        for tp in subscription.owned:
            claims.setdefault(tp, set()).add(member)
    return {
        member: tuple(tp for tp in balance.share(member) if member in claims.get(tp, (member,)))
        for member in subscriptions
    }


def _owners(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Return who owns each partition and still wants it: of several members that of the newest generation.

    A partition that two members own in the same generation has no owner: both must give it up.
    """
    newest: dict[TopicPartition, tuple[int, list[str]]] = {}
    for member in in_order(subscriptions):
        subscription = subscriptions[member]
        for tp in dict.fromkeys(subscription.owned):
            if tp.partition >= partitions.get(tp.topic, 0) or tp.topic not in subscription.topics:
                continue
            generation, members = newest.get(tp, (subscription.generation, []))
            if subscription.generation > generation:
                newest[tp] = subscription.generation, [member]
            elif subscription.generation == generation:
                newest[tp] = generation, [*members, member]
    return {tp: members[0] for tp, (_, members) in newest.items() if len(members) == 1}


_Readers = tuple[str, ...]


class _Balance:
    """An assignment that is being made even. Topics with the same readers are alike."""

    def __init__(
        self, members: list[str], readers: Mapping[str, _Readers], owners: Mapping[TopicPartition, str]
    ) -> None:
        self._readers = readers
        self._owners = owners
        self._shares: dict[str, dict[_Readers, set[TopicPartition]]] = {member: {} for member in members}
        """Member -> readers of topics -> its partitions of those topics."""
        self._loads = dict.fromkeys(members, 0)
        for tp, member in owners.items():
            self._add(member, tp)

    def share(self, member: str) -> list[TopicPartition]:
        """Return a member's partitions, sorted."""
        return sorted(tp for partitions in self._shares[member].values() for tp in partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Give each partition without an owner to its least loaded reader; first those with few readers."""
        free = [tp for tp in partitions if tp not in self._owners]
        free.sort(key=lambda tp: (len(self._readers[tp.topic]), tp))
        heaps: dict[_Readers, list[tuple[int, int, str]]] = {}
        for tp in free:
            readers = self._readers[tp.topic]
            heap = heaps.get(readers)
            if heap is None:
                heap = [(self._loads[member], order, member) for order, member in enumerate(readers)]
                heapq.heapify(heap)
                heaps[readers] = heap
            load, order, member = heap[0]
            while load != self._loads[member]:  # it got a partition of another topic
                heapq.heapreplace(heap, (self._loads[member], order, member))
                load, order, member = heap[0]
            self._add(member, tp)
            heapq.heapreplace(heap, (load + 1, order, member))

    def even_out(self) -> None:
        """Move partitions from loaded members to less loaded ones, as long as that evens the loads."""
        heap = [(-load, order, member) for order, (member, load) in enumerate(self._loads.items())]
        heapq.heapify(heap)
        while heap:
            load, order, member = heap[0]
            if -load != self._loads[member]:  # it got a partition, and is below those that gave it
                heapq.heapreplace(heap, (-self._loads[member], order, member))
            elif path := self._path_from(member):
                for giver, readers, taker in path:
                    self._move(giver, readers, taker)
                heapq.heapreplace(heap, (load + 1, order, member))
            else:
                heapq.heappop(heap)  # no later move changes whom it reaches: all of them are as loaded

    def _path_from(self, start: str) -> list[tuple[str, _Readers, str]]:
        """Return moves (giver, readers of the topic, taker) that take a partition from ``start`` and give one
        to a member whose load is smaller by two or more.

        The shortest chain, to the least loaded member; the last move is the first. Empty if there is none.
        """
        most = self._loads[start] - 2
        came_from: dict[str, tuple[str, _Readers]] = {}
        looked_at: set[_Readers] = set()
        level = [start] if most >= 0 else []
        while level:
            reached: list[str] = []
            for giver in level:
                for readers, partitions in self._shares[giver].items():
                    if not partitions or readers in looked_at:
                        continue
                    looked_at.add(readers)
                    for taker in readers:
                        if taker != start and taker not in came_from:
                            came_from[taker] = giver, readers
                            reached.append(taker)
            goal = min(reached, key=self._loads.__getitem__, default=None)
            if goal is not None and self._loads[goal] <= most:
                path = []
                while goal != start:
                    giver, readers = came_from[goal]
                    path.append((giver, readers, goal))
                    goal = giver
                return path
            level = reached
        return []

    def _move(self, giver: str, readers: _Readers, taker: str) -> None:
        """Move a partition: one that the taker owned, or the giver did not, if there is one."""

        def preference(tp: TopicPartition) -> tuple[bool, bool, TopicPartition]:
            owner = self._owners.get(tp)
            return owner == taker, owner != giver, tp

        tp = max(self._shares[giver][readers], key=preference)
        self._shares[giver][readers].remove(tp)
        self._loads[giver] -= 1
        self._add(taker, tp)

    def _add(self, member: str, tp: TopicPartition) -> None:
        self._shares[member].setdefault(self._readers[tp.topic], set()).add(tp)
        self._loads[member] += 1
