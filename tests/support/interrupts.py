"""Ctrl-C at a chosen place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FrameType


def interrupted_at(number: int, action: Callable[[], object], files: Collection[str]) -> bool:
    """Run ``action`` with Ctrl-C at this one of the places in ``files`` where Python looks for signals.

    They are the begin of a function, and after a call of C. Return False if there are fewer.
    """
    left = [number]

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename in files and event in {"call", "c_return"}:
            left[0] -= 1
            if left[0] < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False
