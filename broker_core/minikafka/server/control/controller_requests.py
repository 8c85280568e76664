"""The controller's decisions as requests of the protocol, and back: in 0.10.1's versions, for all to read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition, check_topic_name
from minikafka.partition.replica import LeaderAndIsr
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest, LiveLeader
from minikafka.wire.apis.stop_replica import StopReplicaPartition, StopReplicaRequest
from minikafka.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)

_log = logging.getLogger(__name__)

LEADER_AND_ISR_VERSION = 0
STOP_REPLICA_VERSION = 0
UPDATE_METADATA_VERSION = 2
PLAINTEXT = 0
"""The security protocol of an endpoint."""


def leader_and_isr(
    controller_id: int,
    controller_epoch: int,
    leaderships: Mapping[TopicPartition, LeaderAndIsr],
    brokers: Mapping[int, BrokerAddress],
) -> LeaderAndIsrRequest:
    """Who leads these partitions, and where those leaders are."""
    leaders = sorted({leadership.leader for leadership in leaderships.values()} & brokers.keys())
    return LeaderAndIsrRequest(
        controller_id,
        controller_epoch,
        tuple(LeaderAndIsrPartition(*_fields(key, found)) for key, found in leaderships.items()),
        tuple(LiveLeader(one, brokers[one].host, brokers[one].port) for one in leaders),
    )


def parse_leader_and_isr(
    request: LeaderAndIsrRequest,
) -> tuple[dict[TopicPartition, LeaderAndIsr], dict[int, BrokerAddress], dict[TopicPartition, ErrorCode]]:
    """Return the leaderships, the leaders' addresses, and the ``invalid_partitions``, which are left out."""
    leaders = {
        one.broker_id: BrokerAddress(one.broker_id, one.host, one.port) for one in request.live_leaders
    }
    wrong = invalid_partitions(request.partitions)
    return _leaderships(request.partitions, wrong), leaders, wrong


def stop_replica(
    controller_id: int, controller_epoch: int, partitions: Iterable[TopicPartition], *, delete: bool
) -> StopReplicaRequest:
    """Stop following, and perhaps delete."""
    named = tuple(StopReplicaPartition(*one) for one in partitions)
    return StopReplicaRequest(controller_id, controller_epoch, delete, named)


def update_metadata(
    controller_id: int,
    controller_epoch: int,
    brokers: Mapping[int, BrokerAddress],
    leaderships: Mapping[TopicPartition, LeaderAndIsr],
) -> UpdateMetadataRequest:
    """What clients are to be told."""
    return UpdateMetadataRequest(
        controller_id,
        controller_epoch,
        tuple(UpdateMetadataPartition(*_fields(key, found)) for key, found in leaderships.items()),
        tuple(
            UpdateMetadataBroker(
                one.broker_id,
                endpoints=(UpdateMetadataEndpoint(one.port, one.host, "", PLAINTEXT),),
                rack=one.rack,
            )
            for one in brokers.values()
        ),
    )


def parse_update_metadata(
    request: UpdateMetadataRequest,
) -> tuple[dict[int, BrokerAddress], dict[TopicPartition, LeaderAndIsr]]:
    """What ``update_metadata`` was made of, without brokers that have no plain-text endpoint and partitions
    that are ``invalid_partitions``.
    """
    brokers = {}
    for one in request.live_brokers:
        host, port = one.host, one.port
        for endpoint in one.endpoints:
            if endpoint.security_protocol == PLAINTEXT:
                host, port = endpoint.host, endpoint.port
                break
        if port >= 0:
            brokers[one.broker_id] = BrokerAddress(one.broker_id, host, port, one.rack)
    return brokers, _leaderships(request.partitions, invalid_partitions(request.partitions))


def _fields(
    name: TopicPartition, found: LeaderAndIsr
) -> tuple[str, int, int, int, int, tuple[int, ...], int, tuple[int, ...]]:
    """What both messages say of a partition, in the order of their fields."""
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
    """The partitions that no controller can mean, with the code for the answer; each is logged.

    INVALID_TOPIC for a name that is not legal or a negative number: both would become part of a path.
    INVALID_REQUEST for replicas that are named twice: a copy must not count as two.
    """
    codes = {}
    legal: str | None = None
    for one in partitions:
        code, problem = ErrorCode.NONE, ""
        try:
            if one.topic != legal:
                check_topic_name(one.topic)
                legal = one.topic
        except BrokerError as error:
            code, problem = error.code, error.detail
        if one.index < 0:
            code, problem = ErrorCode.INVALID_TOPIC, "a partition's number is not negative"
        elif not code and _has_twice(one):
            code, problem = ErrorCode.INVALID_REQUEST, "a broker is named twice in replicas or ISR"
        if code:
            codes[TopicPartition(one.topic, one.index)] = code
            _log.warning(
                "a controller's request is refused for partition %d of topic %r: %s",
                one.index,
                one.topic,
                problem,
            )
    return codes


def _has_twice(one: LeaderAndIsrPartition | UpdateMetadataPartition | StopReplicaPartition) -> bool:
    """Whether a broker stands twice among the replicas, or twice among those in sync."""
    if isinstance(one, StopReplicaPartition):
        return False
    return any(len(set(broker_ids)) < len(broker_ids) for broker_ids in (one.replicas, one.isr))


def _leaderships(
    partitions: Iterable[LeaderAndIsrPartition | UpdateMetadataPartition],
    left_out: Mapping[TopicPartition, ErrorCode],
) -> dict[TopicPartition, LeaderAndIsr]:
    """The other way."""
    return {
        TopicPartition(one.topic, one.index): LeaderAndIsr(
            one.leader_id, one.leader_epoch, one.isr, one.replicas, one.controller_epoch, one.zk_version
        )
        for one in partitions
        if TopicPartition(one.topic, one.index) not in left_out
    }
