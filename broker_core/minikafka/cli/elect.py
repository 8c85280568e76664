"""``minikafka elect``: elects the preferred replica of each partition as leader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.types import one_of, real_number
from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from minikafka.base.text import counted
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    NotExactlyOne,
    OutputFormat,
    ZooKeeper,
    number_option,
    read_file,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import note, print_rows
from minikafka.cli.terminal.progress import spinner

if TYPE_CHECKING:
    from minikafka.clients.admin.leader_elections import Candidate
    from minikafka.clients.admin.partitions import ElectionRound

COLUMNS = ["topic", "partition", "leader", "preferred", "in_sync", "done"]


_TYPE = one_of("preferred", "unclean")
_TIMEOUT = real_number("a number of seconds, at least 0", lambda seconds: seconds >= 0)


def _parse_timeout(text: str | float) -> float:
    timeout_s: float = _TIMEOUT.parse("--timeout", text)
    return timeout_s


def _parse_type(text: str) -> str:
    return str(_TYPE.parse("--election-type", text.lower()))


Topics = Annotated[list[str] | None, text_argument("TOPIC", "All partitions of these.")]
ElectionFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "--path-to-json-file",
        metavar="J",
        help='{"partitions": [{"topic": "t", "partition": 0}]}',
        show_default=False,
    ),
]
Everything = Annotated[
    bool, typer.Option("--all", "--all-topic-partitions", help="Every partition of the cluster.")
]
OneTopic = Annotated[str | None, value_option("--topic", "T", "A topic, for --partition.")]
OnePartition = Annotated[
    int | None, number_option("--partition", "P", "One partition of --topic.", 0, show_default=False)
]
TypeOfElection = Annotated[
    str,
    typer.Option(
        "--election-type", metavar="preferred|unclean", parser=_parse_type, help="unclean: as --unclean."
    ),
]
Unclean = Annotated[
    bool,
    typer.Option(
        "--unclean",
        help="For partitions without a leader: elect a live replica that is not in sync. Messages that "
        "it does not have are lost.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the leaders and the preferred ones.")]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="S", parser=_parse_timeout, help="Seconds to wait for the election's end."
    ),
]


def elect(
    topics: Topics = None,
    file: ElectionFile = None,
    everything: Everything = False,
    topic: OneTopic = None,
    partition: OnePartition = None,
    election_type: TypeOfElection = "preferred",
    unclean: Unclean = False,
    dry_run: DryRun = False,
    timeout_s: Timeout = 30,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Elect the preferred replica, the first one, as leader of each partition. Status 1 if that fails.

    --unclean needs brokers since Kafka 2.4.
    """
    from minikafka.clients.admin import leader_elections, plan_files
    from minikafka.wire.apis.elect_leaders import ElectionType

    unclean = unclean or election_type == "unclean"
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    single = _single(topic, partition)
    choices = {"TOPIC": topics, "--topic": single, "--file": file, "--all": everything}
    named_by = [name for name, given in choices.items() if given]
    if len(named_by) != 1:
        raise NotExactlyOne(named_by, "no partitions are named", "TOPIC, --topic, --file J and --all")
    named = single or None
    if file is not None:
        named = plan_files.read_election(read_file(file), "--file", str(file))
    with connect.partitions(bootstrap, zookeeper, data_dir, command_config) as backend:
        if topics:
            named = leader_elections.partitions_of(backend, topics)
        found = leader_elections.candidates(backend, named, kind)
        if everything and (marked := sorted(backend.topics_to_delete())):
            note(f"minikafka: skipped, marked for deletion: {', '.join(marked)}")
        wanting = [candidate.topic_partition for candidate in found if not candidate.done]
        if dry_run or not wanting:
            print_rows(election_rows(found), COLUMNS, style)
            text = unclean_forecast(found) if unclean else forecast(found)
            note(f"minikafka: {text}{'; nothing was changed' * dry_run}")
            return 0
        with spinner(f"electing leaders of {counted(len(wanting), 'partition')}"):
            found, ended = leader_elections.elect(backend, wanting, kind, timeout_s, print_round)
    print_rows(election_rows(found), COLUMNS, style)
    left = sum(not candidate.done for candidate in found)
    if not ended:
        note(f"minikafka: the election has not ended after {timeout_s:g} s and continues; check again later")
    elif left:
        why = "no replica is alive" if unclean else "the preferred replica is dead or not in sync"
        note(f"minikafka: no election in {left} of {counted(len(found), 'partition')}: {why}")
    return 1 if left or not ended else 0


def _single(topic: str | None, partition: int | None) -> frozenset[TopicPartition]:
    """Return the partition that --topic and --partition name; none without them. Raise ConfigError."""
    if topic is None and partition is None:
        return frozenset()
    if topic is None or partition is None:
        missing, given = ("--topic", "--partition") if topic is None else ("--partition", "--topic")
        raise ConfigError(missing, None, f"required with {given}")
    return frozenset({TopicPartition(topic, partition)})


def print_round(part: ElectionRound) -> None:
    """Print the two lines of 0.10.1's ``kafka-preferred-replica-election.sh`` on stderr."""
    if part.rounds > 1:
        size = counted(len(part.partitions), "partition")
        note(f"minikafka: round {part.number} of {part.rounds}: {size}")
    note(f"Created preferred replica election path with {part.request}")
    partitions = ", ".join(f"[{topic},{partition}]" for topic, partition in part.partitions)
    note(f"Successfully started preferred replica election for partitions Set({partitions})")


def election_rows(found: Iterable[Candidate]) -> list[dict[str, object]]:
    """Return a row for each partition."""
    return [
        {
            "topic": candidate.topic_partition.topic,
            "partition": candidate.topic_partition.partition,
            "leader": candidate.leader,
            "preferred": candidate.preferred,
            "in_sync": list(candidate.in_sync),
            "done": candidate.done,
        }
        for candidate in found
    ]


def forecast(found: Sequence[Candidate]) -> str:
    """Describe the result of an election."""
    wanting = [candidate for candidate in found if not candidate.done]
    if not wanting:
        return "the preferred replica already leads every partition"
    possible = sum(candidate.possible for candidate in wanting)
    rest = len(wanting) - possible
    text = f"{possible} of {counted(len(found), 'partition')} would get another leader"
    return text + f"; in {rest} the preferred replica is not in sync" * bool(rest)


def unclean_forecast(found: Sequence[Candidate]) -> str:
    """Describe the result of an unclean election."""
    wanting = sum(not candidate.done for candidate in found)
    if not wanting:
        return "every partition has a leader"
    return f"{wanting} of {counted(len(found), 'partition')} without a leader would get a live replica"
