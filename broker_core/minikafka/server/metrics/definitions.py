"""All metrics of a broker: names, types, labels, and the MBeans of Kafka that have the same.

Names and labels of ``kafka_…`` are those of kafka_exporter, so that its dashboards and alerts work unchanged.
Each partition is in the metrics of its leader, and each group in those of its coordinator: sums over all
brokers count it once. The others are ``minikafka_…``, and ``process_…`` and ``python_…`` as Prometheus's
own client libraries name them.
"""

from __future__ import annotations

from minikafka.base.metrics import Kind, Metric

COUNTER, GAUGE, HISTOGRAM = Kind

_TOPIC, _PARTITION = ("topic",), ("topic", "partition")
_GROUP_TOPIC, _GROUP = ("consumergroup", "topic"), ("consumergroup", "topic", "partition")
_API, _QUOTA = ("api",), ("quota", "user", "client_id")
_QUOTAS = "kafka.server:type={Produce|Fetch|Request},user=…,client-id=…,name="
_REQUESTS = "kafka.network:type=RequestMetrics,request=…,name="
_TOPICS = "kafka.server:type=BrokerTopicMetrics,topic=…,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_LOG = "kafka.log:type=Log,topic=…,partition=…,name="

# --- brokers, partitions and groups, by kafka_exporter's names ----------------------------------------------

KAFKA_BROKERS = Metric("kafka_brokers", GAUGE, "Live brokers of the cluster.")
KAFKA_BROKER_INFO = Metric("kafka_broker_info", GAUGE, "This broker: always 1.", ("id", "address"))
TOPIC_PARTITIONS = Metric(
    "kafka_topic_partitions",
    GAUGE,
    "Partitions of the topic; from the broker that leads its first partition.",
    _TOPIC,
)
CURRENT_OFFSET = Metric(
    "kafka_topic_partition_current_offset",
    GAUGE,
    "End of the partition for consumers (the high watermark).",
    _PARTITION,
    _LOG + "LogEndOffset",
)
OLDEST_OFFSET = Metric(
    "kafka_topic_partition_oldest_offset",
    GAUGE,
    "Start of the partition.",
    _PARTITION,
    _LOG + "LogStartOffset",
)
PARTITION_LEADER = Metric(
    "kafka_topic_partition_leader", GAUGE, "Id of the leader; -1 for none, from the controller.", _PARTITION
)
LEADER_IS_PREFERRED = Metric(
    "kafka_topic_partition_leader_is_preferred", GAUGE, "1 if the preferred replica leads.", _PARTITION
)
PARTITION_REPLICAS = Metric("kafka_topic_partition_replicas", GAUGE, "Replicas.", _PARTITION)
IN_SYNC_REPLICA = Metric("kafka_topic_partition_in_sync_replica", GAUGE, "Replicas in sync.", _PARTITION)
UNDER_REPLICATED = Metric(
    "kafka_topic_partition_under_replicated_partition",
    GAUGE,
    "1 if a replica is not in sync.",
    _PARTITION,
    "kafka.cluster:type=Partition,topic=…,partition=…,name=UnderReplicated",
)
GROUP_CURRENT_OFFSET = Metric(
    "kafka_consumergroup_current_offset",
    GAUGE,
    "Committed offset; -1 of a partition that a member reads without one.",
    _GROUP,
)
GROUP_CURRENT_OFFSET_SUM = Metric(
    "kafka_consumergroup_current_offset_sum",
    GAUGE,
    "Sum of the committed offsets of the group.",
    _GROUP_TOPIC,
)
GROUP_LAG = Metric(
    "kafka_consumergroup_lag",
    GAUGE,
    "Offsets between the committed one and the end of the partition; -1 if the end is not known.",
    _GROUP,
)
GROUP_LAG_SUM = Metric(
    "kafka_consumergroup_lag_sum", GAUGE, "Lag of the group, all partitions whose end is known.", _GROUP_TOPIC
)
GROUP_MEMBERS = Metric("kafka_consumergroup_members", GAUGE, "Members of the group.", ("consumergroup",))
GROUP_ZOOKEEPER_LAG = Metric(
    "kafka_consumergroupzookeeper_lag_zookeeper",
    GAUGE,
    "Lag of a group in ZooKeeper; from the controller.",
    _GROUP,
)

# --- requests and connections -------------------------------------------------------------------------------

