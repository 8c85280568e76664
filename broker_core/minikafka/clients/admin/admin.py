"""The admin client: creates, extends, deletes, lists and describes topics; settings; ACLs; offsets of
partitions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from minikafka.base.acls import AclFilter
from minikafka.base.errors import BrokerError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import TRANSACTION_STATE_TOPIC, TopicPartition, check_topic_name
from minikafka.base.text import first_of
from minikafka.clients.admin.acls import AclBinding, create_acls, delete_acls, describe_acls, enforces_rules
from minikafka.clients.admin.configs import Setting, change_configs, describe_configs
from minikafka.clients.admin.controller_requests import controller_timeout_ms
from minikafka.clients.admin.elections import ElectionErrors, elect_leaders
from minikafka.clients.admin.health import ClusterHealth, InternalTopicSettings, health_of
from minikafka.clients.admin.log_dirs import (
    LogDir,
    alter_replica_log_dirs,
    describe_log_dirs,
    offline_log_dirs,
)
from minikafka.clients.admin.reassignments import (
    OngoingReassignment,
    ReassignmentErrors,
    alter_reassignments,
    list_reassignments,
)
from minikafka.clients.admin.topics import (
    CreatedTopic,
    NewTopic,
    created_topic,
    explain_create_error,
    explain_delete_error,
    spread_without_racks,
    unknown_topic_message,
)
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.metrics.connections import ADMIN
from minikafka.clients.metrics.registry import Metrics
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.metadata import ClusterMetadata, TopicMetadata
from minikafka.clients.network.retry import Deadline
from minikafka.wire.api import Api
from minikafka.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from minikafka.wire.apis.create_topics import (
    CREATE_TOPICS,
    DEFAULTS_SINCE,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from minikafka.wire.apis.delete_topics import DELETE_TOPICS, DeleteTopicsRequest, delete_topics_request
from minikafka.wire.apis.describe_configs import ConfigResourceType
from minikafka.wire.apis.elect_leaders import ElectionType

__all__ = ["EARLIEST", "LATEST", "AclBinding", "AclFilter", "Admin", "NewTopic"]

TopicErrors = dict[str, BrokerError | None]
"""The error of each topic; None for success."""

_BY_ASSIGNMENT = -1
_EXPLAIN_TIMEOUT_MS = 2_000
_POSSIBLY_APPLIED_CODES = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PARTITIONS}
)


class Admin:
    """The admin client. Thread-safe. It owns no connections: ``cluster`` does."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def metrics(self) -> Metrics:
        """Return the metrics of the connections of the ``ClusterClient``: group -> name -> value, with the
        names of Kafka's clients.
        """
        return self._cluster.metrics(ADMIN)

    def create_topics(self, topics: Iterable[NewTopic], *, timeout_ms: int = 30_000) -> TopicErrors:
        """Create topics and wait until each partition has a leader. One result per topic.

        The request is repeated when the controller moves, or the user's quota of changes is used up. When the
        response to an earlier attempt was lost, TOPIC_ALREADY_EXISTS may mean that this call created the
        topic; its message then says so.
        """
        errors, _ = self._create({topic.name: topic for topic in topics}, self._cluster.deadline(timeout_ms))
        return errors

    def create_topic(self, topic: NewTopic, *, timeout_ms: int = 30_000) -> CreatedTopic:
        """Create one topic, and return what the brokers made of it; raises its BrokerError."""
        errors, results = self._create({topic.name: topic}, self._cluster.deadline(timeout_ms))
        error = errors[topic.name]
        if error is not None:
            raise error
        return created_topic(topic, results[topic.name], self._cluster.known_topic(topic.name))

    def _create(
        self, wanted: dict[str, NewTopic], deadline: Deadline
    ) -> tuple[TopicErrors, Mapping[str, CreatableTopicResult]]:
        """Return the error of each topic, and the results of those that were requested."""
        errors, legal = _checked(wanted.values())
        for name in [name for name in legal if not wanted[name].rack_aware]:
            try:
                wanted[name] = self._without_racks(wanted[name], deadline)
            except BrokerError as refusal:
                errors[name] = refusal
                legal.remove(name)

        def request(names: list[str]) -> CreateTopicsRequest:
            if any(wanted[name].takes_defaults for name in names):
                self._check_defaults(deadline)
            return CreateTopicsRequest(
                tuple(_creatable(wanted[name]) for name in names), controller_timeout_ms(deadline)
            )

        def explain(code: ErrorCode, name: str, message: str | None) -> str | None:
            return message or explain_create_error(code, wanted[name], self._metadata_for_explanation())

        call = _ControllerRequest(self._cluster, deadline, CREATE_TOPICS, request, explain)
        errors |= call.run(legal)
        for name in legal:
            error = errors[name]
            if error is None or error.code is ErrorCode.REQUEST_TIMED_OUT:
                errors[name] = self._await_leaders(name, deadline)
        return errors, call.results

    def _without_racks(self, topic: NewTopic, deadline: Deadline) -> NewTopic:
        """Return the topic with an assignment that ignores racks."""
        if topic.assignments:
            return topic
        brokers = self._cluster.metadata(None, timeout_ms=deadline.remaining_ms()).brokers
        spread = spread_without_racks(brokers, topic.partitions, topic.replication_factor)
        return replace(topic, assignments=spread)

    def _check_defaults(self, deadline: Deadline) -> None:
        """Raise UNSUPPORTED_VERSION if the controller does not support defaults in CreateTopics."""
        controller = self._cluster.controller(deadline)
        version = self._cluster.connection(controller).version(CREATE_TOPICS, deadline)
        if version < DEFAULTS_SINCE:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"default numbers of partitions and replicas need CreateTopics {DEFAULTS_SINCE}, but broker "
                f"{controller} supports {version}: give both numbers",
            )

    def create_partitions(
        self, name: str, count: int, *, rack_aware: bool = True, timeout_ms: int = 30_000
    ) -> None:
        """Increase a topic's partitions to ``count``, and wait until each new one has a leader. Raises its
        BrokerError.

        The partitions of keys change; stored messages do not move. ``rack_aware``: as in ``NewTopic``.
        """
        deadline = self._cluster.deadline(timeout_ms)
        before = self._metadata_for_explanation().topics.get(name)
        first = 0 if before is None else len(before.partitions)
        added: tuple[CreatePartitionsAssignment, ...] | None = None
        if before is not None and not rack_aware and count > first:
            factor = len(before.partitions[0].replicas)
            spread = spread_without_racks(
                self._metadata_for_explanation().brokers, count - first, factor, first_partition=first
            )
            added = tuple(CreatePartitionsAssignment(spread[number]) for number in sorted(spread))

        def request(names: list[str]) -> CreatePartitionsRequest:
            topics = tuple(CreatePartitionsTopic(name, count, added) for name in names)
            return CreatePartitionsRequest(topics, controller_timeout_ms(deadline), validate_only=False)

        def explain(code: ErrorCode, name: str, message: str | None) -> str | None:
            topic = NewTopic(name, count)
            return message or explain_create_error(code, topic, self._metadata_for_explanation())

        call = _ControllerRequest(self._cluster, deadline, CREATE_PARTITIONS, request, explain)
        error = call.run([name])[name]
        if error is None or error.code is ErrorCode.REQUEST_TIMED_OUT:
            error = self._await_leaders(name, deadline, first, count)
        if error is not None:
            raise error

    def describe_configs(
        self, kind: ConfigResourceType, name: str, *, timeout_ms: int | None = None
    ) -> list[Setting]:
        """Return all settings of a topic, or of the broker with id ``name`` (empty: the changed ones of all
        brokers together), by name. Raises BrokerError.
        """
        return describe_configs(self._cluster, kind, name, self._cluster.deadline(timeout_ms))

    def change_configs(
        self,
        kind: ConfigResourceType,
        name: str,
        changes: Mapping[str, str | None],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Change settings of a topic or broker; None restores the default. Raises BrokerError."""
        change_configs(self._cluster, kind, name, changes, self._cluster.deadline(timeout_ms))

    def alter_partition_reassignments(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], *, timeout_ms: int | None = None
    ) -> ReassignmentErrors:
        """Move partitions to other replicas; None cancels what is in progress. One result per partition.

        The request is stored then; ``list_partition_reassignments`` shows its progress.
        """
        return alter_reassignments(self._cluster, wanted, self._cluster.deadline(timeout_ms))

    def list_partition_reassignments(self, *, timeout_ms: int | None = None) -> list[OngoingReassignment]:
        """Return all reassignments in progress, whoever has requested them."""
        return list_reassignments(self._cluster, self._cluster.deadline(timeout_ms))

    def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> ElectionErrors:
        """Elect the preferred replicas of partitions as leaders, or (UNCLEAN) any live ones, which may lose
        messages. None: of all partitions that need it. One result per partition; an error may be
        ELECTION_NOT_NEEDED.
        """
        return elect_leaders(self._cluster, kind, partitions, self._cluster.deadline(timeout_ms))

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> list[LogDir]:
        """Return the data directories of brokers (default: all), with the sizes of logs (default: of all
        ``partitions``). Raises BrokerError.
        """
        deadline = self._cluster.deadline(timeout_ms)
        wanted = None if brokers is None else sorted(brokers)
        known = self._cluster.metadata(()).brokers
        if wanted is None or not known.keys() >= set(wanted):  # a client that is new knows no addresses
            known = self._cluster.metadata(None, timeout_ms=timeout_ms).brokers
        wanted = sorted(known) if wanted is None else wanted
        return describe_log_dirs(self._cluster, wanted, deadline, partitions)

    def alter_replica_log_dirs(
        self, broker_id: int, paths: Mapping[TopicPartition, str], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Begin to move logs of a broker to other data directories. Returns the error of each, or None."""
        return alter_replica_log_dirs(self._cluster, broker_id, paths, self._cluster.deadline(timeout_ms))

    def describe_acls(
        self, wanted: AclFilter | None = None, *, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that match a filter (default: all). SECURITY_DISABLED: no authorizer."""
        return describe_acls(self._cluster, wanted or AclFilter(), self._cluster.deadline(timeout_ms))

    def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_ms: int | None = None
    ) -> dict[AclBinding, BrokerError | None]:
        """Create ACLs. Returns the error of each, or None."""
        return create_acls(self._cluster, bindings, self._cluster.deadline(timeout_ms))

    def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout_ms: int | None = None
    ) -> dict[AclFilter, list[AclBinding] | BrokerError]:
        """Delete the ACLs that match filters. Returns those of each filter, or its error."""
        return delete_acls(self._cluster, filters, self._cluster.deadline(timeout_ms))

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int = 30_000) -> TopicErrors:
        """Delete topics with all their data and wait for the end. One result per topic."""
        deadline = self._cluster.deadline(timeout_ms)

        def request(left: list[str]) -> DeleteTopicsRequest:
            return delete_topics_request(left, controller_timeout_ms(deadline))

        def explain(code: ErrorCode, name: str, message: str | None) -> str | None:
            # It names similar topics; brokers of Kafka tell no more than the code.
            return explain_delete_error(code, name, self._metadata_for_explanation()) or message

        wanted = list(dict.fromkeys(names))
        errors = _ControllerRequest(self._cluster, deadline, DELETE_TOPICS, request, explain).run(wanted)
        for name in wanted:
            self._cluster.invalidate(name)
        return errors

    def list_topics(self, *, internal: bool = False, timeout_ms: int | None = None) -> list[str]:
        """Return the names of all topics, sorted; internal ones only with ``internal``."""
        topics = self._cluster.metadata(None, timeout_ms=timeout_ms).topics.values()
        return sorted(topic.name for topic in topics if internal or not topic.is_internal)

    def describe_topics(
        self, names: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TopicMetadata | BrokerError]:
        """Return the partitions, leaders and replicas of topics, or their errors.

        Requests all topics, because a broker with ``auto.create.topics.enable`` would create a topic that is
        requested by name.
        """
        known = self._cluster.metadata(None, timeout_ms=timeout_ms).topics
        found: dict[str, TopicMetadata | BrokerError] = {}
        for name in names:
            topic = known.get(name)
            if topic is None:
                text = unknown_topic_message(name, known, may_be_hidden=True)
                found[name] = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            else:
                found[name] = topic
        return found

    def describe_topic(self, name: str, *, timeout_ms: int | None = None) -> TopicMetadata:
        """Return the metadata of a topic. Raises BrokerError if it does not exist; never creates it."""
        check_topic_name(name)
        found = self.describe_topics([name], timeout_ms=timeout_ms)[name]
        if isinstance(found, BrokerError):
            raise found
        return found

    def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterMetadata:
        """Return brokers, controller, cluster id, and all topics."""
        return self._cluster.metadata(None, timeout_ms=timeout_ms)

    def health(self, *, timeout_ms: int | None = None) -> ClusterHealth:
        """Return the live brokers with their replicas, and the partitions and data directories with problems.

        Metadata silently omit the topics that ACLs hide. So this also checks for an authorizer; brokers
        before 0.11 do not report one.
        """
        deadline = self._cluster.deadline(timeout_ms)
        known = self.describe_cluster(timeout_ms=timeout_ms)
        rules = enforces_rules(self._cluster, deadline)
        offline = offline_log_dirs(self._cluster, sorted(known.brokers), deadline)
        health = health_of(known, access_rules=rules, offline_log_dirs=offline)
        has_transactions = TRANSACTION_STATE_TOPIC in known.topics
        if not health.live or not (health.few_replicas or has_transactions):
            return health
        broker = self._settings(ConfigResourceType.BROKER, str(health.live[0]), deadline)
        topic: Mapping[str, str | None] = {}
        if has_transactions:
            topic = self._settings(ConfigResourceType.TOPIC, TRANSACTION_STATE_TOPIC, deadline)
        settings = InternalTopicSettings.of(broker, topic)
        return health_of(known, access_rules=rules, settings=settings, offline_log_dirs=offline)

    def _settings(self, kind: ConfigResourceType, name: str, deadline: Deadline) -> dict[str, str | None]:
        """Return settings by name; none if they are not known, as before 0.11 or without the permission."""
        with contextlib.suppress(MinikafkaError):
            return {row.name: row.value for row in describe_configs(self._cluster, kind, name, deadline)}
        return {}

    def offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int | None]:
        """Return offsets at EARLIEST, LATEST or a time in ms since the epoch; see ``list_offsets``."""
        return list_offsets(self._cluster, wanted, self._cluster.deadline(timeout_ms), isolation)

    def _metadata_for_explanation(self) -> ClusterMetadata:
        """Return metadata to explain a rejection; empty if the cluster does not respond."""
        with contextlib.suppress(MinikafkaError):
            return self._cluster.metadata(None, timeout_ms=_EXPLAIN_TIMEOUT_MS)
        return ClusterMetadata()

    def _await_leaders(
        self, name: str, deadline: Deadline, first: int = 0, count: int = 1
    ) -> BrokerError | None:
        """Wait until the partitions from ``first`` to ``count - 1`` have leaders."""

        def attempt() -> None:
            known = self._cluster.metadata([name], refresh=True, timeout_ms=deadline.remaining_ms())
            topic = known.topics[name]
            if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return  # created, but this client may not describe it
            wanted = range(first, max(count, len(topic.partitions)))
            if topic.error is not ErrorCode.NONE or not set(wanted) <= set(topic.available):
                # Always retriable: the queried broker may not know the topic yet.
                text = f"topic {name!r} was created, but its partitions have no leaders yet"
                if first:
                    text = f"topic {name!r} has {count} partitions now, but the new ones have no leaders yet"
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, text)

        try:
            self._cluster.retry(f"waiting for the leaders of topic {name!r}", deadline, attempt)
        except BrokerError as error:
            return error
        return None


class _ControllerRequest:
    """A request about topics to the controller, repeated when it moves, a response is lost, or the quota of
    changes is used up; a broker reads no request of this client until it has room again (KIP-599).
    """

    def __init__(
        self,
        cluster: ClusterClient,
        deadline: Deadline,
        api: Api[Any, Any],
        request: Callable[[list[str]], object],
        explain: Callable[[ErrorCode, str, str | None], str | None],
    ) -> None:
        self._cluster = cluster
        self._deadline = deadline
        self._api = api
        self._request = request
        self._explain = explain
        self.results: dict[str, Any] = {}
        """The rows of the response by topic."""
        self._errors: TopicErrors = {}
        self._remaining: list[str] = []
        self._response_lost = False

    def run(self, names: list[str]) -> TopicErrors:
        """Send the request; return one result per name.

        Raises NetworkError when no controller could be asked before the deadline.
        """
        self._remaining = list(names)
        if names:
            try:
                self._cluster.retry(
                    f"{self._api.name} for {first_of(names, 3)}", self._deadline, self._attempt
                )
            except BrokerError as error:
                if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    raise
                self._errors |= dict.fromkeys(self._remaining, error)
        return self._errors

    def _attempt(self) -> None:
        controller = self._cluster.controller(self._deadline)
        reply = self._cluster.send(
            controller, self._api, self._request(self._remaining), deadline=self._deadline
        )
        try:
            response = reply.result(self._deadline.remaining_ms())
        except NetworkError:
            self._response_lost = True
            raise
        moved, throttled = False, None
        results = response.results if isinstance(response, CreatePartitionsResponse) else response.topics
        for result in results:
            code = ErrorCode.of(result.error_code)
            if code is ErrorCode.NOT_CONTROLLER:
                moved = True
            elif code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                throttled = BrokerError(code, result.error_message or "controller_mutation_rate is used up")
            elif result.name in self._remaining:
                self._remaining.remove(result.name)
                self.results[result.name] = result
                self._errors[result.name] = self._error(code, result.name, controller, result.error_message)
        if moved:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"broker {controller} is no longer the controller")
        if throttled is not None:
            raise throttled
        if self._remaining:
            missing = first_of(self._remaining, 3)
            raise NetworkError(f"no result for {missing} in the response of broker {controller}")

    def _error(self, code: ErrorCode, name: str, controller: int, message: str | None) -> BrokerError | None:
        if code is ErrorCode.NONE:
            return None
        detail = self._explain(code, name, message)
        if detail is None:
            detail = f"{self._api.name} of topic {name!r}, response of broker {controller}"
        if self._response_lost and code in _POSSIBLY_APPLIED_CODES:
            detail += "; the response to an earlier attempt was lost, so this call may have done it"
        if code is ErrorCode.REQUEST_TIMED_OUT:
            detail += "; the operation continues, check again later"
        return BrokerError(code, detail)


def _checked(topics: Iterable[NewTopic]) -> tuple[TopicErrors, list[str]]:
    """Return the errors of invalid topics, and the names of the others."""
    errors: TopicErrors = {}
    legal: list[str] = []
    for topic in topics:
        try:
            topic.check()
            legal.append(topic.name)
        except BrokerError as error:
            errors[topic.name] = error
    return errors, legal


def _creatable(topic: NewTopic) -> CreatableTopic:
    by_numbers = not topic.assignments
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions if by_numbers else _BY_ASSIGNMENT,
        replication_factor=topic.replication_factor if by_numbers else _BY_ASSIGNMENT,
        assignments=tuple(
            CreatableReplicaAssignment(partition, tuple(brokers))
            for partition, brokers in sorted(topic.assignments.items())
        ),
        configs=tuple(CreatableTopicConfig(name, value) for name, value in topic.configs.items()),
    )
