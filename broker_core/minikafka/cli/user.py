"""``minikafka user``: users with passwords (SCRAM credentials), at the brokers or in ZooKeeper."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.base.text import is_unicode
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    ZooKeeper,
    number_option,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import note, print_object, print_rows, say

if TYPE_CHECKING:
    from minikafka.clients.admin.users import NewPassword, UsersBackend
    from minikafka.security.sasl.scram import ScramMechanism

app = typer.Typer(help="Add, list and delete users with passwords (SASL/SCRAM).", no_args_is_help=True)

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16_384
"""The bounds of Kafka's tool."""

Name = Annotated[str, text_argument("NAME")]
Mechanisms = Annotated[
    list[str] | None,
    value_option("--mechanism", "M", "SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. [both]"),
]
Iterations = Annotated[
    int,
    number_option(
        "--iterations",
        "N",
        f"The work of a guess, and of a login: {MIN_ITERATIONS} to {MAX_ITERATIONS}.",
        MIN_ITERATIONS,
        MAX_ITERATIONS,
    ),
]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from stdin, one line.")
]
PasswordOption = Annotated[
    str | None,
    value_option(
        "--password",
        "P",
        "The password. Others on this host can see it in the list of processes, and the shell may keep it "
        "in its history: use the prompt or --password-stdin.",
        str,
    ),
]


@app.command()
def add(
    name: Name,
    password_stdin: PasswordStdin = False,
    password: PasswordOption = None,
    mechanisms: Mechanisms = None,
    iterations: Iterations = MIN_ITERATIONS,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Add a user. Asks for the password, unless an option gives it. Brokers know the user at once.

    With --zookeeper also before the first broker of a cluster runs. Status 1 if the user exists.
    """
    from minikafka.clients.admin.users import add_user

    wanted = _parsed(mechanisms) or _all_mechanisms()
    new = _new_password(name, password, iterations, from_stdin=password_stdin)
    with _users(bootstrap, zookeeper, data_dir, command_config, may_be_new=True) as users:
        add_user(users, name, new, os.urandom, wanted)
    _print_done("added user", name, wanted, style)


@app.command()
def passwd(
    name: Name,
    password_stdin: PasswordStdin = False,
    password: PasswordOption = None,
    mechanisms: Annotated[
        list[str] | None,
        value_option("--mechanism", "M", "Only for this mechanism; may be repeated. [all that the user has]"),
    ] = None,
    iterations: Iterations = MIN_ITERATIONS,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Change a user's password. Connections that are open stay open. Status 1 if there is no such user.

    With --data-dir of a secured cluster, that of its first user also in the files of D/security.
    """
    from minikafka.clients.admin.users import change_password
    from minikafka.embedded import secured_directory
    from minikafka.security.sasl.scram import ScramMechanism

    wanted = _parsed(mechanisms)
    new = _new_password(name, password, iterations, from_stdin=password_stdin)
    with _users(bootstrap, zookeeper, data_dir, command_config) as users:
        changed = change_password(users, name, new, os.urandom, wanted)
    if data_dir is not None and ScramMechanism.SCRAM_SHA_512 in changed:
        secured_directory.write_first_password(data_dir, name, new.password)
    _print_done("changed the password of", name, changed, style)


@app.command("list")
def list_(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """List the users and their mechanisms."""
    with _users(bootstrap, zookeeper, data_dir, command_config) as users:
        found = users.credentials()
    rows = [
        {
            "user": credential.user,
            "mechanism": credential.mechanism and credential.mechanism.value,
            "iterations": credential.iterations,
        }
        for credential in found
    ]
    print_rows(rows, ["user", "mechanism", "iterations"], style, nothing="no users with passwords")
    for credential in found:
        if credential.iterations is None:
            user = credential.user
            which = f"the {credential.mechanism.value}" if credential.mechanism else "a"
            note(
                f"minikafka: {which} credential of user {user} is invalid; set the password with "
                f"`minikafka user passwd {user}`"
            )


@app.command()
def delete(
    name: Name,
    mechanisms: Annotated[
        list[str] | None,
        value_option("--mechanism", "M", "Only for this mechanism; may be repeated. [all that the user has]"),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Delete a user's passwords; quotas and access rules stay. Status 1 if there is no such user.

    Connections that are open stay open.
    """
    from minikafka.clients.admin.users import delete_user
    from minikafka.embedded import secured_directory

    wanted = _parsed(mechanisms)
    if data_dir is not None:
        secured_directory.check_may_be_deleted(data_dir, name)
    with _users(bootstrap, zookeeper, data_dir, command_config) as users:
        deleted = delete_user(users, name, wanted)
    _print_done("deleted user", name, deleted, style)


def _users(
    bootstrap: str | None,
    zookeeper: str | None,
    data_dir: Path | None,
    command_config: str | None,
    *,
    may_be_new: bool = False,
) -> AbstractContextManager[UsersBackend]:
    """Return the users as the brokers know them, or with --zookeeper as they are stored there."""
    from minikafka.clients.admin.users import BrokerUsers
    from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers

    return connect.backend(
        BrokerUsers, ZooKeeperUsers, bootstrap, zookeeper, data_dir, command_config, may_be_new=may_be_new
    )


def _print_done(what: str, name: str, mechanisms: Sequence[ScramMechanism], style: Format) -> None:
    names = [mechanism.value for mechanism in mechanisms]
    if style is not Format.TABLE:
        print_object({"user": name, "mechanisms": names}, style)
    else:
        say(f"{what} {name} ({', '.join(names)})")


def _all_mechanisms() -> tuple[ScramMechanism, ...]:
    from minikafka.security.sasl.scram import ScramMechanism

    return tuple(ScramMechanism)


def _parsed(names: Collection[str] | None) -> tuple[ScramMechanism, ...]:
    """Return the mechanisms in their order. Raise ConfigError for another name."""
    known = {mechanism.value: mechanism for mechanism in _all_mechanisms()}
    for name in names or ():
        if name not in known:
            raise ConfigError("--mechanism", name, f"must be {' or '.join(known)}")
    return tuple(mechanism for name, mechanism in known.items() if name in (names or ()))


def _new_password(user: str, given: str | None, iterations: int, *, from_stdin: bool) -> NewPassword:
    """Return the password that the options give, or that the user types twice. Raise ConfigError."""
    from minikafka.clients.admin.users import NewPassword

    if given is not None and from_stdin:
        raise ConfigError("NAME", user, "has two passwords; set only one of --password-stdin and --password")
    password = given
    if password is None:
        password = _line_of_stdin() if from_stdin else _typed_password(user)
    if not password:
        raise ConfigError("NAME", user, "needs a password that is not empty")
    if not is_unicode(password):
        raise ConfigError("NAME", user, "needs a password in UTF-8")
    return NewPassword(Password(password), iterations)


def _line_of_stdin() -> str:
    try:
        lines = sys.stdin.buffer.read().decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ConfigError("stdin", None, "must be the password in UTF-8") from None
    if len(lines) > 1:
        raise ConfigError("stdin", None, f"must be the password in one line, got {len(lines)} lines")
    return "".join(lines)


def _typed_password(user: str) -> str:
    if not sys.stdin.isatty():
        raise ConfigError(
            "stdin", None, "must be a terminal to ask for the password; or use --password-stdin"
        )
    first = getpass.getpass(f"Password of {user}: ")
    if getpass.getpass("Again: ") != first:
        raise ConfigError("NAME", user, "got two passwords that differ; nothing was changed")
    return first
