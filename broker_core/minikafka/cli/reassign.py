"""``minikafka reassign``: moves partitions to other brokers, and logs to other directories."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.config.types import digit_list
from minikafka.base.errors import ConfigError
from minikafka.base.text import counted, first_of
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    DisableRackAware,
    Format,
    NotExactlyOne,
    OutputFormat,
    ZooKeeper,
    number_option,
    read_file,
    text_argument,
    value_option,
)
from minikafka.cli.terminal.output import note, print_rows, say
from minikafka.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.admin.log_moves import LogMove
    from minikafka.clients.admin.partitions import PartitionsBackend
    from minikafka.clients.admin.plan_files import ReassignmentPlan
    from minikafka.clients.admin.reassignment_plans import Move, PartitionReassignment, PlanChanges, Throttle
    from minikafka.clients.admin.reassignments import OngoingReassignment, ReassignmentErrors

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
LOG_MOVE_COLUMNS = ["topic", "partition", "broker", "from_dir", "to_dir"]
ONGOING_COLUMNS = ["topic", "partition", "replicas", "in_sync", "wanted", "status"]
CANCELLED_COLUMNS = ["topic", "partition", "replicas", "dropped", "status"]
VERDICT_COLUMNS = ["topic", "partition", "replicas", "in_sync", "status"]

PlanFile = Annotated[
    Path,
    value_option(
        "--file",
        "J",
        '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}, also with "log_dirs": one '
        'directory for each replica, "any" for those that stay.',
        Path,
    ),
]


@app.command(short_help="Print a plan that spreads topics over brokers.")
def generate(
    brokers: Annotated[str, value_option("--brokers", "1,2", "The ids of the new brokers.")],
    topics: Annotated[list[str] | None, text_argument("TOPIC")] = None,
    file: Annotated[Path | None, value_option("--file", "J", '{"topics": [{"topic": "t"}]}', Path)] = None,
    replicas: Annotated[
        int | None,
        number_option("--replicas", "N", "Replicas per partition. [as now]", 1, show_default=False),
    ] = None,
    disable_rack_aware: DisableRackAware = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
) -> None:
    """Spread topics over brokers: print the plan for `execute` as JSON, and change nothing."""
    from minikafka.clients.admin import plan_files, reassignment_plans

    if bool(topics) == bool(file):
        raise NotExactlyOne(
            ["TOPIC", "--file"] if topics else [], "no topics are named", "TOPIC and --file J"
        )
    broker_ids = parse_broker_ids(brokers)
    names = topics or plan_files.read_topics(read_file(file or Path()), "--file", str(file))
    with connect.partitions(bootstrap, zookeeper, data_dir, command_config) as backend:
        try:
            moves = reassignment_plans.generate(
                backend, names, broker_ids, replicas=replicas, rack_aware=not disable_rack_aware
            )
        except ConfigError as fault:
            if fault.name != "brokers":
                raise
            raise ConfigError("--brokers", brokers, fault.allowed) from None
    plan = plan_files.ReassignmentPlan({move.topic_partition: move.after for move in moves})
    say(plan_files.reassignment_json(plan))
    changed = [move for move in moves if move.before != move.after]
    text = _changes(reassignment_plans.PlanChanges(changed, []), len(moves))
    note(f"minikafka: {text}; save the plan and run `reassign execute --file`")


@app.command(short_help="Move partitions and logs as a plan says.")
def execute(
    file: PlanFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all is done.")] = True,
    throttled: Annotated[
        int | None,
        number_option(
            "--throttle",
            "BYTES_PER_SECOND",
            "Limit of each broker. For a plan in progress, changes only the limit.",
            1,
            show_default=False,
        ),
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        number_option(
            "--replica-alter-log-dirs-throttle",
            "BYTES_PER_SECOND",
            "As --throttle, for copies between the directories of a broker.",
            1,
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Move partitions to other replicas, and logs to other directories. Status 1 if a move fails.

    A plan that is already in progress is waited for. A throttle is removed at the end of the wait; with
    --no-wait, `reassign verify` removes it once all is done.
    """
    from minikafka.clients.admin import plan_files, reassignment_plans

    plan = plan_files.read_reassignment(read_file(file), "--file", str(file))
    throttle = reassignment_plans.Throttle(throttled, log_dirs_throttle)
    with connect.partitions(bootstrap, zookeeper, data_dir, command_config) as backend:
        if reassignment_plans.is_under_way(backend, plan):
            return resume(
                backend, plan, style, throttle=None if dry_run else throttle, wait=wait and not dry_run
            )
        changes = reassignment_plans.changes_of(backend, plan)
        if throttle and not dry_run:
            reassignment_plans.check_not_under_way(backend)
        if dry_run or not changes:
            others = backend.under_way()
            refused = IN_PROGRESS.format(first_of(sorted(others), 5)) if others else ""
            print_changes(changes, style)
            text = _changes(changes, len(plan.replicas))
            note(f"minikafka: {text}{'; nothing was changed' * dry_run}{refused}")
            return 0
        reassignment_plans.begin(backend, changes, throttle)
        before = plan_files.reassignment_json(changes.rollback(plan))
        text = _changes(changes, len(plan.replicas))
        note(f"minikafka: {text}; the plan for a rollback: {before}")
        if not wait:
            print_changes(changes, style)
            return 0
        verdicts = wait_for_end(backend, changes.part_of(plan), throttled=bool(throttle))
        if throttle:
            end_throttle(backend, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


@app.command()
def verify(
    file: PlanFile,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Show the progress of a reassignment. Status 0: all is done. 1: a move has failed. 3: in progress.

    A throttle is removed when all is done.
    """
    from minikafka.clients.admin import plan_files, reassignment_plans

    plan = plan_files.read_reassignment(read_file(file), "--file", str(file))
    with connect.partitions(bootstrap, zookeeper, data_dir, command_config) as backend:
        verdicts = reassignment_plans.verify(backend, plan)
        end_throttle(backend, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


@app.command(short_help="Cancel reassignments in progress.")
def cancel(
    file: Annotated[
        Path | None, value_option("--file", "J", "The plan; only its partitions that are in progress.", Path)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are in progress.")] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Give partitions back the replicas that they had, and remove the throttle. Status 1 if that fails.

    Moves between directories are cancelled with --file. Brokers before Kafka 2.4, or beside them, cannot
    cancel reassignments.
    """
    from minikafka.clients.admin import log_moves, plan_files, throttles
    from minikafka.clients.admin.partitions import BrokerPartitions
    from minikafka.clients.admin.reassignments import list_reassignments

    if everything == (file is not None):
        raise NotExactlyOne(["--file", "--all"] * everything, "no plan is given", "--file J and --all")
    plan = None if file is None else plan_files.read_reassignment(read_file(file), "--file", str(file))
    with connect.cluster_client(bootstrap, data_dir, command_config, writes=True) as cluster:
        backend = BrokerPartitions(cluster)
        moves = [] if plan is None else log_moves.cancel(backend, log_moves.log_moves(backend, plan.log_dirs))
        ongoing = [
            move
            for move in list_reassignments(cluster, cluster.deadline())
            if plan is None or move.topic_partition in plan.replicas
        ]
        errors = backend.cancel(move.topic_partition for move in ongoing)
        topics = {move.topic_partition.topic for move in ongoing}
        topics |= {move.topic_partition.topic for move in moves}
        if topics:
            throttles.remove(backend, topics, with_rates=not backend.under_way())
    print_rows([_cancelled_row(move, errors) for move in ongoing], CANCELLED_COLUMNS, style)
    print_log_moves(moves, style)
    if not ongoing and not moves:
        note(f"minikafka: no reassignment {'of this plan ' if plan else ''}is in progress")
    return int(any(errors.values()))


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
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: ZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """List all reassignments in progress: the current replicas, those in sync, and the new ones.

    With --zookeeper, only those that were requested there, not those that brokers were asked for.
    """
    from minikafka.clients.admin import reassignment_plans

    with connect.partitions(bootstrap, zookeeper, data_dir, command_config) as backend:
        found = reassignment_plans.ongoing(backend)
        throttled = throttle_text(backend, found)
    print_verdicts(found, style, ONGOING_COLUMNS)
    if not found:
        requested = " that was requested in ZooKeeper" if zookeeper else ""
        note(f"minikafka: no reassignment{requested} is in progress")
    elif throttled:
        note(f"minikafka: {counted(len(found), 'partition')} in progress{throttled}")


def resume(
    backend: PartitionsBackend,
    plan: ReassignmentPlan,
    style: Format,
    *,
    throttle: Throttle | None,
    wait: bool,
) -> int:
    """Change the throttle of a plan that is already in progress, or wait for its end."""
    from minikafka.clients.admin import reassignment_plans, throttles

    if throttle:
        brokers = ", ".join(map(str, reassignment_plans.change_throttle(backend, plan, throttle)))
        limits = (throttle.replication, throttle.log_dirs)
        rates = " and ".join(str(limit) for limit in limits if limit is not None)
        note(
            f"minikafka: already in progress; brokers {brokers} are now throttled to {rates} bytes per second"
        )
        return 0
    if not wait:
        note("minikafka: already in progress; `reassign verify` shows its progress")
        print_verdicts(reassignment_plans.verify(backend, plan), style)
        return 0
    note("minikafka: already in progress")
    verdicts = wait_for_end(backend, plan, throttled=bool(throttles.rates(backend)))
    end_throttle(backend, verdicts)
    print_verdicts(verdicts, style)
    return status_of(verdicts)


def end_throttle(backend: PartitionsBackend, verdicts: Sequence[PartitionReassignment]) -> None:
    """Remove the throttle if every partition is done or deleted; otherwise print the progress."""
    from minikafka.clients.admin import reassignment_plans, throttles
    from minikafka.clients.admin.reassignment_plans import ReassignmentStatus

    done = sum(verdict.status is ReassignmentStatus.DONE for verdict in verdicts)
    if all(verdict.deleted or verdict.status is ReassignmentStatus.DONE for verdict in verdicts):
        partitions = counted(len(verdicts), "partition")
        ended = "all is done" if done == len(verdicts) else f"{done} of {partitions} done, the rest deleted"
        if reassignment_plans.remove_throttle(backend, verdicts):
            note(f"minikafka: {ended}; the throttle is removed")
        elif (others := backend.under_way()) and throttles.rates(backend):
            note(f"minikafka: {ended}; {THROTTLE_STAYS.format(first_of(sorted(others), 5))}")
        return
    text = throttle_text(backend, verdicts)
    note(f"minikafka: {done} of {counted(len(verdicts), 'partition')} done{text}")


def throttle_text(backend: PartitionsBackend, verdicts: Iterable[PartitionReassignment]) -> str:
    """Return the end of a note about the throttle of the partitions' brokers; "" if there is none."""
    from minikafka.clients.admin import throttles

    brokers = {broker for verdict in verdicts for broker in (*verdict.wanted, *verdict.replicas)}
    rates = " or ".join(map(str, throttles.rates(backend, brokers)))
    return THROTTLED.format(rates) if rates else ""


def parse_broker_ids(text: str) -> list[int]:
    """Parse the broker ids of ``1,2``. Raise ConfigError."""
    found = digit_list(text)
    if found is None:
        raise ConfigError("--brokers", text, "must be broker ids separated by commas, such as 1,2")
    return found


def wait_for_end(
    backend: PartitionsBackend, plan: ReassignmentPlan, *, throttled: bool
) -> list[PartitionReassignment]:
    """Wait until no partition of the plan is in progress, and show the progress: first of the partitions that
    are copied to other brokers, then in bytes of the logs that move to another directory.
    """
    from minikafka.clients.admin import reassignment_plans

    def moving_logs() -> list[LogMove]:
        return reassignment_plans.log_moves_under_way(backend, plan)

    try:
        total = len(plan.replicas)
        with Progress("moving partitions", total, lines=True) as progress:
            while left := reassignment_plans.partitions_under_way(backend, plan):
                progress.advance(total - len(left) - progress.done)
                time.sleep(POLL_S)
            progress.advance(total - progress.done)
        moves = moving_logs()
        total = sum(move.size_bytes for move in moves)
        with Progress("moving logs, bytes", total, lines=True) as progress:
            while moves:
                progress.advance(
                    total - sum(move.size_bytes - move.copied_bytes for move in moves) - progress.done
                )
                time.sleep(POLL_S)
                moves = moving_logs()
            progress.advance(total - progress.done)
    except KeyboardInterrupt:
        note(
            "minikafka: the reassignment continues; `reassign verify` shows its progress"
            f"{REMOVES_THROTTLE * throttled}"
        )
        raise
    return reassignment_plans.verify(backend, plan)


def status_of(verdicts: Iterable[PartitionReassignment]) -> int:
    """Return the exit status for the verdicts."""
    from minikafka.clients.admin.reassignment_plans import ReassignmentStatus

    found = {verdict.status for verdict in verdicts}
    if ReassignmentStatus.FAILED in found:
        return 1
    return UNDER_WAY if ReassignmentStatus.UNDER_WAY in found else 0


def _changes(changes: PlanChanges, total: int) -> str:
    copies = sum(len(move.adds) for move in changes.moves)
    changed = len(changes.partitions)
    text = (
        f"{changed} of {counted(total, 'partition')} {'changes' if changed == 1 else 'change'}, "
        f"{counted(copies, 'replica')} to copy"
    )
    return text + f", {counted(len(changes.log_moves), 'log')} to move" * bool(changes.log_moves)


def print_changes(changes: PlanChanges, style: Format) -> None:
    """Print the partitions whose replicas change, and the logs that move to another directory."""
    if changes.moves or not changes.log_moves:
        print_rows(_move_rows(changes.moves), MOVE_COLUMNS, style)
    print_log_moves(changes.log_moves, style)


def print_log_moves(moves: Sequence[LogMove], style: Format) -> None:
    """Print the logs that move to another directory, if there are any."""
    rows = [
        {
            "topic": move.topic_partition.topic,
            "partition": move.topic_partition.partition,
            "broker": move.broker_id,
            "from_dir": move.before,
            "to_dir": move.after,
        }
        for move in moves
    ]
    if rows:
        print_rows(rows, LOG_MOVE_COLUMNS, style)


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
