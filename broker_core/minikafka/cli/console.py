"""``minikafka console``: serves the web console of a cluster."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.types import one_of
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    GroupsZooKeeper,
    number_option,
    value_option,
)
from minikafka.cli.terminal.output import note, say

if TYPE_CHECKING:
    from minikafka.clients.network.cluster import ClusterClient
    from minikafka.registry.store import Store

TOKEN_VARIABLE = "MINIKAFKA_CONSOLE_TOKEN"
TOKEN_CHARACTERS_MIN = 16
REGISTRY_VARIABLE = "MINIKAFKA_SCHEMA_REGISTRY"
REQUEST_TIMEOUT_MS = 5_000
"""The longest wait for a response: a page is shown without what does not come."""
_LOGIN = one_of("none", "token", "sasl")


def parse_login(text: str) -> str:
    """Parse ``--login``. Raise ConfigError."""
    login: str = _LOGIN.parse("--login", text)
    return login


LoginWay = Annotated[
    str,
    typer.Option(
        "--login",
        metavar="HOW",
        parser=parse_login,
        help=f"none; token: {TOKEN_VARIABLE}, or one that is printed; sasl: users of the cluster.",
    ),
]
SchemaRegistry = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        envvar=REGISTRY_VARIABLE,
        metavar="URL",
        help="Show values with a schema of this registry: http://HOST:PORT, also with USER:PASSWORD@.",
        show_default=False,
    ),
]


def console(
    host: Annotated[
        str,
        typer.Option("--host", metavar="H", help="The address to listen at; beyond loopback with --login."),
    ] = "127.0.0.1",
    port: Annotated[int, number_option("--port", "P", "The port; 0 picks a free one.", 0, 65_535)] = 9090,
    login: LoginWay = "none",
    allowed_hosts: Annotated[
        list[str] | None,
        value_option("--allowed-host", "NAME", "A name in the address of the console; may be repeated."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Also produce, reset groups and elect leaders.")
    ] = False,
    schema_registry: SchemaRegistry = None,
    zookeeper: GroupsZooKeeper = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
) -> None:
    """Serve a web console of the cluster until Ctrl-C or SIGTERM; print one `ready` line.

    It is read-only without --allow-changes, and only programs on this host reach it without --host. It needs
    the extra minikafka[console].
    """
    try:
        from minikafka.console.schemas import Schemas
        from minikafka.console.server import serve
        from minikafka.console.settings import ConsoleSettings, Login
    except ModuleNotFoundError as error:
        raise MinikafkaError(
            f"the console needs {error.name}; install it with: pip install 'minikafka[console]'"
        ) from None

    way = Login(login)
    if way is Login.SASL and zookeeper:
        reason = "conflicts with --login sasl: ZooKeeper knows nothing of the rights of the users who log in"
        raise ConfigError("--zookeeper", zookeeper, reason)
    schemas = Schemas.at(schema_registry) if schema_registry else None
    with _store(zookeeper, data_dir, command_config) as store:
        if store is not None and zookeeper and not connect.is_typed(bootstrap):
            bootstrap = connect.registered_brokers(store, zookeeper, command_config)
        target = _target(bootstrap, data_dir, command_config, own_login=way is not Login.SASL)
        if way is Login.SASL:
            target.config.security.as_user("any", "any")  # raises if nobody could log in
        else:
            with connect.cluster_client(bootstrap, data_dir, command_config):
                pass  # raises if the cluster cannot be reached
        settings = ConsoleSettings(
            _client_of(target),
            host,
            port,
            way,
            _token() if way is Login.TOKEN else "",
            allow_changes,
            tuple(allowed_hosts or ()),
            store,
            schemas,
            _option(bootstrap, data_dir),
        )
        settings.check()
        if way is Login.TOKEN and not os.environ.get(TOKEN_VARIABLE):
            note(f"minikafka: log in with the token {settings.token}")
        serve(settings, lambda address: say(f"ready {address}", flush=True))


def _target(
    bootstrap: str | None, data_dir: Path | None, command_config: str | None, *, own_login: bool
) -> connect.Target:
    """Return the cluster, with a time-out for pages."""
    target = connect.target_of(bootstrap, data_dir, command_config, own_login=own_login)
    timeout_ms = min(target.config.request_timeout_ms, REQUEST_TIMEOUT_MS)
    return replace(target, config=replace(target.config, request_timeout_ms=timeout_ms))


def _client_of(target: connect.Target) -> Callable[[str | None, str | None], ClusterClient]:
    """Return a function that makes a client: as the options say, or as a user with a password."""

    def client(user: str | None, password: str | None) -> ClusterClient:
        if user is None or password is None:
            return target.client()
        security = target.config.security.as_user(user, password)
        return replace(target, config=replace(target.config, security=security)).client()

    return client


def _token() -> str:
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token and len(token) < TOKEN_CHARACTERS_MIN:
        raise ConfigError(TOKEN_VARIABLE, None, f"must have at least {TOKEN_CHARACTERS_MIN} characters")
    return token or secrets.token_urlsafe(24)


@contextlib.contextmanager
def _store(
    zookeeper: str | None, data_dir: Path | None, command_config: str | None
) -> Iterator[Store | None]:
    """Yield the ZooKeeper that an option names, if one does."""
    if not zookeeper and data_dir is None:
        yield None
        return
    with connect.zookeeper_store(zookeeper, None, data_dir, command_config) as store:
        yield store


def _option(bootstrap: str | None, data_dir: Path | None) -> str:
    """Return the option that names this cluster, for the commands that pages show."""
    if data_dir is not None:
        return f" --data-dir {shlex.quote(str(data_dir))}"
    return f" --bootstrap {shlex.quote(bootstrap)}" if bootstrap else ""
