"""``minikafka config``: settings of topics, brokers and clients, read and changed while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.config.parsers import whole_number
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import redact, redact_all
from minikafka.cli.options import Bootstrap, DataDir, Format, OutputFormat, ZooKeeper, key_values

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.wire.apis.describe_configs import ResourceType

MIN_ISR = "min.insync.replicas"

app = typer.Typer(help="Read and change settings of topics, brokers and clients.", no_args_is_help=True)


class Kind(str, Enum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    CLIENT = "client"

    @property
    def plural(self) -> str:
        """As in paths of ZooKeeper."""
        return f"{self.value}s"


Of = Annotated[Kind, typer.Argument(metavar="topic|broker|client", show_default=False)]
Name = Annotated[
    str, typer.Argument(metavar="NAME", show_default=False, help="A topic, or the id of a broker or client.")
]


@app.command()
def get(
    kind: Of,
    name: Name,
    everything: Annotated[bool, typer.Option("--all", help="Those that have their default too.")] = False,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Settings that are not the default, and where they come from.

    Of clients, the quotas: `client ID`, or `client '<default>'` for all that have none of their own. With
    --zookeeper, of a broker what stands there: the rates of replication.
    """
    from minikafka.cli import entity_configs
    from minikafka.cli.connect import cluster_client, zookeeper_store
    from minikafka.cli.output import print_rows

    if uses_zookeeper(kind, zookeeper):
        entity_configs.check_changes(kind.plural, name, {})
        with zookeeper_store(zookeeper, bootstrap, data_dir) as store:
            found = entity_configs.entity_rows(store, kind.plural, name, everything=everything)
            print_rows(found, ["setting", "value", "source"], style, nothing=no_settings_text(kind, name))
        return

    from minikafka.clients.admin.admin import Admin
    from minikafka.wire.apis.describe_configs import ConfigSource, ResourceType

    with cluster_client(bootstrap, data_dir) as cluster:
        settings = Admin(cluster).describe_configs(ResourceType[kind.name], name)
    rows = [
        {
            kind.value: name,
            "setting": one.name,
            "value": redact(one.name, one.value),
            "source": one.source.name.lower().replace("_", " "),
            "secret": one.is_sensitive,
        }
        for one in settings
        if everything or one.source is not ConfigSource.DEFAULT
    ]
    print_rows(rows, ["setting", "value", "source"], style, nothing=no_settings_text(kind, name))


def no_settings_text(kind: Kind, name: str) -> str:
    """What is said where nothing was set."""
    return f"{kind.value} {name!r} has no settings of its own; --all lists the defaults"


@app.command("set")
def set_(
    kind: Of,
    name: Name,
    settings: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="K=V", show_default=False),
    ] = None,
    delete: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--delete", metavar="K", help="Back to the default; may be given again.", show_default=False
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Change settings. A running broker acts on them at once.

    Of clients, the quotas producer_byte_rate and consumer_byte_rate, in bytes a second: `client ID`, or
    `client '<default>'` for all that have none of their own. Of brokers, the rates of replication,
    leader.replication.throttled.rate and follower.replication.throttled.rate, in bytes a second.
    """
    changes = changes_of("--delete", key_values("K=V", settings), delete)
    if not changes:
        raise ConfigError("K=V", None, "give settings to change, or --delete K")

    from minikafka.cli import entity_configs
    from minikafka.cli.connect import cluster_client, existing_topic, zookeeper_store
    from minikafka.cli.output import print_json, say
    from minikafka.clients.admin.admin import Admin
    from minikafka.wire.apis.describe_configs import ResourceType

    if uses_zookeeper(kind, zookeeper):
        entity_configs.check_changes(kind.plural, name, changes)
        with zookeeper_store(zookeeper, bootstrap, data_dir) as store:
            entity_configs.change_entity(store, kind.plural, name, changes)
    else:
        with cluster_client(bootstrap, data_dir) as cluster:
            admin, of = Admin(cluster), ResourceType[kind.name]
            check_settings_exist(admin, of, name, "--delete", delete)
            admin.change_configs(of, name, changes)
            if of is ResourceType.TOPIC and MIN_ISR in changes:
                warn_of_too_few_replicas(name, changes, existing_topic(admin, name).fewest_replicas)
    if style is Format.JSON:
        print_json({kind.value: name, "config": redact_all(changes)})
    else:
        say(f"{name} has {format_changes(changes)}")


def uses_zookeeper(kind: Kind, zookeeper: str | None) -> bool:
    """Whether the settings are read and changed there, past the brokers. ConfigError for topics."""
    if zookeeper and kind is Kind.TOPIC:
        raise ConfigError("--zookeeper", zookeeper, "is for clients and brokers; for topics give --bootstrap")
    return kind is Kind.CLIENT or bool(zookeeper)


def changes_of(option: str, settings: dict[str, str], deleted: list[str] | None) -> dict[str, str | None]:
    """What is set, and None for what is deleted. Raises ConfigError where a setting is both."""
    for key in deleted or ():
        if key in settings:
            raise ConfigError(option, key, "is set by the same command: do one of them")
        if not key.strip() or "=" in key:
            raise ConfigError(option, key, "must be the name of a setting")
    return {**settings, **dict.fromkeys(deleted or ())}


def check_settings_exist(
    admin: Admin, of: ResourceType, name: str, option: str, deleted: Sequence[str] | None
) -> None:
    """ConfigError for a setting that there is not: brokers take it as one that has its default already."""
    if not deleted:
        return
    known = {one.name for one in admin.describe_configs(of, name)}
    for key in deleted:
        if key not in known:
            raise ConfigError(
                option, key, f"{name} has no such setting; `config get --all` lists what it has"
            )


def warn_of_too_few_replicas(topic: str, changes: Mapping[str, str | None], replicas: int) -> None:
    """Say so where a topic's new ``min.insync.replicas`` is more than it has replicas, which Kafka allows."""
    from minikafka.base.text import counted
    from minikafka.cli.output import note

    least = whole_number(changes.get(MIN_ISR) or "")
    if least is not None and least > replicas:
        note(
            f"minikafka: {MIN_ISR}={least} is more than {topic} has ({counted(replicas, 'replica')} of "
            f"each partition): every write with acks=all is refused; set it to {replicas} or less, or give "
            "the partitions more replicas with `minikafka reassign`"
        )


def format_changes(changes: dict[str, str | None]) -> str:
    """``retention.ms=5, segment.bytes by default``."""
    return ", ".join(
        f"{key} by default" if value is None else f"{key}={redact(key, value)}"
        for key, value in changes.items()
    )
