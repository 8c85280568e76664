"""Progress on stderr: a bar on a terminal, after one second; a line every ten seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from minikafka.base.printable import printable

if TYPE_CHECKING:
    import rich.progress

SHOW_AFTER_S = 1.0
"""The delay of the bar: shorter work shows none."""
REDRAW_S = 0.1
LINE_EVERY_S = 10.0
"""The time between two lines without a terminal."""


class Progress:
    """Counts finished work, and draws a bar after one second if ``stream`` is a terminal.

    total: None if it is unknown. hidden: draw no bar. lines: without a terminal, print a line every ten
    seconds. rich is imported only when the bar appears.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        hidden: bool = False,
        lines: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self.done = 0
        self._what = printable(what)
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._draws = self._stream.isatty() and not hidden
        self._prints_lines = not self._stream.isatty() and lines
        self._started_s = time.monotonic()
        self._next_s = self._started_s + (SHOW_AFTER_S if self._draws else LINE_EVERY_S)
        self._bar: rich.progress.Progress | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_s

    @property
    def visible(self) -> bool:
        """True once the bar has appeared."""
        return self._bar is not None

    def advance(self, count: int = 1) -> None:
        """Add ``count`` to the finished work."""
        self.done += count
        if not self._draws and not self._prints_lines:
            return
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (REDRAW_S if self._draws else LINE_EVERY_S)
        if self._prints_lines:
            of = "" if self._total is None else f" of {self._total:,}"
            print(f"minikafka: {self._what}: {self.done:,}{of}, {self._rate}", file=self._stream, flush=True)
            return
        if self._bar is None:
            self._bar = self._make_bar()
            self._bar.start()
        self._draw()

    @property
    def _rate(self) -> str:
        return f"{self.done / max(self.elapsed_s, 1e-9):,.0f}/s"

    def _make_bar(self) -> rich.progress.Progress:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        bar.add_task(escape(self._what), total=self._total, rate="")
        return bar

    def _draw(self) -> None:
        assert self._bar is not None
        self._bar.update(self._bar.task_ids[0], completed=self.done, rate=self._rate)


@contextlib.contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show a spinner on a terminal while the block runs, if it takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        if over.wait(SHOW_AFTER_S):
            return
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status(escape(printable(what))):
            over.wait()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
