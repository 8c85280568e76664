"""Conversion between the controller's decisions and its requests.

LeaderAndIsr and StopReplica have the versions that 0.10.1 reads. UpdateMetadata has version 7, with topic
ids; beside brokers before 2.8 it has version 3, with names of listeners, and beside 0.10.1 brokers version 2,
which knows an endpoint by its security protocol alone. The broker epoch of version 5 is always -1, unknown: a
broker that returns has another session, and the requests for the former one are dropped
(``controller_channel``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from minikafka.base.endpoints import BrokerEndpoint, LiveBroker, SecurityProtocol
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition, check_topic_name, rows_by_topic
from minikafka.partition.replica import LeaderAndIsr
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest, LiveLeader
from minikafka.wire.apis.stop_replica import StopReplicaPartition, StopReplicaRequest
from minikafka.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from minikafka.wire.fields import ZERO_UUID

_log = logging.getLogger(__name__)

LEADER_AND_ISR_VERSION = 0
STOP_REPLICA_VERSION = 0
UPDATE_METADATA_VERSION = 7
UPDATE_METADATA_VERSION_WITHOUT_IDS = 3
UPDATE_METADATA_VERSION_IN_0_10_1 = 2
_LISTENER_NAMES_SINCE = 3
_BY_TOPIC_SINCE = 5
_PROTOCOLS = frozenset(SecurityProtocol)


def leader_and_isr(
    controller_id: int,
    controller_epoch: int,
    leaderships: Mapping[TopicPartition, LeaderAndIsr],
    brokers: Mapping[int, BrokerAddress],
) -> LeaderAndIsrRequest:
    """Return the request with the state of these partitions and the addresses of their leaders.

    ``brokers``: the addresses on the controller's inter-broker listener.
    """
    leaders = sorted({leadership.leader for leadership in leaderships.values()} & brokers.keys())
    return LeaderAndIsrRequest(
        controller_id,
        controller_epoch,
        tuple(LeaderAndIsrPartition(*_fields(key, found)) for key, found in leaderships.items()),
        tuple(LiveLeader(leader, brokers[leader].host, brokers[leader].port) for leader in leaders),
    )


def parse_leader_and_isr(
    request: LeaderAndIsrRequest,
) -> tuple[dict[TopicPartition, LeaderAndIsr], dict[int, BrokerAddress], dict[TopicPartition, ErrorCode]]:
    """Return the leaderships, the leaders' addresses, and the ``invalid_partitions``, which are left out."""
    leaders = {
        broker.broker_id: BrokerAddress(broker.broker_id, broker.host, broker.port)
        for broker in request.live_leaders
    }
    wrong = invalid_partitions(request.partitions)
    return _leaderships(request.partitions, wrong), leaders, wrong


def stop_replica(
    controller_id: int, controller_epoch: int, partitions: Iterable[TopicPartition], *, delete: bool
) -> StopReplicaRequest:
    """Return the request to stop these replicas and, with ``delete``, to delete them."""
    named = tuple(StopReplicaPartition(*partition) for partition in partitions)
    return StopReplicaRequest(controller_id, controller_epoch, delete, named)


def update_metadata(
    controller_id: int,
    controller_epoch: int,
    brokers: Mapping[int, LiveBroker],
    leaderships: Mapping[TopicPartition, LeaderAndIsr],
    topic_ids: Mapping[str, bytes],
    version: int = UPDATE_METADATA_VERSION,
) -> UpdateMetadataRequest:
    """Return the request that updates a broker's metadata cache, with all endpoints that ``version`` has."""
    named, by_topic = version >= _LISTENER_NAMES_SINCE, version >= _BY_TOPIC_SINCE
    rows = [(key, UpdateMetadataPartition(*_fields(key, found))) for key, found in leaderships.items()]
    topics = rows_by_topic(rows) if by_topic else {}
    return UpdateMetadataRequest(
        controller_id,
        controller_epoch,
        () if by_topic else tuple(row for _, row in rows),
        topics=tuple(
            UpdateMetadataTopicState(topic, tuple(parts), topic_id=topic_ids.get(topic, ZERO_UUID))
            for topic, parts in topics.items()
        ),
        live_brokers=tuple(
            UpdateMetadataBroker(
                broker.broker_id,
                endpoints=tuple(
                    UpdateMetadataEndpoint(at.port, at.host, at.listener if named else "", at.protocol)
                    for at in broker.endpoints
                    if named or at.is_named_by_protocol
                ),
                rack=broker.rack,
            )
            for broker in brokers.values()
        ),
    )


