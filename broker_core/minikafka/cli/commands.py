"""All commands: assembles the nouns and turns errors into one line and an exit status.

Status 0: done (and healthy, for a check). 1: failed. 2: invalid (an option, value or name; a directory in
use). 3: still in progress (`reassign verify`). 130: Ctrl-C before the end of the work.
Nothing heavier than typer is imported before a command runs.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

import minikafka
from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    DirectoryLocked,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    NoAuth,
    NoSuchBroker,
)
from minikafka.base.secrets import redact_text
from minikafka.cli import (
    acl,
    broker,
    cluster,
    completion,
    config,
    console,
    consume,
    container,
    elect,
    group,
    local_clusters,
    log,
    logs,
    perf,
    produce,
    profile,
    reassign,
    topic,
    txn,
    up,
    user,
)
from minikafka.cli.connection import profiles
from minikafka.cli.terminal.output import NoteHandler, note, start_output

BAD_INPUT = frozenset(
    {
        ErrorCode.INVALID_TOPIC,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)
"""The error codes of requests that can never succeed."""

FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""The error codes of access that the rules deny."""
RULES_HINT = " (see `minikafka acl list`)"
"""The hint in messages of the clients, which RULES_ADVICE repeats."""
RULES_ADVICE = (
    "see `minikafka acl list`; grant access with `minikafka acl add` "
    "(with --zookeeper if the brokers refuse these too)"
)
ZOOKEEPER_CREDENTIALS = (
    "set --data-dir D, or zookeeper.digest.credentials in the file of --command-config FILE"
)
"""The sources of a command's credentials for a ZooKeeper that is not open."""

