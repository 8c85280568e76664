"""``minikafka reassign``: partitions move to other brokers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.errors import ConfigError
from minikafka.base.text import counted
from minikafka.cli.elect import read_file
from minikafka.cli.options import DataDir, DisableRackAware, Format, OutputFormat, RequiredZooKeeper
from minikafka.cli.output import note, print_rows, say
from minikafka.cli.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.admin.zookeeper.reassignments import Move, PartitionReassignment
    from minikafka.clients.zookeeper_metadata import Replicas
    from minikafka.registry.store import Store

app = typer.Typer(
    help="Move partitions to other brokers: generate, execute, verify; list what is under way.",
    no_args_is_help=True,
)

UNDER_WAY = 3
"""The status of ``verify`` while nothing has failed and something is not done."""
POLL_S = 0.2
AND_ENDS = ", and ends the throttle once all is done"
BUT_ANOTHER = "; another reassignment is under way: {}, and until its end none is started"
THROTTLE_STAYS = "the throttle stays for what is under way: {}; verify again when that is done"
THROTTLED = "; until all are, copying keeps to {} bytes a second"
THROTTLED_LIST = "; until all are done, copying keeps to {} bytes a second"
MOVE_COLUMNS = ["topic", "partition", "before", "after", "adds", "removes"]
ONGOING_COLUMNS = ["topic", "partition", "replicas", "in_sync", "wanted", "status"]
VERDICT_COLUMNS = ["topic", "partition", "replicas", "in_sync", "status"]

PlanFile = Annotated[
    Path,
    typer.Option(
        "--file",
        metavar="J",
        help='{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}',
        show_default=False,
    ),
]


@app.command()
def generate(
    brokers: Annotated[
        str, typer.Option("--brokers", metavar="1,2", help="Who shall have them.", show_default=False)
    ],
    topics: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="TOPIC", show_default=False),
    ] = None,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--file", metavar="J", help='{"topics": [{"topic": "t"}]}', show_default=False),
    ] = None,
    replicas: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--replicas", metavar="N", min=1, help="Of each partition; as now without it.", show_default=False
        ),
    ] = None,
    disable_rack_aware: DisableRackAware = False,
    zookeeper: RequiredZooKeeper = None,
    data_dir: DataDir = None,
) -> None:
    """Spread topics over brokers: prints the JSON that `execute` takes, and changes nothing."""
    from minikafka.cli.connect import zookeeper_store
    from minikafka.clients.admin.zookeeper import reassignments

    if bool(topics) == bool(file):
        raise ConfigError("--file", str(file or ""), "give topics, or --file J")
    broker_ids = parse_broker_ids(brokers)
    names = topics or reassignments.read_topics_file(read_file(file or Path()), "--file", str(file))
    with zookeeper_store(zookeeper, None, data_dir) as store:
        moves = reassignments.generate(
            store, names, broker_ids, replicas=replicas, rack_aware=not disable_rack_aware
        )
    say(reassignments.to_json({move.topic_partition: move.after for move in moves}))
    changed = [move for move in moves if move.before != move.after]
    note(f"minikafka: {_changes(changed, len(moves))}; save it and give it to `reassign execute --file`")


@app.command()
def execute(
    file: PlanFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until all is done.")] = True,
    throttle: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--throttle",
            metavar="BYTES_PER_SECOND",
            min=1,
            help="What each broker may give, and copy. Of the same plan under way: only this changes.",
            show_default=False,
        ),
    ] = None,
    zookeeper: RequiredZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Give partitions other replicas. Status 1 where one could not have them.

    One that is under way already is waited for. A throttle ends with the wait; with --no-wait, `reassign
    verify` ends it once all is done.
    """
    from minikafka.cli.connect import zookeeper_store
    from minikafka.clients.admin.zookeeper import reassignments
    from minikafka.clients.zookeeper_metadata import listed

    wanted = reassignments.read_file(read_file(file), "--file", str(file))
    with zookeeper_store(zookeeper, None, data_dir) as store:
        if reassignments.is_under_way(store, wanted):
            return resume(
                store, wanted, style, throttle=None if dry_run else throttle, wait=wait and not dry_run
            )
        moves = reassignments.plan(store, wanted)
        if throttle is not None and not dry_run:
            reassignments.check_not_under_way(store)
        if dry_run or not moves:
            others = reassignments.under_way(store)
            refused = BUT_ANOTHER.format(listed(others)) if others else ""
            print_rows(_move_rows(moves), MOVE_COLUMNS, style)
            note(f"minikafka: {_changes(moves, len(wanted))}{'; nothing was changed' * dry_run}{refused}")
            return 0
        reassignments.request(store, moves, throttle=throttle)
        before = reassignments.to_json({move.topic_partition: move.before for move in moves})
        note(f"minikafka: {_changes(moves, len(wanted))}; the way back: {before}")
        if not wait:
            print_rows(_move_rows(moves), MOVE_COLUMNS, style)
            return 0
        targets = {move.topic_partition: move.after for move in moves}
        verdicts = wait_for_end(store, targets, throttled=throttle is not None)
        if throttle is not None:
            end_throttle(store, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


@app.command()
def verify(
    file: PlanFile,
    zookeeper: RequiredZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """How far a reassignment is. Status 0: all is done. 1: something has failed. 3: it is under way.

    A throttle ends when all is done.
    """
    from minikafka.cli.connect import zookeeper_store
    from minikafka.clients.admin.zookeeper import reassignments

    wanted = reassignments.read_file(read_file(file), "--file", str(file))
    with zookeeper_store(zookeeper, None, data_dir) as store:
        verdicts = reassignments.verify(store, wanted)
        end_throttle(store, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


@app.command("list")
def list_ongoing(
    zookeeper: RequiredZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """What is under way, whoever asked for it: the replicas now, those in sync, and those that are wanted.

    It cannot be called off, as 0.10.1 knows no way: wait for its end, and then execute the way back.
    """
    from minikafka.cli.connect import zookeeper_store
    from minikafka.clients.admin.zookeeper import reassignments, throttles

    with zookeeper_store(zookeeper, None, data_dir) as store:
        found = reassignments.ongoing(store)
        brokers = {one for verdict in found for one in (*verdict.wanted, *verdict.replicas)}
        rates = " or ".join(map(str, throttles.rates(store, brokers))) if found else ""
    print_verdicts(found, style, ONGOING_COLUMNS)
    if not found:
        note("minikafka: no partition is on its way to other replicas")
    elif rates:
        note(f"minikafka: {counted(len(found), 'partition')} under way{THROTTLED_LIST.format(rates)}")


def resume(store: Store, wanted: Replicas, style: Format, *, throttle: int | None, wait: bool) -> int:
    """With one that is under way already: give it another rate, or wait for its end."""
    from minikafka.clients.admin.zookeeper import reassignments, throttles

    if throttle is not None:
        brokers = ", ".join(map(str, throttles.set_rates(store, wanted, throttle)))
        note(f"minikafka: one is under way; brokers {brokers} now keep to {throttle} bytes a second")
        return 0
    if not wait:
        note("minikafka: it is under way already; `reassign verify` tells how far it is")
        print_verdicts(reassignments.verify(store, wanted), style)
        return 0
    note("minikafka: it is under way already")
    verdicts = wait_for_end(store, wanted, throttled=bool(throttles.rates(store)))
    end_throttle(store, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


def end_throttle(store: Store, verdicts: Sequence[PartitionReassignment]) -> None:
    """End a throttle when all is done or gone; until then tell of it, and how much is done."""
    from minikafka.clients.admin.zookeeper import reassignments, throttles
    from minikafka.clients.admin.zookeeper.reassignments import ReassignmentStatus
    from minikafka.clients.zookeeper_metadata import listed

    done = sum(one.status is ReassignmentStatus.DONE for one in verdicts)
    if all(one.deleted or one.status is ReassignmentStatus.DONE for one in verdicts):
        partitions = counted(len(verdicts), "partition")
        ended = "all is done" if done == len(verdicts) else f"{done} of {partitions} done, the rest is gone"
        if reassignments.remove_throttle(store, verdicts):
            note(f"minikafka: {ended}; the throttle is removed")
        elif (others := reassignments.under_way(store)) and throttles.rates(store):
            note(f"minikafka: {ended}; {THROTTLE_STAYS.format(listed(others))}")
        return
    brokers = {one for verdict in verdicts for one in (*verdict.wanted, *verdict.replicas)}
    rates = " or ".join(map(str, throttles.rates(store, brokers)))
    throttled = THROTTLED.format(rates) if rates else ""
    note(f"minikafka: {done} of {counted(len(verdicts), 'partition')} done{throttled}")


def parse_broker_ids(text: str) -> list[int]:
    """The broker ids of ``1,2``. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigError("--brokers", text, "the ids of brokers, with commas between: 1,2")
    return [int(part) for part in parts]


def wait_for_end(store: Store, wanted: Replicas, *, throttled: bool) -> list[PartitionReassignment]:
    """Wait until nothing of it is under way any more, and show how far it is."""
    from minikafka.clients.admin.zookeeper import reassignments

    try:
        with Progress("moving partitions", len(wanted), lines=True) as progress:
            while left := len(reassignments.under_way(store).keys() & wanted.keys()):
                progress.advance(len(wanted) - left - progress.done)
                time.sleep(POLL_S)
            progress.advance(len(wanted) - progress.done)
    except KeyboardInterrupt:
        note(f"minikafka: it goes on; `reassign verify` tells how far it is{AND_ENDS * throttled}")
        raise
    return reassignments.verify(store, wanted)


def status_of(verdicts: Iterable[PartitionReassignment]) -> int:
    """What scripts go by."""
    from minikafka.clients.admin.zookeeper.reassignments import ReassignmentStatus

    found = {verdict.status for verdict in verdicts}
    if ReassignmentStatus.FAILED in found:
        return 1
    return UNDER_WAY if ReassignmentStatus.UNDER_WAY in found else 0


def _changes(moves: Sequence[Move], total: int) -> str:
    copies = sum(len(move.adds) for move in moves)
    return (
        f"{len(moves)} of {counted(total, 'partition')} {'changes' if len(moves) == 1 else 'change'}, "
        f"{counted(copies, 'replica')} to copy"
    )


def _move_rows(moves: Iterable[Move]) -> list[dict[str, object]]:
    return [
        {
            "topic": move.topic_partition.topic,
            "partition": move.topic_partition.partition,
            "before": list(move.before),
            "after": list(move.after),
            "adds": list(move.adds),
            "removes": list(move.removes),
        }
        for move in moves
    ]


def print_verdicts(
    verdicts: Sequence[PartitionReassignment], style: Format, columns: Sequence[str] = VERDICT_COLUMNS
) -> None:
    """How far each is, and why where one has failed."""
    reasons = ["reason"] * any(one.reason for one in verdicts)
    print_rows(_verdict_rows(verdicts), [*columns, *reasons], style)


def _verdict_rows(verdicts: Iterable[PartitionReassignment]) -> list[dict[str, object]]:
    return [
        {
            "topic": one.topic_partition.topic,
            "partition": one.topic_partition.partition,
            "replicas": list(one.replicas),
            "in_sync": list(one.in_sync),
            "wanted": list(one.wanted),
            "status": one.status.value,
            "reason": one.reason or None,
        }
        for one in verdicts
    ]
