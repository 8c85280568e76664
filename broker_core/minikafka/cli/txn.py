"""``minikafka txn``: lists and describes transactions, finds hanging ones and aborts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.types import one_of
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError
from minikafka.base.ids import TopicPartition
from minikafka.base.times import utc_text
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    number_option,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import print_object, print_rows, say
from minikafka.cli.terminal.progress import spinner

if TYPE_CHECKING:
    from minikafka.clients.admin.transactions import (
        AbortTransactionSpec,
        ProducerState,
        TransactionAdmin,
        TransactionDescription,
    )
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.clients.network.metadata import TopicMetadata

app = typer.Typer(help="List transactions, find hanging ones and abort them.", no_args_is_help=True)

LIST_COLUMNS = ["transactional_id", "coordinator", "producer_id", "state"]
DESCRIBE_COLUMNS = [
    "coordinator",
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "state",
    "timeout_ms",
    "start_time",
    "duration_ms",
    "partitions",
]
PRODUCER_COLUMNS = [
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "last_sequence",
    "last_timestamp",
    "start_offset",
]
HANGING_COLUMNS = [
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "last_timestamp",
    "duration_min",
]
MAX_EPOCH = 0x7FFF
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""The states of transactions, with Kafka's names."""
_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""The states in which a transaction is open, or its end is not complete."""
_STATE = one_of(*STATES)
_MINUTE_MS = 60_000


def _parse_state(text: str) -> str:
    state: str = _STATE.parse("--state", text)
    return state


def _optional_number(name: str, metavar: str, text: str, least: int = 0, most: int | None = None) -> object:
    return number_option(name, metavar, text, least, most, show_default=False)


TopicName = Annotated[str, value_option("--topic", "T", "The topic.")]
TopicOrNone = Annotated[str | None, value_option("--topic", "T", "Only this topic.")]
Partition = Annotated[int, _optional_number("--partition", "P", "The partition.")]
PartitionOrNone = Annotated[int | None, _optional_number("--partition", "P", "Only this partition.")]


@app.command("list", short_help="List the transactional ids of the cluster.")
def list_(
    states: Annotated[
        list[str] | None,
        value_option(
            "--state", "S", "Only in this state, such as Ongoing; may be repeated. [all]", parser=_parse_state
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        _optional_number("--producer-id", "N", "Only of this producer; may be repeated. [all]"),
    ] = None,
    longer_than_ms: Annotated[
        int | None,
        _optional_number(
            "--duration-filter", "MS", "Only transactions that are open for longer. Kafka 3.8 or newer."
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """List the transactional ids of all brokers, with their states.

    Ids that may not be described are left out. Needs Kafka 3.0 or newer.
    """
    from minikafka.clients.admin.transactions import TransactionAdmin

    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster, spinner("looking for ids"):
        found = TransactionAdmin(cluster).list_transactions(
            states=states or (), producer_ids=producer_ids or (), longer_than_ms=longer_than_ms
        )
    rows = [
        {
            "transactional_id": listed.transactional_id,
            "coordinator": listed.coordinator.broker_id,
            "producer_id": listed.producer_id,
            "state": listed.state,
        }
        for listed in found
    ]
    filtered = states or producer_ids or longer_than_ms is not None
    nothing = "no transactional id passes the filters" if filtered else "there are no transactional ids"
    print_rows(rows, LIST_COLUMNS, style, nothing=nothing)


@app.command(short_help="Show the transaction of a transactional id.")
def describe(
    transactional_id: Annotated[str, text_argument("ID")],
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show the coordinator, the state and the partitions of a transactional id.

    Once the end of a transaction is decided, its partitions are those whose markers are not written yet.
    """
    from minikafka.clients.admin.transactions import TransactionAdmin

    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        found = TransactionAdmin(cluster).describe(transactional_id)
        now_ms = cluster.clock.now_ms()
    print_rows([_description_row(found, now_ms)], DESCRIBE_COLUMNS, style)


