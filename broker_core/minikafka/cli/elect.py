"""``minikafka elect``: the first replica of each partition leads it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.errors import ConfigError
from minikafka.base.text import counted
from minikafka.cli.options import DataDir, Format, OutputFormat, RequiredZooKeeper
from minikafka.cli.output import note, print_rows

if TYPE_CHECKING:
    from minikafka.base.ids import TopicPartition
    from minikafka.clients.admin.zookeeper.elections import Candidate

COLUMNS = ["topic", "partition", "leader", "preferred", "in_sync", "done"]


def elect(
    topics: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="TOPIC", show_default=False, help="All partitions of these."),
    ] = None,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--file", metavar="J", help='{"partitions": [{"topic": "t", "partition": 0}]}', show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every partition of the cluster.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show who leads, and who should.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait for the election's end.")
    ] = 30,
    zookeeper: RequiredZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Let the preferred replica lead, the first of each partition's. Status 1 where one does not."""
    from minikafka.cli.connect import zookeeper_store
    from minikafka.clients import zookeeper_metadata
    from minikafka.clients.admin.zookeeper import elections

    if sum(map(bool, (topics, file, everything))) != 1:
        raise ConfigError("--file", str(file or ""), "give one of: topics, --file J, --all")
    named = None if file is None else elections.read_file(read_file(file), "--file", str(file))
    with zookeeper_store(zookeeper, None, data_dir) as store:
        if topics:
            named = elections.assigned_partitions(store, topics)
        found = elections.candidates(store, named)
        if everything and (going := sorted(zookeeper_metadata.topics_to_delete(store))):
            note(f"minikafka: left out, as marked for deletion: {', '.join(going)}")
        wanting = [one.topic_partition for one in found if not one.done]
        if dry_run or not wanting:
            print_rows(election_rows(found), COLUMNS, style)
            note(f"minikafka: {forecast(found)}{'; nothing was changed' * dry_run}")
            return 0
        ended, rounds = True, elections.rounds(wanting)
        for number, share in enumerate(rounds, 1):
            if len(rounds) > 1:
                note(f"minikafka: round {number} of {len(rounds)}: {counted(len(share), 'partition')}")
            print_election(elections.request(store, share), share)
            ended = elections.await_end(store, timeout_s)
            if not ended:
                break
        found = elections.candidates(store, wanting)
    print_rows(election_rows(found), COLUMNS, style)
    left = sum(not one.done for one in found)
    if not ended:
        note(f"minikafka: not ended after {timeout_s:g} s, it goes on; look again later")
    elif left:
        note(
            f"minikafka: {left} of {counted(len(found), 'partition')} could not be led by the preferred "
            "replica, which is dead or not in sync"
        )
    return 1 if left or not ended else 0


def print_election(written: str, share: Iterable[TopicPartition]) -> None:
    """The two lines that 0.10.1's ``kafka-preferred-replica-election.sh`` prints, on stderr."""
    note(f"Created preferred replica election path with {written}")
    partitions = ", ".join(f"[{topic},{partition}]" for topic, partition in share)
    note(f"Successfully started preferred replica election for partitions Set({partitions})")


def election_rows(found: Iterable[Candidate]) -> list[dict[str, object]]:
    """A row for each partition."""
    return [
        {
            "topic": one.topic_partition.topic,
            "partition": one.topic_partition.partition,
            "leader": one.leader,
            "preferred": one.preferred,
            "in_sync": list(one.in_sync),
            "done": one.done,
        }
        for one in found
    ]


def read_file(file: Path, option: str = "--file") -> bytes:
    """The bytes of a file that was named. ConfigError where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(option, str(file), f"cannot be read: {error.strerror}") from None


def forecast(found: Sequence[Candidate]) -> str:
    """What an election would do."""
    wanting = [one for one in found if not one.done]
    if not wanting:
        return "the preferred replica leads every partition already"
    possible = sum(one.possible for one in wanting)
    rest = len(wanting) - possible
    text = f"{possible} of {counted(len(found), 'partition')} would get another leader"
    return text + f", of {rest} the preferred replica is not in sync" * bool(rest)
