"""The controller's decisions as requests of the protocol, and back: in 0.10.1's versions, for all to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.partition.leadership import Leadership
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrPartition, LeaderAndIsrRequest, LiveLeader
from minikafka.wire.apis.stop_replica import StopReplicaPartition, StopReplicaRequest
from minikafka.wire.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
)

LEADER_AND_ISR_VERSION = 0
STOP_REPLICA_VERSION = 0
UPDATE_METADATA_VERSION = 2
PLAINTEXT = 0
"""The security protocol of an endpoint."""


def leader_and_isr(
    controller_id: int,
    controller_epoch: int,
    leaderships: Mapping[TopicPartition, Leadership],
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


def told_leaderships(
    request: LeaderAndIsrRequest,
) -> tuple[dict[TopicPartition, Leadership], dict[int, BrokerAddress]]:
    """What ``leader_and_isr`` was made of."""
    leaders = {
        one.broker_id: BrokerAddress(one.broker_id, one.host, one.port) for one in request.live_leaders
    }
    return _leaderships(request.partitions), leaders


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
    leaderships: Mapping[TopicPartition, Leadership],
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


def told_metadata(
    request: UpdateMetadataRequest,
) -> tuple[dict[int, BrokerAddress], dict[TopicPartition, Leadership]]:
    """What ``update_metadata`` was made of; brokers without a plain-text endpoint are left out."""
    brokers = {}
    for one in request.live_brokers:
        host, port = one.host, one.port
        for endpoint in one.endpoints:
            if endpoint.security_protocol == PLAINTEXT:
                host, port = endpoint.host, endpoint.port
                break
        if port >= 0:
            brokers[one.broker_id] = BrokerAddress(one.broker_id, host, port, one.rack)
    return brokers, _leaderships(request.partitions)


def _fields(
    name: TopicPartition, found: Leadership
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


def _leaderships(
    partitions: Iterable[LeaderAndIsrPartition | UpdateMetadataPartition],
) -> dict[TopicPartition, Leadership]:
    """The other way."""
    return {
        TopicPartition(one.topic, one.index): Leadership(
            one.leader_id, one.leader_epoch, one.isr, one.replicas, one.controller_epoch, one.zk_version
        )
        for one in partitions
    }