@app.command("describe-producers", short_help="Show the producers that a partition knows.")
def describe_producers(
    topic: TopicName,
    partition: Partition,
    broker_id: Annotated[
        int | None, _optional_number("--broker-id", "B", "Ask this replica. [the leader]")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show the idempotent and transactional producers of a partition, and where their transactions start."""
    from minikafka.clients.admin.transactions import TransactionAdmin

    tp = TopicPartition(topic, partition)
    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        found = TransactionAdmin(cluster).describe_producers([_existing(cluster, tp)], broker_id=broker_id)[
            tp
        ]
    rows = [_producer_row(producer) for producer in found]
    print_rows(rows, PRODUCER_COLUMNS, style, nothing=f"{tp} knows no producers")


@app.command(short_help="Abort a hanging transaction in one partition.")
def abort(
    topic: TopicName,
    partition: Partition,
    start_offset: Annotated[
        int | None, _optional_number("--start-offset", "O", "The first offset of the transaction.")
    ] = None,
    producer_id: Annotated[
        int | None, _optional_number("--producer-id", "N", "Instead, for brokers before 3.0: the producer.")
    ] = None,
    producer_epoch: Annotated[
        int | None,
        _optional_number("--producer-epoch", "E", "With --producer-id: its epoch.", most=MAX_EPOCH),
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        _optional_number(
            "--coordinator-epoch", "E", "With --producer-id: of its last marker, -1 for none.", least=-1
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also a transaction that its coordinator is going to end. What its producer then commits "
            "lacks this partition.",
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Abort a transaction in one partition, by writing the marker that its coordinator does not write.

    Needs Alter or ClusterAction on the cluster. Consumers with read_committed read on then. With
    --producer-id nothing is checked.
    """
    from minikafka.clients.admin.transactions import AbortTransactionSpec, TransactionAdmin

    tp = TopicPartition(topic, partition)
    epochs = {"--producer-epoch": producer_epoch, "--coordinator-epoch": coordinator_epoch}
    _check_abort(start_offset, producer_id, epochs)
    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        admin = TransactionAdmin(cluster)
        _existing(cluster, tp)
        if start_offset is not None:
            spec = _spec_of(admin, tp, start_offset, force=force)
        else:
            assert producer_id is not None
            assert producer_epoch is not None
            assert coordinator_epoch is not None
            spec = AbortTransactionSpec(tp, producer_id, producer_epoch, coordinator_epoch)
        admin.abort(spec)
    if style is not Format.TABLE:
        row = {"topic": topic, "partition": partition, "producer_id": spec.producer_id}
        print_object({**row, "producer_epoch": spec.producer_epoch, "start_offset": start_offset}, style)
    else:
        say(f"aborted the transaction of producer {spec.producer_id} in {tp}")


@app.command("find-hanging", short_help="Find transactions that nobody will end.")
def find_hanging(
    broker_id: Annotated[
        int | None, _optional_number("--broker-id", "B", "All partitions that have a replica on this broker.")
    ] = None,
    topic: TopicOrNone = None,
    partition: PartitionOrNone = None,
    max_timeout_min: Annotated[
        int,
        number_option(
            "--max-transaction-timeout",
            "MIN",
            "The largest transaction.max.timeout.ms of the brokers, in minutes: younger ones are left out.",
            0,
        ),
    ] = 15,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Find transactions that are open in a partition, while no coordinator will end them.

    Set --topic, --broker-id or both. Needs Read on the topics, and Describe on all transactional ids: a
    transaction that may not be described looks hanging.
    """
    from minikafka.clients.admin.transactions import TransactionAdmin

    if partition is not None and topic is None:
        raise ConfigError("--partition", partition, "requires --topic")
    if topic is None and broker_id is None:
        raise ConfigError("--topic", None, "set --topic T, --broker-id B or both: a search needs a limit")
    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        wanted = _partitions(cluster, topic, partition, broker_id)
        with spinner(f"searching {len(wanted)} partitions"):
            found = TransactionAdmin(cluster).find_hanging(
                wanted, broker_id=broker_id, max_timeout_ms=max_timeout_min * _MINUTE_MS
            )
        now_ms = cluster.clock.now_ms()
    print_rows(_hanging_rows(found, now_ms), HANGING_COLUMNS, style, nothing="no hanging transactions")


def _check_abort(start_offset: int | None, producer_id: int | None, epochs: dict[str, int | None]) -> None:
    """Raise ConfigError unless a transaction is named in one of the two ways."""
    given = [name for name, value in epochs.items() if value is not None]
    if start_offset is None and producer_id is None:
        raise ConfigError(
            "--start-offset",
            None,
            "set --start-offset O, or for brokers before 3.0 --producer-id N, --producer-epoch E and "
            "--coordinator-epoch E",
        )
    if start_offset is not None and (producer_id is not None or given):
        other = "--producer-id" if producer_id is not None else given[0]
        raise ConfigError("--start-offset", start_offset, f"conflicts with {other}")
    if producer_id is not None and len(given) < len(epochs):
        missing = next(name for name, value in epochs.items() if value is None)
        raise ConfigError(missing, None, "required with --producer-id")


def _spec_of(
    admin: TransactionAdmin, tp: TopicPartition, start_offset: int, *, force: bool
) -> AbortTransactionSpec:
    """Return the marker of an open transaction. Raise MinikafkaError if its coordinator will end it."""
    from minikafka.clients.admin.transactions import AbortTransactionSpec

    producer = admin.open_transaction(tp, start_offset)
    owner = None if force else admin.coordinated(producer)
    if owner is not None:
        raise MinikafkaError(
            f"the transaction of producer {producer.producer_id} in {tp} is not hanging: its coordinator, "
            f"broker {owner.coordinator.broker_id}, has transactional id {owner.transactional_id!r} in state "
            f"{owner.state} and will end it; wait for its time-out of {owner.timeout_ms} ms, stop its "
            "producer, or set --force"
        )
    return AbortTransactionSpec.of(producer)


def _existing(cluster: ClusterClient, tp: TopicPartition) -> TopicPartition:
    """Return ``tp``. Raise BrokerError if it does not exist."""
    (found,) = _partitions(cluster, tp.topic, tp.partition, None)
    return found


def _partitions(
    cluster: ClusterClient, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Return the partitions to search. Raise BrokerError for one that does not exist."""
    from minikafka.clients.admin.admin import Admin

    admin = Admin(cluster)
    if topic is not None:
        topics: Iterable[TopicMetadata] = [connect.existing_topic(admin, topic)]
    else:
        topics = admin.describe_cluster().topics.values()
    found = [
        row.topic_partition
        for each in topics
        for row in each.partitions
        if (broker_id is None or broker_id in row.replicas)
        and (partition is None or row.topic_partition.partition == partition)
    ]
    if partition is not None and not found:
        where = "" if broker_id is None else f" on broker {broker_id}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}{where}")
    return found


def _description_row(found: TransactionDescription, now_ms: int) -> dict[str, object]:
    start_ms = found.start_time_ms
    duration_ms = None
    if start_ms is not None and found.state in _OPEN:  # coordinators keep the start of one that is complete
        duration_ms = max(0, now_ms - start_ms)
    return {
        "coordinator": found.coordinator.broker_id,
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_time": utc_text(start_ms),
        "duration_ms": duration_ms,
        "partitions": [str(tp) for tp in found.partitions],
    }


def _producer_row(producer: ProducerState) -> dict[str, object]:
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": utc_text(producer.last_timestamp_ms),
        "start_offset": producer.start_offset,
    }


def _hanging_rows(found: Sequence[ProducerState], now_ms: int) -> list[dict[str, object]]:
    rows = []
    for producer in found:
        row = _producer_row(producer)
        del row["last_sequence"]
        minutes = max(0, now_ms - producer.last_timestamp_ms) // _MINUTE_MS
        tp = producer.topic_partition
        rows.append({"topic": tp.topic, "partition": tp.partition, **row, "duration_min": minutes})
    return rows
