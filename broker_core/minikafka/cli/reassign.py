"""``minikafka reassign``: moves partitions to other brokers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import ConfigError
from minikafka.base.text import counted, first_of
from minikafka.cli import connect
from minikafka.cli.elect import read_file
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    DisableRackAware,
    Format,
    NotExactlyOne,
    OutputFormat,
    RequiredZooKeeper,
    ZooKeeperDataDir,
    number_option,
    value_option,
)
from minikafka.cli.output import note, print_rows, say
from minikafka.cli.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.reassignments import OngoingReassignment, ReassignmentErrors
    from minikafka.clients.admin.zookeeper.reassignments import Move, PartitionReassignment
    from minikafka.clients.zookeeper_metadata import Replicas
    from minikafka.registry.store import Store

app = typer.Typer(
    help="Move partitions to other brokers: generate, execute and verify a plan; list or cancel moves.",
    no_args_is_help=True,
)

UNDER_WAY = 3
"""The status of ``verify`` while nothing has failed and something is not done."""
POLL_S = 0.2
REMOVES_THROTTLE = ", which also removes the throttle once all is done"
IN_PROGRESS = "; cannot start before the end of another reassignment, of {}"
THROTTLE_STAYS = "the throttle stays for the reassignment of {}; verify again when that is done"
THROTTLED = "; copying is throttled to {} bytes per second until all are done"
MOVE_COLUMNS = ["topic", "partition", "before", "after", "adds", "removes"]
ONGOING_COLUMNS = ["topic", "partition", "replicas", "in_sync", "wanted", "status"]
CANCELLED_COLUMNS = ["topic", "partition", "replicas", "dropped", "status"]
VERDICT_COLUMNS = ["topic", "partition", "replicas", "in_sync", "status"]

PlanFile = Annotated[
    Path, value_option("--file", "J", '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}')
]


@app.command(short_help="Print a plan that spreads topics over brokers.")
def generate(
    brokers: Annotated[str, value_option("--brokers", "1,2", "The ids of the new brokers.")],
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default=False)] = None,
    file: Annotated[Path | None, value_option("--file", "J", '{"topics": [{"topic": "t"}]}')] = None,
    replicas: Annotated[
        int | None,
        number_option("--replicas", "N", "Replicas per partition. [as now]", 1, show_default=False),
    ] = None,
    disable_rack_aware: DisableRackAware = False,
    zookeeper: RequiredZooKeeper = None,
    data_dir: ZooKeeperDataDir = None,
    command_config: CommandConfig = None,
) -> None:
    """Spread topics over brokers: print the plan for `execute` as JSON, and change nothing."""
    from minikafka.clients.admin.zookeeper import reassignments

    if bool(topics) == bool(file):
        raise NotExactlyOne(
            ["TOPIC", "--file"] if topics else [], "no topics are named", "TOPIC and --file J"
        )
    broker_ids = parse_broker_ids(brokers)
    names = topics or reassignments.read_topics_file(read_file(file or Path()), "--file", str(file))
    with connect.zookeeper_store(zookeeper, None, data_dir, command_config) as store:
        moves = reassignments.generate(
            store, names, broker_ids, replicas=replicas, rack_aware=not disable_rack_aware
        )
    say(reassignments.to_json({move.topic_partition: move.after for move in moves}))
    changed = [move for move in moves if move.before != move.after]
    note(f"minikafka: {_changes(changed, len(moves))}; save the plan and run `reassign execute --file`")


@app.command()
def execute(
    file: PlanFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all is done.")] = True,
    throttle: Annotated[
        int | None,
        number_option(
            "--throttle",
            "BYTES_PER_SECOND",
            "Limit of each broker. For a plan in progress, changes only the limit.",
            1,
            show_default=False,
        ),
    ] = None,
    zookeeper: RequiredZooKeeper = None,
    data_dir: ZooKeeperDataDir = None,
    command_config: CommandConfig = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Move partitions to other replicas. Status 1 if a move fails.

    A plan that is already in progress is waited for. A throttle is removed at the end of the wait; with
    --no-wait, `reassign verify` removes it once all is done.
    """
    from minikafka.clients.admin.zookeeper import reassignments

    wanted = reassignments.read_file(read_file(file), "--file", str(file))
    with connect.zookeeper_store(zookeeper, None, data_dir, command_config) as store:
        if reassignments.is_under_way(store, wanted):
            return resume(
                store, wanted, style, throttle=None if dry_run else throttle, wait=wait and not dry_run
            )
        moves = reassignments.plan(store, wanted)
        if throttle is not None and not dry_run:
            reassignments.check_not_under_way(store)
        if dry_run or not moves:
            others = reassignments.under_way(store)
            refused = IN_PROGRESS.format(first_of(sorted(others), 5)) if others else ""
            print_rows(_move_rows(moves), MOVE_COLUMNS, style)
            note(f"minikafka: {_changes(moves, len(wanted))}{'; nothing was changed' * dry_run}{refused}")
            return 0
        reassignments.request(store, moves, throttle=throttle)
        before = reassignments.to_json({move.topic_partition: move.before for move in moves})
        note(f"minikafka: {_changes(moves, len(wanted))}; the plan for a rollback: {before}")
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
    data_dir: ZooKeeperDataDir = None,
    command_config: CommandConfig = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Show the progress of a reassignment. Status 0: all is done. 1: a move has failed. 3: in progress.

    A throttle is removed when all is done.
    """
    from minikafka.clients.admin.zookeeper import reassignments

    wanted = reassignments.read_file(read_file(file), "--file", str(file))
    with connect.zookeeper_store(zookeeper, None, data_dir, command_config) as store:
        verdicts = reassignments.verify(store, wanted)
        end_throttle(store, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


@app.command(short_help="Cancel reassignments in progress.")
def cancel(
    file: Annotated[
        Path | None, value_option("--file", "J", "The plan; only its partitions that are in progress.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are in progress.")] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    command_config: CommandConfig = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Give partitions back the replicas that they had, and remove the throttle. Status 1 if that fails.

    Brokers before Kafka 2.4, or beside them, cannot cancel.
    """
    from minikafka.clients.admin.zookeeper import reassignments

    if everything == (file is not None):
        raise NotExactlyOne(["--file", "--all"] * everything, "no plan is given", "--file J and --all")
    plan = None if file is None else reassignments.read_file(read_file(file), "--file", str(file))
    with connect.admin_client(bootstrap, data_dir, command_config, writes=True) as admin:
        ongoing = [
            move
            for move in admin.list_partition_reassignments()
            if plan is None or move.topic_partition in plan
        ]
        errors = admin.alter_partition_reassignments({move.topic_partition: None for move in ongoing})
        others = admin.list_partition_reassignments()
        remove_throttles(admin, ongoing, with_rates=not others)
    print_rows([_cancelled_row(move, errors) for move in ongoing], CANCELLED_COLUMNS, style)
    if not ongoing:
        note(f"minikafka: no reassignment {'of this plan ' if plan else ''}is in progress")
    return int(any(errors.values()))


