"""All commands: puts the nouns together and turns errors into one line and an exit status.

Status 0: done (and healthy, where that was asked). 1: it failed. 2: what was asked for cannot be (a bad
option, value, name; a directory in use). 3: still under way (`reassign verify`).
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
    NoSuchBroker,
)
from minikafka.base.secrets import redact_text
from minikafka.cli import (
    acl,
    broker,
    cluster,
    config,
    consume,
    elect,
    group,
    local_clusters,
    log,
    perf,
    produce,
    reassign,
    topic,
    up,
)
from minikafka.cli.output import NoteHandler, note

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
"""Codes by which a broker says that the request itself can never succeed."""

FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Codes of access rules that do not permit something."""
RULES_ADVICE = (
    "see `minikafka acl list`; `minikafka acl add` permits more "
    "(where brokers refuse these too, with --zookeeper)"
)

app = typer.Typer(
    name="minikafka",
    help="Apache Kafka's log, protocol and coordination in Python. `minikafka up` starts a cluster.",
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
) -> None: ...


app.command("up")(up.up)
app.command("broker")(broker.broker)
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(config.app, name="config")
app.add_typer(cluster.app, name="cluster")
app.command("elect")(elect.elect)
app.add_typer(reassign.app, name="reassign")
app.add_typer(acl.app, name="acl")
app.add_typer(log.app, name="log")
app.add_typer(perf.app, name="perf")
app.command("ps")(local_clusters.ps)
app.command("stop")(local_clusters.stop)

# typer has its own copy of click in newer releases, so its classes are found through typer.
_UsageProblem = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run(arguments: list[str]) -> int:
    """Run one command line and return its status."""
    # What nobody has set up another place for: Python would print it without our name.
    before, logging.lastResort = logging.lastResort, NoteHandler()
    try:
        return _run(arguments)
    finally:
        logging.lastResort = before


def _run(arguments: list[str]) -> int:
    try:
        status = app(arguments, prog_name="minikafka", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except BrokenPipeError:
        # Whoever read our output has had enough, as `head` does. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # the last place that can turn it into a line
        if os.environ.get("MINIKAFKA_TRACEBACK"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)  # the help text, of many lines
            return 2
        status, line = error_line(error, argument_names(arguments))
        note(f"minikafka: {line}")
        return status


SETTINGS = frozenset({"--set", "--config", "--property", "--add-config"})
"""Options before settings, which may hold secrets."""


def argument_names(arguments: list[str]) -> list[str]:
    """The words of a command line that name things, as topics and groups; no settings."""
    if arguments[:1] == ["config"]:
        arguments = arguments[:4]  # settings are behind these
    before = ["", *arguments]
    return [
        word
        for previous, word in zip(before, arguments, strict=False)
        if len(word) > 1 and "=" not in word and previous not in SETTINGS and word not in SETTINGS
    ]


_HINT = re.compile(r"\. Did you mean ([^?]+)\?\Z")
"""The end of typer's message on an unknown command; typer has no field for the hint."""


def error_line(error: Exception, names: Iterable[str] = ()) -> tuple[int, str]:
    """Exit status and the one line for ``error``. names: what the user typed that is no secret."""
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
            text += f"; {RULES_ADVICE}"
    elif isinstance(error, NoSuchBroker) or (
        isinstance(error, NetworkError) and isinstance(error.__cause__, BrokerError)
    ):
        pass  # a broker did answer
    elif isinstance(error, NetworkError):
        text += "; start a broker with `minikafka up`, or name a running one by --bootstrap or --data-dir"
    elif isinstance(error, MinikafkaError):
        # A broker process that would not start has an exit code, by the same rule.
        status = 2 if getattr(error, "exit_code", None) == 2 else 1
    elif not isinstance(error, OSError):
        text = f"internal error: {type(error).__name__}: {error}; MINIKAFKA_TRACEBACK=1 shows where"
    return status, redact_text(" ".join(text.split()), names)
