"""``minikafka topic``: create, list, describe, alter and delete topics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.property_files import key_values
from minikafka.base.config.types import digit_list
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import INTERNAL_TOPICS, topic_id_text
from minikafka.base.secrets import redact_all
from minikafka.base.text import counted
from minikafka.cli import topic_trim
from minikafka.cli.config import changes_of, check_settings_exist, format_changes, warn_of_too_few_replicas
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    DisableRackAware,
    Format,
    OutputFormat,
    ZooKeeper,
    number_option,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import note, print_object, print_rows, say

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.topics import CreatedTopic, NewTopic
    from minikafka.registry.store import Store

app = typer.Typer(help="Create, list, describe, alter, trim and delete topics.", no_args_is_help=True)

Name = Annotated[str, text_argument("NAME")]
MaybeName = Annotated[str | None, text_argument("NAME", "Without it: all topics.")]
INTERNAL_TOPIC = "is an internal topic of Kafka and may not be deleted; `group delete` deletes one group"
NO_IMPACT = "Note: This will have no impact if delete.topic.enable is not set to true."
BROKERS_CHOICE = "[the brokers' default; 1 before Kafka 2.4]"
Partitions = Annotated[
    int | None,
    number_option(
        "--partitions", "N", f"Number of partitions. {BROKERS_CHOICE}", 1, show_default=False, others=("-p",)
    ),
]
Replicas = Annotated[
    int | None,
    number_option(
        "--replicas",
        "N",
        f"Replicas of each. {BROKERS_CHOICE}",
        1,
        show_default=False,
        others=("-r", "--replication-factor"),
    ),
]
TopicConfigs = Annotated[
    list[str] | None,
    value_option("--config", "K=V", "A topic config; may be repeated.", others=("-c", "--topic-config")),
]
IfExists = Annotated[
    bool, typer.Option("--if-exists", help="If the topic does not exist, do nothing, with status 0.")
]


@app.command()
def create(
    name: Name,
    partitions: Partitions = None,
    replicas: Replicas = None,
    assignment: Annotated[
        str | None,
        value_option(
            "--replica-assignment",
            "0:1,1:2",
            "Instead of both: the brokers of each partition, the preferred leader first.",
        ),
    ] = None,
    config: TopicConfigs = None,
    disable_rack_aware: DisableRackAware = False,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="If the topic exists, do nothing, with status 0.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Create a topic."""
    configs = key_values("--config", config)
    given = {} if assignment is None else replica_assignment(assignment)
    if given and (partitions or replicas):
        allowed = "cannot be combined with --partitions or --replicas"
        raise ConfigError("--replica-assignment", assignment, allowed)

    from minikafka.clients.admin.admin import NewTopic
    from minikafka.clients.admin.topics import BROKER_DEFAULT

    default = 1 if given or disable_rack_aware else BROKER_DEFAULT
    numbers = partitions or default, replicas or default
    topic = NewTopic(name, *numbers, given, configs, rack_aware=not disable_rack_aware)
    with connect.admin_client(bootstrap, data_dir, command_config, writes=True) as admin:
        try:
            created = create_topic(admin, topic)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                raise
            nothing_done(name, "already exists", {"created": False}, style)
            return
    count, factor = created.partitions, created.replication_factor
    known = count > 0  # a client that may not describe the topic does not learn the brokers' default
    if known:
        warn_of_too_few_replicas(name, created.configs or configs, factor)
    if style is not Format.TABLE:
        numbers_made = {"partitions": count if known else None, "replicas": factor if known else None}
        topic_id = topic_id_text(created.topic_id)
        print_object(
            {"topic": name, "topic_id": topic_id, **numbers_made, "config": redact_all(configs)}, style
        )
    else:
        each = f", {factor} replicas each" if factor > 1 else ""
        say(f"created {name} with {counted(count, 'partition')}{each}" if known else f"created {name}")


def create_topic(admin: Admin, topic: NewTopic) -> CreatedTopic:
    """Create a topic; brokers before Kafka 2.4, which have no defaults for it, give it one of each."""
    try:
        return admin.create_topic(topic)
    except BrokerError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION or not topic.takes_defaults:
            raise
    numbers = max(1, topic.partitions), max(1, topic.replication_factor)
    return admin.create_topic(replace(topic, partitions=numbers[0], replication_factor=numbers[1]))


def replica_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """Parse ``0:1,1:2``, the form of 0.10.1's tool, into partition -> brokers. Raise ConfigError."""
    option = "--replica-assignment"
    found: dict[int, tuple[int, ...]] = {}
    for number, part in enumerate(text.split(",")):
        brokers = digit_list(part, ":")
        if brokers is None:
            allowed = (
                "must be broker ids, with a colon between those of one partition and a comma between "
                "partitions"
            )
            raise ConfigError(option, text, allowed)
        found[number] = tuple(brokers)
    for number, replicas in found.items():
        if len(set(replicas)) < len(replicas):
            raise ConfigError(option, text, f"partition {number} names a broker twice: {list(replicas)}")
        if len(replicas) != len(found[0]):
            raise ConfigError(
                option,
                text,
                f"partition {number} has {len(replicas)} replicas, partition 0 has {len(found[0])}",
            )
    return found


@app.command("list")
def list_(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """List all topics and the number of their partitions."""
    with connect.cluster_client(bootstrap, data_dir, command_config) as cluster:
        topics = cluster.metadata(None, refresh=True).topics
    rows = [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "internal": topic.is_internal,
            "topic_id": topic_id_text(topic.topic_id),
        }
        for name, topic in sorted(topics.items())
    ]
    print_rows(rows, ["topic", "partitions"], style, nothing="there are no topics")