def remove_throttles(admin: Admin, moves: Sequence[OngoingReassignment], *, with_rates: bool) -> None:
    """Remove the throttled replicas of the topics, and the rates of the brokers if nothing else moves."""
    from minikafka.registry.entity_configs import RATES, REPLICAS
    from minikafka.wire.apis.describe_configs import ConfigResourceType, ConfigSource

    throttles = {*RATES, *REPLICAS}
    topics = sorted({move.topic_partition.topic for move in moves})
    brokers = sorted({broker for move in moves for broker in move.replicas}) if with_rates else []
    for kind, name in [
        *((ConfigResourceType.TOPIC, topic) for topic in topics),
        *((ConfigResourceType.BROKER, str(broker)) for broker in brokers),
    ]:
        own = {
            setting.name
            for setting in admin.describe_configs(kind, name)
            if setting.name in throttles
            and setting.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
        }
        if own:
            admin.change_configs(kind, name, dict.fromkeys(own))


def _cancelled_row(move: OngoingReassignment, errors: ReassignmentErrors) -> dict[str, object]:
    error = errors.get(move.topic_partition)
    return {
        "topic": move.topic_partition.topic,
        "partition": move.topic_partition.partition,
        "replicas": [replica for replica in move.replicas if replica not in move.adding],
        "dropped": list(move.adding),
        "status": "cancelled" if error is None else str(error),
    }


