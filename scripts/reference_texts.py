# ruff: noqa: E501
"""Texts for the reference pages: what the code's own tables of options and codes do not say.

``generate_reference.py`` reads the names, defaults and bounds from the code. It fails for a name without a
meaning here, and for a meaning without a name.
"""

from __future__ import annotations

API_PACKAGES = (
    "minikafka",
    "minikafka.clients.producer",
    "minikafka.clients.group",
    "minikafka.clients.consumer",
    "minikafka.clients.simple_consumer",
    "minikafka.clients.admin",
    "minikafka.clients.produce",
    "minikafka.embedded",
    "pyspark_minikafka",
    "pyspark_minikafka.monitoring",
    "minikafka.spark.metrics",
)
SPARKS_NAME = "DefaultSource"
"""The class that Spark looks for: programs use the format's name."""

SPARK_OPTIONS = (
    'The options of `format("minikafka")`. *Spark*: the versions from which an option works; all: 4.0 to 4.3. '
    "*Spark's connector*: how the option compares with Spark's own Kafka connector; the "
    "[parity page](parity-with-spark-kafka.md) has each behaviour with its test. Names are not case-sensitive."
)
SPARK_FORMATS = (
    "`minikafka.schema.registry.ssl.…` are [Kafka's properties of TLS](client-properties.md#tls) for the schema "
    "registry. [Read and write values as columns](../guides/value-formats.md) explains the formats."
)

WORKS = "all"
SHIM_OR_4_2 = "4.2; 4.0 and 4.1 with the Scala shim"
SAME = "same"
OURS = "only here"

_FORMATS = {
    f"minikafka.{part}.{name}": (WORKS, OURS)
    for part in ("key", "value")
    for name in ("format", "schema", "schema.file", "message")
}
_REGISTRY = {
    f"minikafka.{name}": (WORKS, OURS)
    for name in (
        "schema.registry.url",
        "schema.registry.basic.auth.credentials.source",
        "schema.registry.basic.auth.user.info",
        "schema.registry.bearer.auth.credentials.source",
        "schema.registry.bearer.auth.token",
        "schema.registry.http.connect.timeout.ms",
        "schema.registry.http.read.timeout.ms",
        "schema.registry.max.retries",
        "schema.registry.retries.wait.ms",
        "schema.registry.retries.max.wait.ms",
        "key.subject.name.strategy",
        "value.subject.name.strategy",
    )
}
SPARK_SOURCE: dict[str, tuple[str, str]] = {
    "assign": (WORKS, SAME),
    "subscribe": (WORKS, SAME),
    "subscribePattern": (WORKS, SAME),
    "startingTimestamp": (WORKS, SAME),
    "startingOffsetsByTimestamp": (WORKS, SAME),
    "startingOffsets": (WORKS, "same, and `group:NAME`"),
    "startingOffsetsByTimestampStrategy": (WORKS, SAME),
    "endingTimestamp": (WORKS, "better: refused on a stream"),
    "endingOffsetsByTimestamp": (WORKS, SAME),
    "endingOffsets": (WORKS, SAME),
    "minikafka.last.records": (WORKS, OURS),
    "minikafka.last.duration": (WORKS, OURS),
    "minOffsetsPerTrigger": (WORKS, SAME),
    "maxOffsetsPerTrigger": (SHIM_OR_4_2, SAME),
    "maxTriggerDelay": (WORKS, SAME),
    "minPartitions": (WORKS, SAME),
    "maxRecordsPerPartition": (WORKS, "better: without `minPartitions` too"),
    "failOnDataLoss": (WORKS, "better: a topic made again is read whole"),
    "kafkaConsumer.pollTimeoutMs": (WORKS, SAME),
    "fetchOffset.numRetries": (WORKS, SAME),
    "fetchOffset.retryIntervalMs": (WORKS, SAME),
    "groupIdPrefix": (WORKS, "same: no effect"),
    "includeHeaders": (WORKS, SAME),
    "minikafka.commit.group": (WORKS, OURS),
    "offsets.storage": (WORKS, OURS),
    "zookeeper.connect": (WORKS, OURS),
    **_FORMATS,
    **_REGISTRY,
    "minikafka.bad.values": (WORKS, OURS),
    "minikafka.dead.letter.topic": (WORKS, OURS),
    "minikafka.columns": (WORKS, OURS),
    "minikafka.tasks": (WORKS, OURS),
    "minikafka.cores": (WORKS, OURS),
    "minikafka.log.tasks": (WORKS, OURS),
    "minikafka.metrics.address": (WORKS, OURS),
    "minikafka.pushdown": ("4.1", OURS),
    "minikafka.single.batch": ("4.0, 4.1", OURS),
    "minikafka.estimate": (WORKS, "internal"),
    "minikafka.resume.from": (WORKS, OURS),
    "minikafka.changed.topics": (WORKS, OURS),
    "minikafka.data.dir": (WORKS, OURS),
    "kafka.bootstrap.servers": (WORKS, "different: required there"),
}
"""Option of a read -> the Spark versions from which it works, and how it compares with Spark's connector."""
SPARK_SINK: dict[str, tuple[str, str]] = {
    "topic": (WORKS, SAME),
    "includeHeaders": (WORKS, SAME),
    **_FORMATS,
    **_REGISTRY,
    "minikafka.auto.register.schemas": (WORKS, OURS),
    "minikafka.use.latest.version": (WORKS, OURS),
    "minikafka.normalize.schemas": (WORKS, OURS),
    "minikafka.delivery": (WORKS, OURS),
    "minikafka.sink.id": (WORKS, OURS),
    "kafka.transaction.timeout.ms": (WORKS, OURS),
    "minikafka.data.dir": (WORKS, OURS),
    "kafka.bootstrap.servers": (WORKS, "different: required there"),
}