REQUESTS = Metric(
    "minikafka_requests_total", COUNTER, "Requests that were answered.", _API, _REQUESTS + "RequestsPerSec"
)
REQUEST_ERRORS = Metric(
    "minikafka_request_errors_total",
    COUNTER,
    "Error codes in responses; one response may have several.",
    ("api", "error"),
    _REQUESTS + "ErrorsPerSec",
)
REQUEST_BYTES = Metric(
    "minikafka_request_bytes_total", COUNTER, "Bytes of requests.", _API, _REQUESTS + "RequestBytes"
)
RESPONSE_BYTES = Metric("minikafka_response_bytes_total", COUNTER, "Bytes of responses.", _API)
TOTAL_TIME = Metric(
    "minikafka_request_duration_seconds",
    HISTOGRAM,
    "Time from the receipt of a request until its response is sent, with the pause after it.",
    _API,
    _REQUESTS + "TotalTimeMs",
)
QUEUE_TIME = Metric(
    "minikafka_request_queue_seconds",
    HISTOGRAM,
    "Time before a thread begins to serve a request.",
    _API,
    _REQUESTS + "RequestQueueTimeMs",
)
LOCAL_TIME = Metric(
    "minikafka_request_local_seconds",
    HISTOGRAM,
    "Time in which this broker works for a request.",
    _API,
    _REQUESTS + "LocalTimeMs",
)
REMOTE_TIME = Metric(
    "minikafka_request_remote_seconds",
    HISTOGRAM,
    "Time in which a request waits: for replicas, for new data, for the group.",
    _API,
    _REQUESTS + "RemoteTimeMs",
)
THROTTLE_TIME = Metric(
    "minikafka_request_throttle_seconds",
    HISTOGRAM,
    "Pause of the connection because of a quota.",
    _API,
    _REQUESTS + "ThrottleTimeMs",
)
RESPONSE_QUEUE_TIME = Metric(
    "minikafka_response_queue_seconds",
    HISTOGRAM,
    "Time before the network thread begins to send a response.",
    _API,
    _REQUESTS + "ResponseQueueTimeMs",
)
RESPONSE_SEND_TIME = Metric(
    "minikafka_response_send_seconds",
    HISTOGRAM,
    "Time to send a response.",
    _API,
    _REQUESTS + "ResponseSendTimeMs",
)
CONNECTIONS = Metric(
    "minikafka_connections",
    GAUGE,
    "Open connections of clients and brokers.",
    ("listener",),
    "kafka.server:type=socket-server-metrics,listener=…,name=connection-count",
)
CONNECTIONS_ACCEPTED = Metric(
    "minikafka_connections_accepted_total", COUNTER, "Connections that were accepted.", ("listener",)
)
NETWORK_IDLE = Metric(
    "minikafka_network_thread_idle_seconds_total",
    COUNTER,
    "Time in which a network thread waited for events.",
    ("thread",),
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
POOL_QUEUE = Metric(
    "minikafka_request_queue_size",
    GAUGE,
    "Long requests that wait for a thread.",
    (),
    "kafka.network:type=RequestChannel,name=RequestQueueSize",
)
THROTTLED = Metric(
    "minikafka_throttled_requests_total",
    COUNTER,
    "Requests whose connection is paused, by the quota of the client.",
    ("quota",),
)
QUOTA_RATE = Metric(
    "minikafka_client_quota_rate",
    GAUGE,
    "Use of a quota by those who share it: bytes a second, or for request_percentage percent of a thread.",
    _QUOTA,
    _QUOTAS + "{byte-rate|request-time}",
)
QUOTA_LIMIT = Metric("minikafka_client_quota_limit", GAUGE, "Limit of the quota, in the same unit.", _QUOTA)
QUOTA_PAUSE = Metric(
    "minikafka_client_quota_pause_seconds",
    GAUGE,
    "Pause that a request of these clients gets now.",
    _QUOTA,
    _QUOTAS + "throttle-time",
)
AUTHENTICATIONS = Metric(
    "minikafka_authentications_total",
    COUNTER,
    "Logins of clients, by their result: success or failure.",
    ("listener", "result"),
    "kafka.server:type=socket-server-metrics,name=successful-authentication-total",
)

# --- topics -------------------------------------------------------------------------------------------------

MESSAGES_IN = Metric(
    "minikafka_topic_messages_in_total", COUNTER, "Messages appended.", _TOPIC, _TOPICS + "MessagesInPerSec"
)
BYTES_IN = Metric(
    "minikafka_topic_bytes_in_total", COUNTER, "Bytes of these messages.", _TOPIC, _TOPICS + "BytesInPerSec"
)
BYTES_OUT = Metric(
    "minikafka_topic_bytes_out_total",
    COUNTER,
    "Bytes of messages sent to consumers.",
    _TOPIC,
    _TOPICS + "BytesOutPerSec",
)
REPLICATION_BYTES_IN = Metric(
    "minikafka_topic_replication_bytes_in_total",
    COUNTER,
    "Bytes of messages copied from leaders on other brokers.",
    _TOPIC,
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
)
REPLICATION_BYTES_OUT = Metric(
    "minikafka_topic_replication_bytes_out_total",
    COUNTER,
    "Bytes of messages sent to followers.",
    _TOPIC,
    "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)
PRODUCED = Metric(
    "minikafka_topic_produce_requests_total",
    COUNTER,
    "Partitions in produce requests.",
    _TOPIC,
    _TOPICS + "TotalProduceRequestsPerSec",
)
FETCHED = Metric(
    "minikafka_topic_fetch_requests_total",
    COUNTER,
    "Partitions in answered fetch requests of consumers.",
    _TOPIC,
    _TOPICS + "TotalFetchRequestsPerSec",
)
FAILED_PRODUCED = Metric(
    "minikafka_topic_failed_produce_requests_total",
    COUNTER,
    "Partitions in produce requests that failed.",
    _TOPIC,
    _TOPICS + "FailedProduceRequestsPerSec",
)
FAILED_FETCHED = Metric(
    "minikafka_topic_failed_fetch_requests_total",
    COUNTER,
    "Partitions in fetch requests of consumers that failed.",
    _TOPIC,
    _TOPICS + "FailedFetchRequestsPerSec",
)

# --- replicas and logs --------------------------------------------------------------------------------------

PARTITIONS = Metric(
    "minikafka_partitions", GAUGE, "Replicas on this broker.", (), _REPLICAS + "PartitionCount"
)
LEADERS = Metric("minikafka_leaders", GAUGE, "Partitions that it leads.", (), _REPLICAS + "LeaderCount")
UNDER_REPLICATED_PARTITIONS = Metric(
    "minikafka_under_replicated_partitions",
    GAUGE,
    "Partitions that it leads with a replica out of sync.",
    (),
    _REPLICAS + "UnderReplicatedPartitions",
)
UNDER_MIN_ISR = Metric(
    "minikafka_under_min_isr_partitions",
    GAUGE,
    "Partitions that it leads with fewer replicas in sync than min.insync.replicas.",
    (),
    _REPLICAS + "UnderMinIsrPartitionCount",
)
ISR_SHRINKS = Metric(
    "minikafka_isr_shrinks_total", COUNTER, "ISRs that shrank.", (), _REPLICAS + "IsrShrinksPerSec"
)
ISR_EXPANDS = Metric(
    "minikafka_isr_expands_total", COUNTER, "ISRs that expanded.", (), _REPLICAS + "IsrExpandsPerSec"
)
FOLLOWER_LAG = Metric(
    "minikafka_follower_max_lag",
    GAUGE,
    "Largest number of messages by which the follower is behind this leader, in any partition.",
    ("follower",),
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
)
LOG_SIZE = Metric("minikafka_log_size_bytes", GAUGE, "Size of the log.", _PARTITION, _LOG + "Size")
LOG_SEGMENTS = Metric(
    "minikafka_log_segments", GAUGE, "Segments of the log.", _PARTITION, _LOG + "NumLogSegments"
)
LOG_FLUSHES = Metric(
    "minikafka_log_flush_seconds",
    HISTOGRAM,
    "Time of a flush to disk.",
    (),
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
OFFLINE_DIRECTORIES = Metric(
    "minikafka_offline_log_directories",
    GAUGE,
    "Data directories that cannot be used.",
    (),
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
CLEANED_BYTES = Metric("minikafka_log_cleaner_bytes_total", COUNTER, "Bytes that compaction has read.")
CLEANER_RUNS = Metric("minikafka_log_cleaner_runs_total", COUNTER, "Logs compacted.")
UNCLEANABLE = Metric(
    "minikafka_log_cleaner_uncleanable_partitions",
    GAUGE,
    "Partitions whose compaction failed, to be tried later.",
    (),
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
)
PURGATORY = Metric(
    "minikafka_purgatory_size",
    GAUGE,
    "Requests that wait for data, replicas, members or a time.",
    ("operation",),
    "kafka.server:type=DelayedOperationPurgatory,delayedOperation=…,name=PurgatorySize",
)

# --- controller, groups, transactions -----------------------------------------------------------------------

CONTROLLER_ACTIVE = Metric(
    "minikafka_controller_active", GAUGE, "1 on the controller.", (), _CONTROLLER + "ActiveControllerCount"
)
CONTROLLER_EPOCH = Metric("minikafka_controller_epoch", GAUGE, "Epoch of the controller, on the controller.")
OFFLINE_PARTITIONS = Metric(
    "minikafka_offline_partitions",
    GAUGE,
    "Partitions without a leader; from the controller.",
    (),
    _CONTROLLER + "OfflinePartitionsCount",
)
IMBALANCE = Metric(
    "minikafka_preferred_replica_imbalance",
    GAUGE,
    "Partitions that another replica than the preferred one leads; from the controller.",
    (),
    _CONTROLLER + "PreferredReplicaImbalanceCount",
)
REASSIGNING = Metric(
    "minikafka_reassigning_partitions",
    GAUGE,
    "Partitions being reassigned; from the controller.",
    (),
    _REPLICAS + "ReassigningPartitions",
)
ELECTIONS = Metric(
    "minikafka_leader_elections_total",
    COUNTER,
    "Partitions that got another leader from this controller.",
    (),
    "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
)
UNCLEAN_ELECTIONS = Metric(
    "minikafka_unclean_leader_elections_total",
    COUNTER,
    "Those whose new leader was not in sync: messages may be lost.",
    (),
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)
GROUPS = Metric(
    "minikafka_groups",
    GAUGE,
    "Groups that this broker coordinates, by state.",
    ("state",),
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
)
GROUP_OFFSETS = Metric(
    "minikafka_group_offsets",
    GAUGE,
    "Committed offsets of these groups.",
    (),
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
)
REBALANCES = Metric(
    "minikafka_group_rebalances_total", COUNTER, "Rebalances of groups that this broker coordinates."
)

TRANSACTIONS = Metric(
    "minikafka_transactions",
    GAUGE,
    "Transactional ids that this broker coordinates, by the state of their transaction.",
    ("state",),
)
OLDEST_TRANSACTION = Metric(
    "minikafka_oldest_open_transaction_seconds",
    GAUGE,
    "Age of the oldest of these transactions that is open; 0 without one.",
)
LAST_STABLE_OFFSET_LAG = Metric(
    "minikafka_last_stable_offset_lag",
    GAUGE,
    "Offsets that open transactions hold back from consumers with isolation.level=read_committed, from the "
    "leader; a partition without any is left out.",
    _PARTITION,
    "kafka.cluster:type=Partition,topic=…,partition=…,name=LastStableOffsetLag",
)

# --- ZooKeeper and the process ------------------------------------------------------------------------------

ZOOKEEPER_LATENCY = Metric(
    "minikafka_zookeeper_request_seconds",
    HISTOGRAM,
    "Time of a request to ZooKeeper.",
    (),
    "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs",
)
ZOOKEEPER_CONNECTED = Metric(
    "minikafka_zookeeper_connected",
    GAUGE,
    "1 while there is a session with ZooKeeper.",
    (),
    "kafka.server:type=SessionExpireListener,name=SessionState",
)
ZOOKEEPER_SESSION_EVENTS = Metric(
    "minikafka_zookeeper_session_events_total",
    COUNTER,
    "Changes of the session: connected, suspended, expired.",
    ("event",),
    "kafka.server:type=SessionExpireListener,name=ZooKeeperExpiresPerSec",
)
CLUSTER_INFO = Metric("minikafka_cluster_info", GAUGE, "Always 1.", ("cluster_id",))
BROKER_STATE = Metric(
    "minikafka_broker_state",
    GAUGE,
    "1 starting, 3 running, 7 shutting down.",
    (),
    "kafka.server:type=KafkaServer,name=BrokerState",
)
BUILD_INFO = Metric("minikafka_build_info", GAUGE, "Always 1.", ("version", "python", "broker_id"))
CPU = Metric("process_cpu_seconds_total", COUNTER, "Processor time of the process.")
RESIDENT = Metric("process_resident_memory_bytes", GAUGE, "Resident memory of the process.")
OPEN_FILES = Metric("process_open_fds", GAUGE, "Open file descriptors.")
MAX_FILES = Metric("process_max_fds", GAUGE, "Most open file descriptors.")
START_TIME = Metric("process_start_time_seconds", GAUGE, "Start of the process, since the epoch.")
THREADS = Metric("process_threads", GAUGE, "Threads of the process.")
GC_COLLECTIONS = Metric(
    "python_gc_collections_total", COUNTER, "Collections of garbage, by generation.", ("generation",)
)
GC_PAUSES = Metric(
    "minikafka_gc_pause_seconds", HISTOGRAM, "Time in which a collection of garbage stopped all threads."
)
SCRAPE_TIME = Metric("minikafka_scrape_seconds", GAUGE, "Time to put this text together, up to this line.")
DROPPED_SERIES = Metric(
    "minikafka_metrics_dropped_series",
    GAUGE,
    "Series left out because there would be more than metrics.max.series.",
)


def all_metrics() -> list[Metric]:
    """Return all metrics, in the order of this module."""
    return [value for value in globals().values() if isinstance(value, Metric)]