app = typer.Typer(
    name="minikafka",
    help="Apache Kafka's log, protocol and coordination in Python. `minikafka up` starts a cluster.",
    epilog=(
        "Commands find the cluster by --bootstrap, MINIKAFKA_BOOTSTRAP or --data-dir, and connect with TLS "
        "and SASL by --command-config or MINIKAFKA_CONFIG. `minikafka COMMAND --help` describes a command; "
        "the guides are in docs/ of the source repository."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"minikafka {minikafka.__version__}")
        raise typer.Exit


@app.callback()
def _all_commands(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    profile_name: Annotated[
        str | None,
        typer.Option(
            profiles.PROFILE_OPTION,
            metavar="NAME",
            help="Connect as this profile says (`minikafka profile`); may also follow the command. "
            "[MINIKAFKA_PROFILE, or the profile in use]",
            show_default=False,
        ),
    ] = None,
) -> None:
    profiles.choose(profile_name)


def profile_first(arguments: list[str]) -> list[str]:
    """Return a command line with ``--profile NAME`` before the command, where typer looks for it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    for at, word in enumerate(arguments[:end]):
        width = 2 if word == profiles.PROFILE_OPTION else 1
        if word.startswith(f"{profiles.PROFILE_OPTION}=") or width == 2:
            return [*arguments[at : at + width], *arguments[:at], *arguments[at + width :]]
    return arguments


app.command("up", short_help="Start ZooKeeper and brokers.")(up.up)
app.command("broker", short_help="Run one broker from a file of properties.")(broker.broker)
app.command("container", short_help="Run one broker by environment variables.")(container.container)
app.add_typer(topic.app, name="topic")
app.command("produce", short_help="Send lines of stdin as messages.")(produce.produce)
app.command("consume", short_help="Print the messages of topics.")(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(config.app, name="config")
app.add_typer(profile.app, name="profile")
app.add_typer(cluster.app, name="cluster")
app.command("console", short_help="Serve a web console.")(console.console)
app.command("elect", short_help="Elect the preferred leaders.")(elect.elect)
app.add_typer(reassign.app, name="reassign", short_help="Move partitions to other brokers.")
app.add_typer(acl.app, name="acl", short_help="Add, list and remove access rules.")
app.add_typer(user.app, name="user", short_help="Add, list and delete users with passwords.")
app.add_typer(log.app, name="log")
app.add_typer(perf.app, name="perf")
app.command("completion", short_help="Print the completion of a shell.")(completion.completion)
app.command("complete", hidden=True)(completion.complete)
app.command("ps", short_help="List running clusters.")(local_clusters.ps)
app.command("stop", short_help="Stop a cluster.")(local_clusters.stop)
app.command("logs", short_help="Print the logs of a cluster's processes.")(logs.logs)

# typer has its own copy of click in newer releases, so its classes are found through typer.
_UsageProblem = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run(arguments: list[str]) -> int:
    """Run one command line and return its status."""
    # For loggers without a handler: Python would print their warnings without the prefix.
    before, logging.lastResort = logging.lastResort, NoteHandler()
    start_output()
    profiles.choose(None)
    try:
        return _run(arguments)
    finally:
        logging.lastResort = before


def _run(arguments: list[str]) -> int:
    try:
        status = app(profile_first(arguments), prog_name="minikafka", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:
        # The reader of the output has closed it, as `head` does. Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # the last handler: every error becomes one line
        if os.environ.get("MINIKAFKA_TRACEBACK"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)  # the help text, several lines
            return 2
        status, line = error_line(error, argument_names(arguments))
        note(f"minikafka: {line}")
        return status


SETTINGS = frozenset({"--set", "--config", "--property", "--add-config", "--password"})
"""Options that take settings, which may contain secrets, or a secret."""


def argument_names(arguments: list[str]) -> list[str]:
    """Return the words of a command line that are names, such as topics and groups, and not settings."""
    if arguments[:1] == ["config"]:
        arguments = arguments[:4]  # settings follow these
    before = ["", *arguments]
    return [
        word
        for previous, word in zip(before, arguments, strict=False)
        if len(word) > 1 and "=" not in word and previous not in SETTINGS and word not in SETTINGS
    ]


_HINT = re.compile(r"\. Did you mean ([^?]+)\?\Z")
"""The hint at the end of typer's message about an unknown command; typer has no field for it."""


def error_line(error: Exception, names: Iterable[str] = ()) -> tuple[int, str]:
    """Return the exit status and the one line for ``error``. names: words of the user that are not secret."""
    text, status = str(error), 1
    if isinstance(error, _UsageProblem):
        text, status = error.format_message(), error.exit_code  # type: ignore[attr-defined]
        context = getattr(error, "ctx", None)
        if context is not None:
            text = _HINT.sub(r" (did you mean \1?)", text.rstrip("."))
            text = f"{text}; see `{context.command_path} --help`"
    elif isinstance(error, ConfigError | DirectoryLocked):
        status = 2
    elif isinstance(error, BrokerError):
        status = 2 if error.code in BAD_INPUT else 1
        if error.code in FORBIDDEN and not isinstance(error, acl.AclRequestFailed):
            text = f"{text.replace(RULES_HINT, '')}; {RULES_ADVICE}"
    elif isinstance(error, NoSuchBroker) or (
        isinstance(error, NetworkError) and isinstance(error.__cause__, BrokerError)
    ):
        pass  # a broker has answered
    elif isinstance(error, NetworkError) and not error.advice:
        text += "; start a broker with `minikafka up`, or set --bootstrap or --data-dir of a running one"
    elif isinstance(error, NoAuth):
        text += f": {ZOOKEEPER_CREDENTIALS}"
    elif isinstance(error, MinikafkaError):
        # The error of a broker process that did not start has an exit code, by the same rule.
        status = 2 if getattr(error, "exit_code", None) == 2 else 1
    elif not isinstance(error, OSError):
        text = f"internal error: {type(error).__name__}: {error}; for the traceback set MINIKAFKA_TRACEBACK=1"
    line = " ".join(text.split())
    # An error of a setting is redacted already, and "sasl.jaas.config: must …" is no secret.
    return status, line if isinstance(error, ConfigError) else redact_text(line, names)