@app.command(short_help="Show leader, replicas and offsets of each partition.")
def describe(
    name: MaybeName = None,
    with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own.")
    ] = False,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only partitions with a replica out of sync."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a live leader.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show leader, replicas (the preferred leader first), in-sync replicas, and offsets of each partition."""
    if with_overrides + under_replicated + unavailable > 1:
        option = "--unavailable-partitions" if unavailable else "--under-replicated-partitions"
        allowed = (
            "set only one of --topics-with-overrides, --under-replicated-partitions and "
            "--unavailable-partitions"
        )
        raise ConfigError(option, None, allowed)

    from minikafka.cli import topic_rows

    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        known = admin.describe_cluster()
        if name is not None:
            known = replace(known, topics={name: connect.existing_topic(admin, name)})
        if with_overrides:
            rows, columns = topic_rows.override_rows(admin, known), topic_rows.OVERRIDE_COLUMNS
        elif under_replicated or unavailable:
            rows, columns = (
                topic_rows.filtered_partition_rows(known, unavailable=unavailable),
                topic_rows.FILTERED_COLUMNS,
            )
        else:
            rows, columns = topic_rows.all_partition_rows(admin, known), topic_rows.PARTITION_COLUMNS
            columns = columns[1:] if name is not None else columns
    print_rows(rows, columns, style)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        number_option(
            "--partitions", "N", "The new number of partitions, more than now.", 1, show_default=False
        ),
    ] = None,
    config: Annotated[
        list[str] | None, value_option("--config", "K=V", "A topic config; may be repeated.")
    ] = None,
    delete_config: Annotated[
        list[str] | None, value_option("--delete-config", "K", "Reset to the broker's value.")
    ] = None,
    disable_rack_aware: DisableRackAware = False,
    if_exists: IfExists = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Add partitions to a topic, or change its settings."""
    changes = changes_of("--delete-config", key_values("--config", config), delete_config)
    if partitions is None and not changes:
        options = "--partitions N, --config K=V or --delete-config K"
        raise ConfigError("NAME", name, f"nothing to alter; set {options}")

    from minikafka.wire.apis.describe_configs import ConfigResourceType

    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        try:
            topic = connect.existing_topic(admin, name)
        except BrokerError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not if_exists:
                raise
            nothing_done(name, "does not exist", {"altered": False}, style)
            return
        if changes:
            check_settings_exist(admin, ConfigResourceType.TOPIC, name, "--delete-config", delete_config)
            admin.change_configs(ConfigResourceType.TOPIC, name, changes)
            warn_of_too_few_replicas(name, changes, topic.fewest_replicas)
        if partitions is not None:
            admin.create_partitions(name, partitions, rack_aware=not disable_rack_aware)
    if style is not Format.TABLE:
        print_object({"topic": name, "partitions": partitions, "config": redact_all(changes)}, style)
        return
    done = [] if partitions is None else [counted(partitions, "partition")]
    say(f"{name} has {', '.join(done + [format_changes(changes)] * bool(changes))}")


@app.command("add-partitions", short_help="Add partitions to a topic.")
def add_partitions(
    name: Name,
    number: Annotated[int, number_option("--num", "N", "How many to add.", 1, others=("-n",))],
    disable_rack_aware: DisableRackAware = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Add N partitions to a topic; `topic alter --partitions` sets how many it has."""
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        count = len(connect.existing_topic(admin, name).partitions) + number
        admin.create_partitions(name, count, rack_aware=not disable_rack_aware)
    if style is not Format.TABLE:
        print_object({"topic": name, "partitions": count}, style)
    else:
        say(f"{name} has {counted(count, 'partition')}")


app.command("trim", short_help="Delete messages before an offset or a time.")(topic_trim.trim)
app.command("trim-prefix", hidden=True)(topic_trim.trim)


@app.command(short_help="Delete a topic with all its messages.")
def delete(
    name: Name,
    if_exists: IfExists = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Delete a topic with all its messages, and wait until it is deleted.

    With --zookeeper it is only marked for deletion there, without the brokers and without waiting.
    """
    if name in INTERNAL_TOPICS:
        # As Kafka's own tool of 0.10.1; brokers would delete them on request.
        raise ConfigError("NAME", name, INTERNAL_TOPIC)
    if zookeeper:
        with connect.zookeeper_store(zookeeper, bootstrap, data_dir, command_config) as store:
            mark_for_deletion(store, name, if_exists, style)
        return
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        error = admin.delete_topics([name])[name]
    if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and if_exists:
        nothing_done(name, "does not exist", {"deleted": False}, style)
        return
    if error is not None:
        raise error
    if style is not Format.TABLE:
        print_object({"topic": name, "deleted": True}, style)
    else:
        say(f"deleted {name}")


def mark_for_deletion(store: Store, name: str, if_exists: bool, style: Format) -> None:
    """Mark a topic in ZooKeeper for the controller to delete, and print the lines of 0.10.1's tool."""
    from minikafka.clients.admin.zookeeper import topics

    try:
        new = topics.mark_for_deletion(store, name)
    except BrokerError:
        if not if_exists:
            raise
        nothing_done(name, "does not exist", {"marked": False}, style)
        return
    if style is not Format.TABLE:
        print_object({"topic": name, "marked": True}, style)
    elif new:
        say(f"Topic {name} is marked for deletion.")
        say(NO_IMPACT)
    else:
        say(f"Topic {name} is already marked for deletion.")


def nothing_done(name: str, state: str, outcome: dict[str, object], style: Format) -> None:
    """Report that there was nothing to do, which is not an error."""
    note(f"minikafka: topic {name!r} {state}; nothing was changed")
    if style is not Format.TABLE:
        print_object({"topic": name, **outcome}, style)
