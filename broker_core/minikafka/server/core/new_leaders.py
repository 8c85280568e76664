"""The new leaders that the response to a Produce or Fetch request names (KIP-951).

They spare the client a Metadata request: it learns the leader and the epoch of a partition that this broker
does not lead any more, and the leader's address on the listener that it uses.
"""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from minikafka.server.core.broker import Broker
from minikafka.wire.apis.current_leader import LeaderIdAndEpoch, NodeEndpoint

NO_LEADER = LeaderIdAndEpoch()


class NewLeaders:
    """The leaders that one response names."""

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self._named: set[int] = set()

    def leader_of(self, topic_partition: TopicPartition) -> LeaderIdAndEpoch:
        """Return the leader of a partition for its part of the response; -1 and -1 if there is none."""
        leadership = self._broker.leadership(topic_partition)
        if leadership is None:
            return NO_LEADER
        self._named.add(leadership.leader)
        return LeaderIdAndEpoch(leadership.leader, leadership.leader_epoch)

    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """Return the addresses of the leaders that were named and are alive."""
        if not self._named:
            return ()
        addresses = self._broker.metadata_cache.addresses(self._listener)
        known = (addresses[leader] for leader in sorted(self._named & addresses.keys()))
        return tuple(NodeEndpoint(at.broker_id, at.host, at.port, at.rack) for at in known)
