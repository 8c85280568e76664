"""Metadata: brokers, topics and leaders.

Versions: 0 has no controller, rack or internal flag, and takes an empty list for all topics; 1 adds them,
null means all topics and an empty list none; 2 adds the cluster id, 3 throttle_time_ms; from 4 on the client
can forbid auto-creation; 5 adds offline replicas, 7 leader epochs, 8 authorized operations (on the cluster
until 10), 10 topic ids, and 12 requests by topic id: if one has an id, only ids count. Beside brokers before
2.8 topics have no ids: they are zero. The addresses are those of the listener that received the request. A
broker without that listener is left out, and the partitions that it leads have LISTENER_NOT_FOUND (before
version 6 LEADER_NOT_AVAILABLE). A request for an unknown topic creates it when
``auto.create.topics.enable`` and the client allow it; the response has LEADER_NOT_AVAILABLE, which clients
retry.

A response with many partitions is built in the broker's pool. The response about all topics is encoded once
and reused until something changes.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Hashable, Mapping
from dataclasses import replace

from minikafka.base.acls import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, operation_bits
from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, TopicPartition, check_topic_name
from minikafka.controller.election import NO_LEADER
from minikafka.partition.replica import LeaderAndIsr
from minikafka.server.admin.topics import start_auto_creation
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker, DelayedRequest
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.server.workers.work_pool import Steps, begin_here
from minikafka.wire.api import NO_OPERATIONS
from minikafka.wire.apis.metadata import (
    BY_ID_SINCE,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from minikafka.wire.fields import ZERO_UUID
from minikafka.wire.frame_parts import join

NO_CONTROLLER = -1

START_TIMEOUT_MS = 5_000
STEP_PARTITIONS = 200
"""Partitions described in one step."""
PARTITION_BYTES = 500
"""Estimated memory of a partition until it is encoded."""
_LISTENER_NOT_FOUND_VERSION = 6
"""The first version whose clients know LISTENER_NOT_FOUND; earlier ones get LEADER_NOT_AVAILABLE."""


class _DelayedMetadata(DelayedRequest):
    """A request that waits until this broker has the cluster's metadata."""

    def __init__(self, broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
        super().__init__(broker, context)
        self._request = request

    def satisfied(self, key: Hashable | None = None) -> bool:
        return bool(self._broker.metadata_cache.brokers)

    def complete(self) -> None:
        _begin(self._broker, self._context, self._request)


def handle(broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
    """Serve one Metadata request from the metadata cache; wait for the cache after a start."""
    if broker.metadata_cache.brokers:
        _begin(broker, context, request)
        return
    operation = _DelayedMetadata(broker, context, request)

    def step() -> None:
        if operation.satisfied():
            broker.answer(operation)
        else:
            broker.wait(operation, ["metadata"], broker.clock.monotonic_ms() + START_TIMEOUT_MS)

    broker.run(step)


def _begin(broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
    begin_here(broker.pool, context.exchange, broker.clock, _answer(broker, context, request))


def _answer(broker: Broker, context: RequestContext, request: MetadataRequest) -> Steps:
    if context.version < BY_ID_SINCE and _has_ids(request):
        context.reply(_refusal(request))
        return
    operations = request.include_cluster_authorized_operations, request.include_topic_authorized_operations
    of_all = request.topics is None and context.replies_unchanged and not any(operations)
    if of_all and _reply_from_cache(broker, context):
        return
    metadata_cache = broker.metadata_cache
    names, unknown_ids = _topics_of(metadata_cache, request)
    total = sum(len(metadata_cache.topics.get(name, ())) for name in names)
    if total > STEP_PARTITIONS:
        yield total * PARTITION_BYTES
        # The same request of another client may have been served meanwhile.
        if of_all and _reply_from_cache(broker, context):
            return
    served = broker.served_version
    reachable = _Reachable(context, metadata_cache)
    topics = [_unknown_topic(topic_id) for topic_id in unknown_ids]
    done = 0
    for name in names:
        if done >= STEP_PARTITIONS:
            done = 0
            yield total * PARTITION_BYTES
        partitions = metadata_cache.topics.get(name)
        if partitions is None:
            done += 1
            topics.append(_missing_topic(broker, context, name, may_create=request.allow_auto_topic_creation))
        else:
            done += len(partitions)
            topics.append((yield from _described(broker, metadata_cache, name, partitions, reachable)))
    if request.include_topic_authorized_operations:
        topics = [_with_operations(topic) for topic in topics]
    response = MetadataResponse(
        throttle_time_ms=0,
        brokers=tuple(
            MetadataBroker(node_id=at.broker_id, host=at.host, port=at.port, rack=at.rack)
            for at in reachable.addresses.values()
        ),
        cluster_id=metadata_cache.cluster_id,
        controller_id=metadata_cache.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=(
            operation_bits(CLUSTER_OPERATIONS)
            if request.include_cluster_authorized_operations
            else NO_OPERATIONS
        ),
    )
    if of_all and total > STEP_PARTITIONS:
        encoded = join(context.api.encode_response(context.version, response))
        broker.encoded_metadata.put(metadata_cache, served, context.version, context.listener, encoded)
        context.reply_encoded([encoded])
    else:
        context.reply(response)


def _topics_of(
    metadata_cache: MetadataCache, request: MetadataRequest
) -> tuple[Collection[str], list[bytes]]:
    """Return the names of the topics, each once, and the ids that no topic has.

    Without duplicates: a short name repeated a million times would make a huge response.
    """
    names, ids = request.names, request.ids
    if names is None:
        return sorted(metadata_cache.topics), []
    if not ids:
        return dict.fromkeys(names), []
    by_id = {topic_id: metadata_cache.topics_by_id.get(topic_id) for topic_id in ids}
    found = [name for name in by_id.values() if name is not None]
    return found, [topic_id for topic_id, name in by_id.items() if name is None]


def _has_ids(request: MetadataRequest) -> bool:
    return any(row.name is None or row.topic_id != ZERO_UUID for row in request.topics or ())


def _unknown_topic(topic_id: bytes) -> MetadataTopic:
    return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, False, (), topic_id=topic_id)


def _with_operations(topic: MetadataTopic) -> MetadataTopic:
    if topic.name is None or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic
    return replace(topic, topic_authorized_operations=operation_bits(TOPIC_OPERATIONS))


def _refusal(request: MetadataRequest) -> MetadataResponse:
    """Return the response to ids, or topics without a name, in a version that has the field only."""
    rows = (
        MetadataTopic(ErrorCode.INVALID_REQUEST, topic.name or "", False, (), topic_id=topic.topic_id)
        for topic in request.topics or ()
    )
    return MetadataResponse(0, (), None, NO_CONTROLLER, tuple(rows))


class _Reachable:
    """The brokers that clients of the request's listener can reach."""

    def __init__(self, context: RequestContext, metadata_cache: MetadataCache) -> None:
        self.live = metadata_cache.brokers.keys()
        self.addresses = metadata_cache.addresses(context.listener)
        has_own_error = context.version >= _LISTENER_NOT_FOUND_VERSION
        self._not_found = ErrorCode.LISTENER_NOT_FOUND if has_own_error else ErrorCode.LEADER_NOT_AVAILABLE

    def error_of(self, leader: int, offline: Container[int]) -> ErrorCode:
        """Return the error of a partition with this leader; NONE if clients can reach it."""
        if leader == NO_LEADER or leader in offline:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.NONE if leader in self.addresses else self._not_found


def _reply_from_cache(broker: Broker, context: RequestContext) -> bool:
    """Send the cached response about all topics if it is current. Return whether it was sent."""
    body = broker.encoded_metadata.get(
        broker.metadata_cache, broker.served_version, context.version, context.listener
    )
    if body is not None:
        context.reply_encoded([body])
    return body is not None


def _missing_topic(broker: Broker, context: RequestContext, name: str, *, may_create: bool) -> MetadataTopic:
    return MetadataTopic(
        error_code=_missing_topic_error(broker, context, name, may_create=may_create),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
    )


def _described(
    broker: Broker,
    metadata_cache: MetadataCache,
    name: str,
    partitions: Mapping[int, LeaderAndIsr],
    reachable: _Reachable,
) -> Generator[int, None, MetadataTopic]:
    described: list[MetadataPartition] = []
    for index, leadership in partitions.items():
        if len(described) % STEP_PARTITIONS == STEP_PARTITIONS - 1:
            yield len(partitions) * PARTITION_BYTES
        offline = {replica for replica in leadership.replicas if replica not in reachable.live}
        if TopicPartition(name, index) not in broker.partitions:
            offline.add(broker.broker_id)  # if it has a replica, its log is not open
        error = reachable.error_of(leadership.leader, offline)
        described.append(
            MetadataPartition(
                error_code=error,
                index=index,
                leader_id=NO_LEADER if error else leadership.leader,
                leader_epoch=leadership.leader_epoch,
                replica_nodes=leadership.replicas,
                isr_nodes=leadership.isr,
                offline_replicas=tuple(replica for replica in leadership.replicas if replica in offline),
            )
        )
    return MetadataTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=metadata_cache.topic_ids.get(name, ZERO_UUID),
        is_internal=name in INTERNAL_TOPICS,
        partitions=tuple(described),
    )


def _missing_topic_error(
    broker: Broker, context: RequestContext, name: str, *, may_create: bool
) -> ErrorCode:
    try:
        check_topic_name(name)
        if not broker.metadata_cache.brokers:
            return ErrorCode.LEADER_NOT_AVAILABLE  # the topics are not known yet
        if name in broker.metadata_cache.unreadable:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # a retry does not help
        if not (may_create and broker.config.auto_create_topics) or name in INTERNAL_TOPICS:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not context.may_create(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not broker.creations.is_pending(name):
            context.record_mutations(broker.config.default_partitions)
        start_auto_creation(broker, name)
    except BrokerError as error:
        return error.code
    return ErrorCode.LEADER_NOT_AVAILABLE