def parse_update_metadata(
    request: UpdateMetadataRequest,
) -> tuple[dict[int, LiveBroker], dict[TopicPartition, LeaderAndIsr], dict[str, bytes]]:
    """Return the brokers and the partitions of the request, and the ids of the topics that have one.

    Endpoints with an unknown security protocol and ``invalid_partitions`` are left out.
    """
    brokers = {}
    for broker in request.live_brokers:
        known = LiveBroker(broker.broker_id, tuple(_endpoints(broker)), broker.rack)
        if broker.port >= 0:  # version 0
            known = LiveBroker.plaintext(broker.broker_id, broker.host, broker.port)
        brokers[broker.broker_id] = known
    partitions = [
        *request.partitions,
        *(replace(row, topic=topic.topic) for topic in request.topics for row in topic.partitions),
    ]
    topic_ids = {topic.topic: topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID}
    return brokers, _leaderships(partitions, invalid_partitions(partitions)), topic_ids


def _endpoints(broker: UpdateMetadataBroker) -> Iterator[BrokerEndpoint]:
    for endpoint in broker.endpoints:
        if endpoint.security_protocol in _PROTOCOLS:
            protocol = SecurityProtocol(endpoint.security_protocol)
            yield BrokerEndpoint(endpoint.listener or protocol.name, protocol, endpoint.host, endpoint.port)


def _fields(
    name: TopicPartition, found: LeaderAndIsr
) -> tuple[str, int, int, int, int, tuple[int, ...], int, tuple[int, ...]]:
    """Return the fields of a partition that both requests have, in their order."""
    return (
        name.topic,
        name.partition,
        found.controller_epoch,
        found.leader,
        found.leader_epoch,
        found.isr,
        found.version,
        found.replicas,
    )


def invalid_partitions(
    partitions: Iterable[LeaderAndIsrPartition | UpdateMetadataPartition | StopReplicaPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that are not valid, with the error code for the response. Each is logged.

    INVALID_TOPIC for an illegal name or a negative number, since both become part of a path. INVALID_REQUEST
    for a broker that appears twice among the replicas: one copy must not count as two.
    """
    codes = {}
    legal: str | None = None
    for partition in partitions:
        code, problem = ErrorCode.NONE, ""
        try:
            if partition.topic != legal:
                check_topic_name(partition.topic)
                legal = partition.topic
        except BrokerError as error:
            code, problem = error.code, error.detail
        if partition.index < 0:
            code, problem = ErrorCode.INVALID_TOPIC, "the partition number is negative"
        elif not code and _has_twice(partition):
            code, problem = ErrorCode.INVALID_REQUEST, "a broker appears twice in replicas or ISR"
        if code:
            codes[TopicPartition(partition.topic, partition.index)] = code
            _log.warning(
                "rejected a controller's request for partition %d of topic %r: %s",
                partition.index,
                partition.topic,
                problem,
            )
    return codes


def _has_twice(partition: LeaderAndIsrPartition | UpdateMetadataPartition | StopReplicaPartition) -> bool:
    """Return True if a broker appears twice in the replicas or in the ISR."""
    if isinstance(partition, StopReplicaPartition):
        return False
    return any(len(set(broker_ids)) < len(broker_ids) for broker_ids in (partition.replicas, partition.isr))


def _leaderships(
    partitions: Iterable[LeaderAndIsrPartition | UpdateMetadataPartition],
    left_out: Mapping[TopicPartition, ErrorCode],
) -> dict[TopicPartition, LeaderAndIsr]:
    """Return the state of each partition that is not in ``left_out``."""
    return {
        TopicPartition(partition.topic, partition.index): LeaderAndIsr(
            partition.leader_id,
            partition.leader_epoch,
            partition.isr,
            partition.replicas,
            partition.controller_epoch,
            partition.zk_version,
        )
        for partition in partitions
        if TopicPartition(partition.topic, partition.index) not in left_out
    }
