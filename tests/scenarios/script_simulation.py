"""The simulation for scripts: the results of commands become lines, and the brokers' log is kept."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from minikafka.base.errors import MinikafkaError
from tests.support.requests import Request
from tests.support.simulation import Client, Simulation

Lines = Iterable[str]


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A request of a script, and the function that shows its response."""

    request: Request
    show: Callable[[Any], Lines]


@dataclass(slots=True)
class Membership:
    """The id and generation of a group member, from the coordinator's responses."""

    member_id: str = ""
    generation: int = -1


class _Log(logging.Handler):
    """Collects warnings and errors of the brokers that were not shown yet."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self) -> list[str]:
        """Return the lines, repeated ones as one, and clear them."""
        lines = [self._line(record) for record in self.records]
        self.records.clear()
        groups = [(line, len(list(again))) for line, again in itertools.groupby(lines)]
        return [line if count == 1 else f"{line} (more than once)" for line, count in groups]

    @staticmethod
    def _line(record: logging.LogRecord) -> str:
        line = f"{record.levelname.lower()} {record.getMessage()}"
        return f"{line}: {record.exc_info[1]!r}" if record.exc_info else line


class ScriptSimulation(Simulation):
    """The simulation for scripts. A context manager, which captures the brokers' log."""

    def __init__(self) -> None:
        super().__init__()
        self.log = _Log()
        self.open: dict[str, tuple[Client, ScriptRequest]] = {}
        """Requests of ``begin`` whose response was not shown yet, by the client's name."""
        self.members: dict[tuple[str, str], Membership] = {}
        """Group and member name -> its membership."""
        self.operations_before: dict[int, int] = {}
        """Machine -> number of file operations before the last command."""

    def __enter__(self) -> ScriptSimulation:
        logging.getLogger("minikafka").addHandler(self.log)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("minikafka").removeHandler(self.log)

    def unshown_exceptions(self) -> list[str]:
        """Return exceptions in the brokers' log that the script did not show: most likely a bug."""
        self.log.records = [record for record in self.log.records if record.exc_info]
        return self.log.take()

    def perform(self, command: Callable[[], Any]) -> list[str]:
        """Run a command and everything that it causes without time passing; return its output."""
        seen = {number: len(machine.files.operations) for number, machine in self.machines.items()}
        try:
            result = command()
            lines = self._answer(result) if isinstance(result, ScriptRequest) else list(result or ())
        except MinikafkaError as error:
            lines = [f"{type(error).__name__}: {error}"]
        self.settle()
        self.network.run()
        self.operations_before = seen
        return lines

    def _answer(self, script_request: ScriptRequest) -> list[str]:
        began_ms = self.clock.monotonic_ms()
        self.begin(script_request.request)
        self.settle()
        answer = self.finish() if script_request.request.answered else None
        self.machine.files.note("answer")
        passed_ms = self.clock.monotonic_ms() - began_ms
        throttled_ms = getattr(answer, "throttle_time_ms", 0)
        times = [f"after {passed_ms} ms"] * (passed_ms > 0)
        times += [f"throttled for {throttled_ms} ms"] * (throttled_ms > 0)
        return times + list(script_request.show(answer))
