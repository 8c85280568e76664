"""``minikafka config``: settings of topics, brokers, clients, users and addresses, read and changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.property_files import key_values
from minikafka.base.config.types import whole_number
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import redact, redact_all
from minikafka.base.text import counted
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    ZooKeeper,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import note, print_object, print_rows, say

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.client_quotas import QuotasBackend
    from minikafka.wire.apis.describe_configs import ConfigResourceType

MIN_ISR = "min.insync.replicas"

app = typer.Typer(help="Read and change settings of topics, brokers and clients.", no_args_is_help=True)


class EntityType(str, Enum):
    """The type of an entity that has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    CLIENT = "client"
    USER = "user"
    IP = "ip"

    def __str__(self) -> str:
        return self.value  # older releases of typer look up the parsed value by its text

    @property
    def plural(self) -> str:
        """The plural, as in ZooKeeper paths."""
        return f"{self.value}s"


def parse_kind(text: str) -> EntityType:
    """Parse the first argument. Raise ConfigError."""
    if text not in list(EntityType):
        known = "must be topic, broker, client, user or ip"
        raise ConfigError("KIND", text, f"{known}, before the name: `config get topic {text}`")
    return EntityType(text)


Of = Annotated[
    EntityType, typer.Argument(parser=parse_kind, metavar="topic|broker|client|user|ip", show_default=False)
]
Name = Annotated[str, text_argument("NAME", "A topic, a user, an address, or the id of a broker or client.")]
User = Annotated[
    str | None,
    value_option("--user", "U", "For clients: only the clients with this id of user U, or of '<default>'."),
]


