"""Moves of logs between the data directories of their brokers, as a plan's ``log_dirs`` name them (KIP-113).

A broker copies the log while it serves it. A replica that it does not have yet is created in the directory
that was asked for before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.log_dirs import LogDir
from minikafka.clients.admin.partitions import PartitionsBackend
from minikafka.clients.admin.plan_files import LogDirs

OPTION = "log_dirs"
_NOT_THERE = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(frozen=True, slots=True)
class LogMove:
    """A log that is to be in another directory of its broker.

    before: where it is now; None: the broker does not have it, or its directory is offline. begun: it is
    being copied there already.
    """

    topic_partition: TopicPartition
    broker_id: int
    before: str | None
    after: str
    begun: bool = False
    size_bytes: int = 0
    copied_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.topic_partition} of broker {self.broker_id}"


def log_moves(backend: PartitionsBackend, log_dirs: LogDirs) -> list[LogMove]:
    """Return the logs that are not in their directories, sorted."""
    return _log_moves(log_dirs, _found(backend, log_dirs))


def checked_log_moves(backend: PartitionsBackend, log_dirs: LogDirs) -> list[LogMove]:
    """Return the logs that are not in their directories. Raises ConfigError for directories that a broker
    does not have, or that are offline.
    """
    found = _found(backend, log_dirs)
    _check_directories(log_dirs, found)
    return _log_moves(log_dirs, found)


def _found(backend: PartitionsBackend, log_dirs: LogDirs) -> list[LogDir]:
    brokers = {broker_id for wanted in log_dirs.values() for broker_id in wanted}
    return backend.log_dirs(brokers) if brokers else []


def _log_moves(log_dirs: LogDirs, found: list[LogDir]) -> list[LogMove]:
    current, future = _logs(found, future=False), _logs(found, future=True)
    moves = []
    for tp, wanted in sorted(log_dirs.items()):
        for broker_id, path in sorted(wanted.items()):
            now, size = current.get((tp, broker_id), (None, 0))
            to, copied = future.get((tp, broker_id), (None, 0))
            if now != path or to is not None:
                moves.append(LogMove(tp, broker_id, now, path, to == path, size, copied))
    return moves


def begin(backend: PartitionsBackend, moves: Iterable[LogMove]) -> None:
    """Begin the moves; where a broker does not have the log yet, it remembers the directory.

    Raises the first BrokerError.
    """
    by_broker: dict[int, dict[TopicPartition, LogMove]] = {}
    for move in moves:
        by_broker.setdefault(move.broker_id, {})[move.topic_partition] = move
    for broker_id, of_broker in by_broker.items():
        results = backend.move_logs(broker_id, {tp: move.after for tp, move in of_broker.items()})
        for tp, error in results.items():
            not_there = error is not None and error.code in _NOT_THERE
            if error is not None and not (not_there and of_broker[tp].before is None):
                raise BrokerError(error.code, f"{of_broker[tp]} to {of_broker[tp].after}: {error.detail}")


def cancel(backend: PartitionsBackend, moves: Iterable[LogMove]) -> list[LogMove]:
    """Give up the moves that have begun, and return them: the logs stay where they are."""
    begun = [move for move in moves if move.begun and move.before is not None]
    back = [LogMove(move.topic_partition, move.broker_id, move.before, move.before or "") for move in begun]
    begin(backend, back)
    return begun


def _check_directories(log_dirs: LogDirs, found: Iterable[LogDir]) -> None:
    known = {(log_dir.broker_id, log_dir.path): log_dir.error for log_dir in found}
    for tp, wanted in sorted(log_dirs.items()):
        for broker_id, path in sorted(wanted.items()):
            if (broker_id, path) not in known:
                others = ", ".join(sorted(other for number, other in known if number == broker_id))
                reason = f"broker {broker_id} has no such directory (for {tp}); it has {others}"
                raise ConfigError(OPTION, path, f"{reason}; nothing was changed")
            if (error := known[broker_id, path]) is not None:
                reason = f"the directory of broker {broker_id} is offline ({error.code.name})"
                raise ConfigError(OPTION, path, f"{reason}; nothing was changed")


def _logs(found: Iterable[LogDir], *, future: bool) -> Mapping[tuple[TopicPartition, int], tuple[str, int]]:
    """Return the directory and the size of each log."""
    return {
        (replica.topic_partition, log_dir.broker_id): (log_dir.path, replica.size_bytes)
        for log_dir in found
        for replica in log_dir.replicas
        if replica.is_future is future
    }
