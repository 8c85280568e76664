"""``minikafka cluster``: brokers, data directories and health of the cluster."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import ConfigError
from minikafka.base.ids import topic_id_text
from minikafka.base.text import counted
from minikafka.cli import cluster_health
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    COMMAND_CONFIG_OPTION,
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    RequiredZooKeeper,
    ZooKeeperDataDir,
    number_option,
    text_argument,
)
from minikafka.cli.terminal.output import note, print_object, print_rows, say
from minikafka.cli.terminal.signals import stop_on_signal

if TYPE_CHECKING:
    from minikafka.clients.network.metadata import TopicMetadata

app = typer.Typer(help="Show the brokers, data directories and health of the cluster.", no_args_is_help=True)


@app.command(short_help="Show the cluster id and the brokers.")
def describe(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show the cluster id and the brokers: addresses, the controller, and how much each leads."""
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        found = admin.describe_cluster()
    partitions = [partition for topic in found.topics.values() for partition in topic.partitions]
    rows = [
        {
            "broker": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.broker_id == found.controller_id,
            "leads": sum(partition.leader_id == broker.broker_id for partition in partitions),
            "replicas": sum(broker.broker_id in partition.replicas for partition in partitions),
        }
        for _, broker in sorted(found.brokers.items())
    ]
    totals = {"topics": len(found.topics), "partitions": len(partitions)}
    if style in {Format.JSON, Format.YAML}:
        print_object({"cluster": found.cluster_id, **totals, "brokers": rows}, style)
        return
    if style is Format.TABLE:
        counts = (counted(number, what.removesuffix("s")) for what, number in totals.items())
        say(f"cluster {found.cluster_id} with {' and '.join(counts)}")
    print_rows(rows, ["broker", "host", "port", "rack", "controller", "leads", "replicas"], style)


@app.command(short_help="Show brokers, topics and partitions.")
def metadata(
    topics: Annotated[list[str] | None, text_argument("TOPIC", "Only these. [all]")] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show what clients learn of the cluster: its brokers, the controller, and the topics with leaders,
    replicas and in-sync replicas. JSON and YAML are one object; CSV has the partitions.
    """
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        found = admin.describe_cluster()
        if topics:
            found = replace(found, topics={name: connect.existing_topic(admin, name) for name in topics})
    brokers = [
        {"broker": broker.broker_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
        for _, broker in sorted(found.brokers.items())
    ]
    described = [topic for _, topic in sorted(found.topics.items())]
    if style in {Format.JSON, Format.YAML}:
        print_object(
            {
                "cluster": found.cluster_id,
                "controller": found.controller_id,
                "brokers": brokers,
                "topics": [_topic_object(topic) for topic in described],
            },
            style,
        )
        return
    if style is Format.TABLE:
        say(f"cluster {found.cluster_id}, controller {found.controller_id}")
        print_rows(brokers, ["broker", "host", "port", "rack"], style)
        say()
    partitions = [partition for topic in described for partition in topic.partitions]
    columns = ["topic", "partition", "leader", "replicas", "in_sync"]
    print_rows(cluster_health.partition_rows(partitions), columns, style, nothing="there are no topics")


def _topic_object(topic: TopicMetadata) -> dict[str, object]:
    partitions = [
        {name: value for name, value in row.items() if name != "topic"}
        for row in cluster_health.partition_rows(topic.partitions)
    ]
    return {
        "topic": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": partitions,
    }


@app.command("log-dirs", short_help="Show the data directories of brokers and their sizes.")
def log_dirs(
    broker: Annotated[
        list[int] | None, number_option("--broker", "ID", "A broker id; may be repeated. [all]", 0)
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="T", help="Only this topic; may be repeated. [all]")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Show the data directories of brokers with the size of their disks and of each log in them, in bytes.

    Offset lag: the number of offsets from the end of a log to its partition's high watermark. Future: a log
    that is being moved to another directory.

    Status 1: a directory is offline, or a --topic has no log.
    """
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        found = admin.describe_log_dirs(broker or None)
    rows: list[dict[str, object]] = []
    for log_dir in found:
        error = None if log_dir.error is None else log_dir.error.code.name
        where = {"broker": log_dir.broker_id, "log_dir": log_dir.path, "error": error}
        where |= {"disk_size": log_dir.total_bytes, "disk_free": log_dir.usable_bytes}
        replicas = [
            replica for replica in log_dir.replicas if not topic or replica.topic_partition.topic in topic
        ]
        rows += [
            {
                **where,
                "topic": replica.topic_partition.topic,
                "partition": replica.topic_partition.partition,
                "size": replica.size_bytes,
                "offset_lag": replica.offset_lag,
                "future": replica.is_future,
            }
            for replica in replicas
        ]
        if not replicas:
            rows.append(where)
    columns = ["broker", "log_dir", "error", "disk_size", "disk_free"]
    columns += ["topic", "partition", "size", "offset_lag", "future"]
    if not any(row.get("error") for row in rows):
        columns.remove("error")
    print_rows([dict.fromkeys(columns) | row for row in rows], columns, style)
    there = {replica.topic_partition.topic for log_dir in found for replica in log_dir.replicas}
    missing = [name for name in topic or () if name not in there]
    for name in missing:
        note(f"minikafka: topic {name!r} has no log in these directories")
    return 1 if missing or any(log_dir.error is not None for log_dir in found) else 0


@app.command(short_help="Check the partitions and the brokers.")
def health(
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running, and print every change until stopped.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Check that all partitions have a leader and are in sync, all data directories are online, and
    transactions are available. List the brokers.

    Status 0: healthy. 1: not.
    """
    at = f" --bootstrap {bootstrap}" if connect.is_typed(bootstrap) else ""
    if data_dir is not None:
        at = f" --data-dir {shlex.quote(str(data_dir))}"
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        if not watch:
            now = admin.health()
            cluster_health.print_health(now, style, at)
            return 0 if now.healthy else 1
        healthy = False
        with stop_on_signal():
            for state in cluster_health.changes(admin):
                healthy = state is not None and state.healthy
                cluster_health.print_change(state, style, at)
    return 0 if healthy else 1


@app.command("protect-zookeeper", short_help="Give existing znodes the ACLs of zookeeper.set.acl.")
def protect_zookeeper(
    zookeeper: RequiredZooKeeper = None,
    data_dir: ZooKeeperDataDir = None,
    command_config: CommandConfig = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Give the znodes that are open to everybody the ACLs that brokers with zookeeper.set.acl give new ones.

    As Kafka's zookeeper-security-migration. Restart all brokers with the credentials first: the others lose
    access. The file of --command-config has zookeeper.set.acl and the credentials.
    """
    from minikafka.registry.zookeeper_security import AclPolicy

    with connect.zookeeper_store(zookeeper, None, data_dir, command_config) as store:
        if store.security.acl is AclPolicy.OPEN:
            allowed = "must name a file with zookeeper.set.acl and the credentials of the brokers"
            raise ConfigError(COMMAND_CONFIG_OPTION, command_config, allowed)
        changed = store.set_acls()
    if style is not Format.TABLE:
        print_object({"protected": changed}, style)
    else:
        say(f"protected {counted(changed, 'znode')}")