ERROR_MEANINGS: dict[str, str] = {
    "UNKNOWN": "An unexpected error, or a code that this version does not know.",
    "NONE": "No error.",
    "OFFSET_OUT_OF_RANGE": "The offset is not in the log.",
    "CORRUPT_MESSAGE": "A message fails its checksum, or its size is wrong.",
    "UNKNOWN_TOPIC_OR_PARTITION": "The broker does not have this topic or partition.",
    "INVALID_FETCH_SIZE": "The requested fetch size is invalid.",
    "LEADER_NOT_AVAILABLE": "The partition has no leader at the moment.",
    "NOT_LEADER_FOR_PARTITION": "This broker does not lead the partition.",
    "REQUEST_TIMED_OUT": "The request timed out.",
    "BROKER_NOT_AVAILABLE": "The broker is not available.",
    "REPLICA_NOT_AVAILABLE": "The replica is not available on this broker.",
    "MESSAGE_TOO_LARGE": "The message is larger than the topic allows.",
    "STALE_CONTROLLER_EPOCH": "A newer controller has been elected.",
    "OFFSET_METADATA_TOO_LARGE": "The text of an offset commit is too long.",
    "NETWORK_EXCEPTION": "The connection broke before a response arrived.",
    "GROUP_LOAD_IN_PROGRESS": "The coordinator is still loading the group.",
    "GROUP_COORDINATOR_NOT_AVAILABLE": "The group's coordinator is not available.",
    "NOT_COORDINATOR_FOR_GROUP": "This broker does not coordinate the group.",
    "INVALID_TOPIC": "The topic's name is invalid, or the topic is internal.",
    "RECORD_LIST_TOO_LARGE": "The batch is larger than a segment.",
    "NOT_ENOUGH_REPLICAS": "Fewer replicas are in sync than `min.insync.replicas`.",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "The message was written, but fewer replicas are in sync than `min.insync.replicas`.",
    "INVALID_REQUIRED_ACKS": "`acks` is not -1, 0 or 1.",
    "ILLEGAL_GENERATION": "The member's generation is not the group's.",
    "INCONSISTENT_GROUP_PROTOCOL": "The member has no protocol in common with the group.",
    "INVALID_GROUP_ID": "The group's name is invalid.",
    "UNKNOWN_MEMBER_ID": "The group does not have this member.",
    "INVALID_SESSION_TIMEOUT": "The session time-out is out of the broker's bounds.",
    "REBALANCE_IN_PROGRESS": "The group is rebalancing: join again.",
    "INVALID_COMMIT_OFFSET_SIZE": "The commit is too large to be stored.",
    "TOPIC_AUTHORIZATION_FAILED": "The access rules do not allow this on the topic.",
    "GROUP_AUTHORIZATION_FAILED": "The access rules do not allow this on the group.",
    "CLUSTER_AUTHORIZATION_FAILED": "The access rules do not allow this on the cluster.",
    "INVALID_TIMESTAMP": "The message's timestamp is out of the topic's bounds.",
    "UNSUPPORTED_SASL_MECHANISM": "The broker does not support the SASL mechanism.",
    "ILLEGAL_SASL_STATE": "The request is not valid in this SASL state.",
    "UNSUPPORTED_VERSION": "The broker does not support this version of the request.",
    "TOPIC_ALREADY_EXISTS": "The topic exists already.",
    "INVALID_PARTITIONS": "The number of partitions is invalid.",
    "INVALID_REPLICATION_FACTOR": "The number of replicas is invalid, or above the number of brokers.",
    "INVALID_REPLICA_ASSIGNMENT": "The assignment of replicas is invalid.",
    "INVALID_CONFIG": "A setting is invalid.",
    "NOT_CONTROLLER": "This broker is not the controller.",
    "INVALID_REQUEST": "The request is invalid; the broker's log has the reason.",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": "The log's message format does not support this.",
    "POLICY_VIOLATION": "The request breaks a rule of the broker.",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "A batch of an idempotent producer is missing before this one.",
    "DUPLICATE_SEQUENCE_NUMBER": "The log has this batch of an idempotent producer already.",
    "INVALID_PRODUCER_EPOCH": "A newer producer uses the same id.",
    "INVALID_TXN_STATE": "The transaction does not allow this in its state.",
    "INVALID_PRODUCER_ID_MAPPING": "The producer's id is not that of the transactional id.",
    "INVALID_TRANSACTION_TIMEOUT": "The transaction's time-out is too long.",
    "CONCURRENT_TRANSACTIONS": "The transaction is being completed: try again.",
    "TRANSACTION_COORDINATOR_FENCED": "A newer transaction coordinator has written.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "The access rules do not allow this transactional id.",
    "SECURITY_DISABLED": "The broker has no authorizer.",
    "OPERATION_NOT_ATTEMPTED": "Nothing was tried, because another part of the request failed.",
    "KAFKA_STORAGE_ERROR": "The disk failed.",
    "LOG_DIR_NOT_FOUND": "The broker does not have this data directory.",
    "SASL_AUTHENTICATION_FAILED": "The authentication failed.",
    "UNKNOWN_PRODUCER_ID": "The log knows nothing of this producer's id.",
    "REASSIGNMENT_IN_PROGRESS": "A reassignment is under way.",
    "DELEGATION_TOKEN_AUTH_DISABLED": "Delegation tokens are disabled.",
    "DELEGATION_TOKEN_NOT_FOUND": "The delegation token does not exist.",
    "DELEGATION_TOKEN_OWNER_MISMATCH": "The principal is not an owner of the delegation token.",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "Delegation token requests are not allowed on this connection.",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": "The delegation token is not authorized.",
    "DELEGATION_TOKEN_EXPIRED": "The delegation token has expired.",
    "INVALID_PRINCIPAL_TYPE": "The principal's type is not supported.",
    "NON_EMPTY_GROUP": "The group has members.",
    "GROUP_ID_NOT_FOUND": "The group does not exist.",
    "FETCH_SESSION_ID_NOT_FOUND": "The fetch session does not exist.",
    "INVALID_FETCH_SESSION_EPOCH": "The fetch session's epoch is wrong.",
    "LISTENER_NOT_FOUND": "The leader has no listener of this name.",
    "TOPIC_DELETION_DISABLED": "`delete.topic.enable` is false.",
    "FENCED_LEADER_EPOCH": "The leader epoch is older than the broker's.",
    "UNKNOWN_LEADER_EPOCH": "The leader epoch is newer than the broker's.",
    "UNSUPPORTED_COMPRESSION_TYPE": "The request's version does not support this codec.",
    "STALE_BROKER_EPOCH": "The broker has registered again since the request was sent.",
    "OFFSET_NOT_AVAILABLE": "The new leader's high watermark is not known yet: try again.",
    "MEMBER_ID_REQUIRED": "The member must join again with the id in the response.",
    "PREFERRED_LEADER_NOT_AVAILABLE": "The preferred leader is not in the ISR.",
    "GROUP_MAX_SIZE_REACHED": "The group has `group.max.size` members.",
    "FENCED_INSTANCE_ID": "Another client has joined with the same `group.instance.id`.",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE": "No replica may become the leader.",
    "ELECTION_NOT_NEEDED": "The partition has that leader already.",
    "NO_REASSIGNMENT_IN_PROGRESS": "The partition is not being reassigned.",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Members of the group consume the topic.",
    "INVALID_RECORD": "The broker refuses a record, such as one without a key in a compacted topic.",
    "UNSTABLE_OFFSET_COMMIT": "A transaction that commits an offset is not complete: try again.",
    "THROTTLING_QUOTA_EXCEEDED": "The user is above the quota: try again after the throttle time.",
    "PRODUCER_FENCED": "Another producer with the same transactional id has started.",
    "RESOURCE_NOT_FOUND": "The request names something that does not exist, such as a user.",
    "DUPLICATE_RESOURCE": "The request names something twice.",
    "UNACCEPTABLE_CREDENTIAL": "The credential is not allowed, such as one with too few iterations.",
    "INCONSISTENT_VOTER_SET": "The sender or receiver is not among the voters (KRaft).",
    "INVALID_UPDATE_VERSION": "The version to update to is not valid.",
    "FEATURE_UPDATE_FAILED": "The features could not be updated.",
    "PRINCIPAL_DESERIALIZATION_FAILURE": "The principal of a forwarded request cannot be read.",
    "SNAPSHOT_NOT_FOUND": "The snapshot does not exist (KRaft).",
    "POSITION_OUT_OF_RANGE": "The position is not in the snapshot (KRaft).",
    "UNKNOWN_TOPIC_ID": "No topic has this id.",
    "DUPLICATE_BROKER_REGISTRATION": "Another broker has this id.",
    "BROKER_ID_NOT_REGISTERED": "No broker is registered with this id.",
    "INCONSISTENT_TOPIC_ID": "The log belongs to a topic with another id.",
    "INCONSISTENT_CLUSTER_ID": "The request is for another cluster.",
    "TRANSACTIONAL_ID_NOT_FOUND": "No producer has this transactional id.",
    "FETCH_SESSION_TOPIC_ID_ERROR": "The fetch session has topics by name, and the request by id, or the reverse.",
    "INELIGIBLE_REPLICA": "A replica may not be in the ISR.",
    "NEW_LEADER_ELECTED": "The partition was changed, and has another leader.",
    "OFFSET_MOVED_TO_TIERED_STORAGE": "The offset is in tiered storage only.",
    "FENCED_MEMBER_EPOCH": "The member's epoch is older than the group's: it must join again.",
    "UNRELEASED_INSTANCE_ID": "Another member still has this `group.instance.id`.",
    "UNSUPPORTED_ASSIGNOR": "The group does not support this assignor.",
    "STALE_MEMBER_EPOCH": "The member must learn its new epoch by a heartbeat first.",
    "MISMATCHED_ENDPOINT_TYPE": "The endpoint is a controller's and not a broker's, or the reverse.",
    "UNSUPPORTED_ENDPOINT_TYPE": "The type of endpoint is not known.",
    "UNKNOWN_CONTROLLER_ID": "No controller has this id.",
    "UNKNOWN_SUBSCRIPTION_ID": "The client's metrics are for an outdated subscription.",
    "TELEMETRY_TOO_LARGE": "The client's metrics are larger than the broker's limit.",
    "INVALID_REGISTRATION": "The controller refuses the broker's registration.",
    "TRANSACTION_ABORTABLE": "The transaction failed, and can be aborted.",
    "INVALID_RECORD_STATE": "The record cannot be acknowledged in its state (share groups).",
    "SHARE_SESSION_NOT_FOUND": "The share session does not exist.",
    "INVALID_SHARE_SESSION_EPOCH": "The share session's epoch is wrong.",
    "FENCED_STATE_EPOCH": "The epoch of the share group's state is wrong.",
    "INVALID_VOTER_KEY": "The voter has another key (KRaft).",
    "DUPLICATE_VOTER": "The voter is in the set already (KRaft).",
    "VOTER_NOT_FOUND": "The voter is not in the set (KRaft).",
}

