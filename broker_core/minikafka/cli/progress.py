"""A progress bar on stderr for whatever takes longer than a second, when somebody is looking."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import rich.progress

PATIENCE_S = 1.0
"""What is done sooner shows no bar at all."""
REDRAW_S = 0.1


class Progress:
    """Counts what is done; draws nothing unless ``stream`` is a terminal and a second has gone by.

    ``total`` is None where nobody knows it; ``hidden`` keeps it away where it would be in the way. rich is
    imported only when the bar appears.
    """

    def __init__(
        self, what: str, total: int | None = None, *, hidden: bool = False, stream: TextIO | None = None
    ) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._watched = not hidden and self._stream.isatty()
        self._started_s = time.monotonic()
        self._drawn_s = 0.0
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
        """Whether the bar has appeared."""
        return self._bar is not None

    def advance(self, count: int = 1) -> None:
        """``count`` more are done."""
        self.done += count
        if not self._watched:
            return
        now_s = time.monotonic()
        if now_s - self._started_s < PATIENCE_S or now_s - self._drawn_s < REDRAW_S:
            return
        self._drawn_s = now_s
        if self._bar is None:
            self._bar = self._make_bar()
            self._bar.start()
        self._draw()

    def _make_bar(self) -> rich.progress.Progress:
        from rich.console import Console
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
        bar.add_task(self._what, total=self._total, rate="")
        return bar

    def _draw(self) -> None:
        assert self._bar is not None
        rate = f"{self.done / max(self.elapsed_s, 1e-9):,.0f}/s"
        self._bar.update(self._bar.task_ids[0], completed=self.done, rate=rate)


@contextlib.contextmanager
def patience(what: str) -> Iterator[None]:
    """Show that something is going on, on a terminal, when the block takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()

    def show() -> None:
        if over.wait(PATIENCE_S):
            return
        from rich.console import Console

        with Console(stderr=True).status(what):
            over.wait()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