@app.command("list", short_help="List all reassignments in progress.")
def list_ongoing(
    zookeeper: RequiredZooKeeper = None,
    data_dir: ZooKeeperDataDir = None,
    command_config: CommandConfig = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """List all reassignments in progress: the current replicas, those in sync, and the new ones.

    Only those that were requested in ZooKeeper, not those that clients have requested from brokers.
    """
    from minikafka.clients.admin.zookeeper import reassignments

    with connect.zookeeper_store(zookeeper, None, data_dir, command_config) as store:
        found = reassignments.ongoing(store)
        throttled = throttle_text(store, found)
    print_verdicts(found, style, ONGOING_COLUMNS)
    if not found:
        note("minikafka: no reassignment that was requested in ZooKeeper is in progress")
    elif throttled:
        note(f"minikafka: {counted(len(found), 'partition')} in progress{throttled}")


def resume(store: Store, wanted: Replicas, style: Format, *, throttle: int | None, wait: bool) -> int:
    """Change the throttle of a plan that is already in progress, or wait for its end."""
    from minikafka.clients.admin.zookeeper import reassignments, throttles

    if throttle is not None:
        brokers = ", ".join(map(str, throttles.set_rates(store, wanted, throttle)))
        note(
            f"minikafka: already in progress; brokers {brokers} are now throttled to {throttle} bytes per "
            "second"
        )
        return 0
    if not wait:
        note("minikafka: already in progress; `reassign verify` shows its progress")
        print_verdicts(reassignments.verify(store, wanted), style)
        return 0
    note("minikafka: already in progress")
    verdicts = wait_for_end(store, wanted, throttled=bool(throttles.rates(store)))
    end_throttle(store, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


def end_throttle(store: Store, verdicts: Sequence[PartitionReassignment]) -> None:
    """Remove the throttle if every partition is done or deleted; otherwise print the progress."""
    from minikafka.clients.admin.zookeeper import reassignments, throttles
    from minikafka.clients.admin.zookeeper.reassignments import ReassignmentStatus

    done = sum(verdict.status is ReassignmentStatus.DONE for verdict in verdicts)
    if all(verdict.deleted or verdict.status is ReassignmentStatus.DONE for verdict in verdicts):
        partitions = counted(len(verdicts), "partition")
        ended = "all is done" if done == len(verdicts) else f"{done} of {partitions} done, the rest deleted"
        if reassignments.remove_throttle(store, verdicts):
            note(f"minikafka: {ended}; the throttle is removed")
        elif (others := reassignments.under_way(store)) and throttles.rates(store):
            note(f"minikafka: {ended}; {THROTTLE_STAYS.format(first_of(sorted(others), 5))}")
        return
    note(f"minikafka: {done} of {counted(len(verdicts), 'partition')} done{throttle_text(store, verdicts)}")


def throttle_text(store: Store, verdicts: Iterable[PartitionReassignment]) -> str:
    """Return the end of a note about the throttle of the partitions' brokers; "" if there is none."""
    from minikafka.clients.admin.zookeeper import throttles

    brokers = {broker for verdict in verdicts for broker in (*verdict.wanted, *verdict.replicas)}
    rates = " or ".join(map(str, throttles.rates(store, brokers)))
    return THROTTLED.format(rates) if rates else ""


def parse_broker_ids(text: str) -> list[int]:
    """Parse the broker ids of ``1,2``. Raise ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigError("--brokers", text, "must be broker ids separated by commas, such as 1,2")
    return [int(part) for part in parts]


def wait_for_end(store: Store, wanted: Replicas, *, throttled: bool) -> list[PartitionReassignment]:
    """Wait until no partition of the plan is in progress, and show the progress."""
    from minikafka.clients.admin.zookeeper import reassignments

    try:
        with Progress("moving partitions", len(wanted), lines=True) as progress:
            while left := len(reassignments.under_way(store).keys() & wanted.keys()):
                progress.advance(len(wanted) - left - progress.done)
                time.sleep(POLL_S)
            progress.advance(len(wanted) - progress.done)
    except KeyboardInterrupt:
        note(
            "minikafka: the reassignment continues; `reassign verify` shows its progress"
            f"{REMOVES_THROTTLE * throttled}"
        )
        raise
    return reassignments.verify(store, wanted)


def status_of(verdicts: Iterable[PartitionReassignment]) -> int:
    """Return the exit status for the verdicts."""
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
    """Print the status of each partition, and the reason for failures."""
    reasons = ["reason"] * any(verdict.reason for verdict in verdicts)
    print_rows(_verdict_rows(verdicts), [*columns, *reasons], style)


def _verdict_rows(verdicts: Iterable[PartitionReassignment]) -> list[dict[str, object]]:
    return [
        {
            "topic": verdict.topic_partition.topic,
            "partition": verdict.topic_partition.partition,
            "replicas": list(verdict.replicas),
            "in_sync": list(verdict.in_sync),
            "wanted": list(verdict.wanted),
            "status": verdict.status.value,
            "reason": verdict.reason or None,
        }
        for verdict in verdicts
    ]