PROTOCOL_VERSIONS = (
    "The requests of Kafka's protocol that a broker serves, or sends to other brokers, beside those of a broker of Kafka 3.9.1 with ZooKeeper. All begin with version 0, except CopyBatches, an API of minikafka's own that no other broker or client knows: it has the version of Produce whose response it has ([transactions](../architecture/transactions.md#batches-that-are-copied-within-the-cluster)). A version is served once the broker does all that it means. With a setting of `inter.broker.protocol.version` for 0.10, brokers serve the versions of 0.10.1 alone. `python -m minikafka.wire` prints all fields of its schemas.",
    "*Of our clients*: the newest version that the Python clients, commands and Spark's source use; empty: they do not send the request. SaslHandshake and SaslAuthenticate are an exception: a login chooses their versions itself.",
    "A client tells its software's name and version with ApiVersions 3. A broker's log has a line for each pair, when its first client comes: `first client with this software: name=librdkafka version=2.5.0 client_id=… host=… listener=…`. No request of the protocol asks a broker for them.",
)

NO_TOKENS = "there are no delegation tokens"
TO_KRAFT = "is for the move to KRaft"
NO_BROKER_EPOCHS = (
    "have the epochs of brokers and leaders, by which Kafka tells late requests: here the requests to a broker "
    "come one after the other, on a connection that ends with its session in ZooKeeper"
)
NEW_GROUPS = (
    "Kafka too refuses it with ZooKeeper (UNSUPPORTED_VERSION): it is for the new coordinator of groups"
)

