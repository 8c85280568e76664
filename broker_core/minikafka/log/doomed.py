"""Files that nothing names any more, which are removed ``file.delete.delay.ms`` after that."""

from __future__ import annotations

import logging

from minikafka.base.clock import Clock
from minikafka.base.errors import StorageError
from minikafka.base.files import Files
from minikafka.log.log import Log

_logger = logging.getLogger(__name__)


class Doomed:
    """``add`` and ``remove_due`` may run on different threads."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._due: list[tuple[int, list[str]]] = []
        """When (the clock's monotonic scale), and what."""

    def add(self, log: Log, paths: list[str]) -> None:
        """Have these files of a log removed after its time."""
        self._due.append((self._clock.monotonic_ms() + log.config.file_delete_delay_ms, paths))

    def remove_due(self) -> None:
        """Remove the files whose time has come."""
        now_ms = self._clock.monotonic_ms()
        due = [entry for entry in list(self._due) if entry[0] <= now_ms]
        for entry in due:
            self._due.remove(entry)
            for path in entry[1]:
                try:
                    self._files.remove(path)
                except FileNotFoundError:
                    continue  # with its whole partition, for one
                except StorageError as error:
                    _logger.warning("%s; the next start removes it", error)