@app.command()
def get(
    kind: Of,
    name: Name,
    user: User = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include settings with their default value.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show the settings that differ from the default, and their sources.

    For clients, users and addresses, the quotas: `client ID`, `user NAME`, `ip ADDRESS`, or '<default>' for
    all without their own.
    With --zookeeper, the settings of a broker that are stored there: replication throttles.
    """
    from minikafka.cli.config_entities import Owner

    if is_entity(kind, user, zookeeper):
        owner = Owner(kind.plural, name, user)
        owner.check_changes({})
        with _quotas(bootstrap, zookeeper, data_dir, command_config) as backend:
            found = owner.rows(backend, everything=everything)
            print_rows(found, ["setting", "value", "source"], style, nothing=no_settings_text(kind, name))
        return

    from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource

    resource = resource_name(kind, name)
    with connect.admin_client(bootstrap, data_dir, command_config) as admin:
        settings = admin.describe_configs(ConfigResourceType[kind.name], resource)
    rows = [
        {
            kind.value: name,
            "setting": setting.name,
            "value": redact(setting.name, setting.value),
            "source": setting.source.name.lower().replace("_", " "),
            "secret": setting.is_sensitive,
        }
        for setting in settings
        if everything or setting.source is not ConfigSource.DEFAULT
    ]
    print_rows(rows, ["setting", "value", "source"], style, nothing=no_settings_text(kind, name))


def resource_name(kind: EntityType, name: str) -> str:
    """Return the name of a resource in requests, in which all brokers together have none.

    Raises ConfigError if it is not the id of a broker.
    """
    from minikafka.registry.node import id_in
    from minikafka.registry.users import DEFAULT_ENTITY

    if kind is not EntityType.BROKER:
        return name
    if name == DEFAULT_ENTITY:
        return ""
    if id_in(name) is None:
        raise ConfigError("NAME", name, f"must be the id of a broker, or {DEFAULT_ENTITY} for all brokers")
    return name


def no_settings_text(kind: EntityType, name: str) -> str:
    """Return the note for an entity without settings of its own."""
    return f"{kind.value} {name!r} has no settings of its own; --all lists the defaults"


@app.command("set")
def set_(
    kind: Of,
    name: Name,
    settings: Annotated[list[str] | None, text_argument("K=V")] = None,
    user: User = None,
    delete: Annotated[
        list[str] | None, value_option("--delete", "K", "Reset to the default; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Change settings. Running brokers apply them at once.

    For clients and users, the quotas producer_byte_rate and consumer_byte_rate, in bytes per second,
    request_percentage, of one thread's time, and controller_mutation_rate, in partitions per second:
    `client ID`, `user NAME`, or '<default>' for all without their own. A user's quota is shared by all its
    clients, and wins over those of client ids. For addresses (`ip ADDRESS`), connection_creation_rate, in
    new connections per second. For a broker, or all ('<default>'), the defaults of topics, by the broker's
    names of them, and the limits of connections; for a broker alone the throttles of copies, in bytes per
    second: leader.replication.throttled.rate, follower.replication.throttled.rate, and
    replica.alter.log.dirs.io.max.bytes.per.second between its directories.
    """
    changes = changes_of("--delete", key_values("K=V", settings), delete)
    if not changes:
        raise ConfigError("K=V", None, "required; or set --delete K")

    from minikafka.cli.config_entities import Owner
    from minikafka.wire.apis.describe_configs import ConfigResourceType

    named: dict[str, object] = {kind.value: name}
    if is_entity(kind, user, zookeeper):
        owner = Owner(kind.plural, name, user)
        named = owner.named()
        owner.check_changes(changes)
        with _quotas(bootstrap, zookeeper, data_dir, command_config) as backend:
            owner.change(backend, changes)
    else:
        of, resource = ConfigResourceType[kind.name], resource_name(kind, name)
        with connect.admin_client(bootstrap, data_dir, command_config) as admin:
            check_settings_exist(admin, of, resource, "--delete", delete)
            admin.change_configs(of, resource, changes)
            if of is ConfigResourceType.TOPIC and MIN_ISR in changes:
                warn_of_too_few_replicas(name, changes, connect.existing_topic(admin, name).fewest_replicas)
    if style is not Format.TABLE:
        print_object({**named, "config": redact_all(changes)}, style)
    else:
        say(f"{name}{f' of user {user}' * bool(user)} has {format_changes(changes)}")


def _quotas(
    bootstrap: str | None, zookeeper: str | None, data_dir: Path | None, command_config: str | None
) -> AbstractContextManager[QuotasBackend]:
    """Return the quotas as the brokers know them, or with --zookeeper all settings that are stored there."""
    from minikafka.clients.admin.client_quotas import BrokerQuotas, ZooKeeperConfigs

    return connect.backend(BrokerQuotas, ZooKeeperConfigs, bootstrap, zookeeper, data_dir, command_config)


def is_entity(kind: EntityType, user: str | None, zookeeper: str | None) -> bool:
    """Return True for quotas, and for all settings in ZooKeeper. Raise ConfigError for topics there."""
    if user is not None and kind is not EntityType.CLIENT:
        allowed = f"is only for clients: `client ID --user {user or 'U'}`, or `user NAME` for all its clients"
        raise ConfigError("--user", user, allowed)
    if zookeeper and kind is EntityType.TOPIC:
        allowed = "is only for clients, users, addresses and brokers; for topics use --bootstrap"
        raise ConfigError("--zookeeper", zookeeper, allowed)
    return kind in {EntityType.CLIENT, EntityType.USER, EntityType.IP} or bool(zookeeper)


def changes_of(option: str, settings: dict[str, str], deleted: list[str] | None) -> dict[str, str | None]:
    """Return the new values, None for deleted settings. Raise ConfigError if a setting is both."""
    for key in deleted or ():
        if key in settings:
            raise ConfigError(option, key, "cannot be set and deleted by the same command")
        if not key.strip() or "=" in key:
            raise ConfigError(option, key, "must be the name of a setting")
    return {**settings, **dict.fromkeys(deleted or ())}


def check_settings_exist(
    admin: Admin, of: ConfigResourceType, name: str, option: str, deleted: Sequence[str] | None
) -> None:
    """Raise ConfigError if a deleted setting does not exist: brokers accept unknown names."""
    if not deleted:
        return
    known = {setting.name for setting in admin.describe_configs(of, name)}
    for key in deleted:
        if key not in known:
            raise ConfigError(
                option,
                key,
                f"{name or 'the cluster'} has no such setting; `config get --all` lists its settings",
            )


def warn_of_too_few_replicas(topic: str, changes: Mapping[str, str | None], replicas: int) -> None:
    """Print a note if a topic's new ``min.insync.replicas`` exceeds its replicas, which Kafka allows."""
    least = whole_number(changes.get(MIN_ISR) or "")
    if least is not None and least > replicas:
        note(
            f"minikafka: {MIN_ISR}={least} is more than {topic} has ({counted(replicas, 'replica')} of "
            f"each partition): every write with acks=all is refused; set it to {replicas} or less, or add "
            "replicas with `minikafka reassign`"
        )


def format_changes(changes: dict[str, str | None]) -> str:
    """Return ``retention.ms=5, segment.bytes by default``."""
    return ", ".join(
        f"{key} by default" if value is None else f"{key}={redact(key, value)}"
        for key, value in changes.items()
    )