OTHER_APIS: dict[int, str] = {
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
}
"""APIs of Kafka 3.9.1 that have no schema."""

OLDER_VERSIONS: dict[str, str] = {
    "LeaderAndIsr": (
        "6 names a leader that recovers from an unclean election, which AlterPartition records; 7 " + TO_KRAFT
    ),
    "StopReplica": f"1 to 3 {NO_BROKER_EPOCHS}; 4 {TO_KRAFT}",
    "UpdateMetadata": f"8 {TO_KRAFT}",
    "ControlledShutdown": "2 has the epoch of the broker, by which Kafka tells a late request: here it would only move leaders once more",
    "CreateDelegationToken": NO_TOKENS,
    "RenewDelegationToken": NO_TOKENS,
    "ExpireDelegationToken": NO_TOKENS,
    "DescribeDelegationToken": NO_TOKENS,
    "AlterPartition": "leaders write their ISR to ZooKeeper, as in Kafka below `inter.broker.protocol.version` 2.7",
    "UpdateFeatures": "a cluster has no features below `inter.broker.protocol.version` 2.7",
    "Envelope": "it is for clusters without ZooKeeper: others close the connection",
    "AllocateProducerIds": "brokers take producer ids from ZooKeeper, as in Kafka below `inter.broker.protocol.version` 3.0",
    "ConsumerGroupHeartbeat": NEW_GROUPS,
    "ConsumerGroupDescribe": NEW_GROUPS,
}
"""API -> why a broker serves fewer versions of it than Kafka 3.9.1 with ZooKeeper, or none."""
