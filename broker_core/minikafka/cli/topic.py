"""``minikafka topic``: create, list, describe, alter and delete topics."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from minikafka.base.errors import ConfigError
from minikafka.cli.config import changes_of, check_deleted, told
from minikafka.cli.options import Bootstrap, DataDir, Format, OutputFormat, key_values

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
OWN_TOPIC = "holds the offsets of all groups, and belongs to the brokers; `group delete` deletes one group"


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", help="How many partitions.", min=1)] = 1,
    replicas: Annotated[int, typer.Option("--replicas", help="How many brokers hold each.", min=1)] = 1,
    config: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--config", metavar="K=V", help="A topic config; may be given again.", show_default=False
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Make a topic."""
    configs = key_values("--config", config)

    from minikafka.cli.connect import connected
    from minikafka.cli.output import counted, print_json
    from minikafka.clients.admin import Admin, NewTopic

    with connected(bootstrap, data_dir, writes=True) as cluster:
        Admin(cluster).create_topic(NewTopic(name, partitions, replicas, configs=configs))
    if style is Format.JSON:
        print_json({"topic": name, "partitions": partitions, "replicas": replicas, "config": configs})
    else:
        print(f"created {name} with {counted(partitions, 'partition')}")


@app.command("list")
def list_(bootstrap: Bootstrap = None, data_dir: DataDir = None, style: OutputFormat = Format.TABLE) -> None:
    """Names of all topics, with their partitions."""
    from minikafka.cli.connect import connected
    from minikafka.cli.output import print_rows

    with connected(bootstrap, data_dir) as cluster:
        topics = cluster.metadata(None, refresh=True).topics
    rows = [
        {"topic": name, "partitions": len(topic.partitions), "internal": topic.is_internal}
        for name, topic in sorted(topics.items())
    ]
    print_rows(rows, ["topic", "partitions"], style)


@app.command()
def describe(
    name: Name, bootstrap: Bootstrap = None, data_dir: DataDir = None, style: OutputFormat = Format.TABLE
) -> None:
    """Leader, replicas and offsets of each partition of a topic."""
    from minikafka.cli.connect import connected, existing_topic
    from minikafka.cli.output import print_rows
    from minikafka.clients.admin import EARLIEST, LATEST, Admin

    with connected(bootstrap, data_dir) as cluster:
        admin = Admin(cluster)
        topic = existing_topic(admin, name)
        led = [one.topic_partition for one in topic.partitions if one.leader_id >= 0]
        first = admin.offsets(dict.fromkeys(led, EARLIEST))
        end = admin.offsets(dict.fromkeys(led, LATEST))
    rows = [
        {
            "topic": name,
            "partition": one.topic_partition.partition,
            "leader": one.leader_id if one.leader_id >= 0 else None,
            "replicas": list(one.replicas),
            "in_sync": list(one.in_sync),
            "start_offset": first.get(one.topic_partition),
            "end_offset": end.get(one.topic_partition),
        }
        for one in topic.partitions
    ]
    print_rows(rows, ["partition", "leader", "replicas", "in_sync", "start_offset", "end_offset"], style)


@app.command()
def alter(
    name: Name,
    partitions: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--partitions", help="How many it shall have: more than now.", min=1, show_default=False
        ),
    ] = None,
    config: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--config", metavar="K=V", help="A topic config; may be given again.", show_default=False
        ),
    ] = None,
    delete_config: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--delete-config", metavar="K", help="Back to the broker's value.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Give a topic more partitions, or other settings."""
    changes = changes_of("--delete-config", key_values("--config", config), delete_config)
    if partitions is None and not changes:
        options = "--partitions N, --config K=V or --delete-config K"
        raise ConfigError("NAME", name, f"say what to alter of it: {options}")

    from minikafka.cli.connect import connected, existing_topic
    from minikafka.cli.output import counted, print_json
    from minikafka.clients.admin import Admin
    from minikafka.wire.apis.describe_configs import ResourceType

    with connected(bootstrap, data_dir) as cluster:
        admin = Admin(cluster)
        existing_topic(admin, name)
        if changes:
            check_deleted(admin, ResourceType.TOPIC, name, "--delete-config", delete_config)
            admin.change_configs(ResourceType.TOPIC, name, changes)
        if partitions is not None:
            admin.create_partitions(name, partitions)
    if style is Format.JSON:
        print_json({"topic": name, "partitions": partitions, "config": changes})
        return
    done = [] if partitions is None else [counted(partitions, "partition")]
    print(f"{name} has {', '.join(done + [told(changes)] * bool(changes))}")


@app.command()
def delete(
    name: Name, bootstrap: Bootstrap = None, data_dir: DataDir = None, style: OutputFormat = Format.TABLE
) -> None:
    """Delete a topic with all its messages."""
    from minikafka.cli.connect import connected
    from minikafka.cli.output import print_json
    from minikafka.clients.admin import Admin

    with connected(bootstrap, data_dir) as cluster:
        known = cluster.metadata(None).topics.get(name)
        if known is not None and known.is_internal:
            # As Kafka's own tool of 0.10.1 does.
            raise ConfigError("NAME", name, OWN_TOPIC)
        error = Admin(cluster).delete_topics([name])[name]
    if error is not None:
        raise error
    if style is Format.JSON:
        print_json({"topic": name, "deleted": True})
    else:
        print(f"deleted {name}")
