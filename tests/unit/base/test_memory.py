"""``base/memory``: objects that are created without garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from minikafka.base.memory import without_collection
from tests.support.raising import raising


@pytest.fixture(params=[True, False], ids=["enabled", "disabled"])
def before(request: pytest.FixtureRequest) -> Iterator[bool]:
    """The state of the garbage collector before the call."""
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_many_objects_are_created_without_a_collection(before: bool) -> None:
    begun: list[str] = []

    def count(phase: str, _: dict[str, int]) -> None:
        begun.append(phase)

    def create() -> list[list[int]]:
        gc.callbacks.append(count)
        found = [[number] for number in range(10_000)]
        gc.callbacks.remove(count)
        return found

    assert len(without_collection(create)) == 10_000
    assert begun == []
    assert gc.isenabled() is before


def test_the_collector_is_as_before_after_an_error(before: bool) -> None:
    with pytest.raises(ValueError, match="bad"):
        without_collection(raising(ValueError("bad")))
    assert gc.isenabled() is before


def test_a_call_during_another_one_leaves_the_collector_to_it() -> None:
    assert without_collection(lambda: (without_collection(gc.isenabled), gc.isenabled())) == (False, False)
    assert gc.isenabled()
