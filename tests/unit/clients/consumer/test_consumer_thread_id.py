"""``clients/consumer/assignment``: the threads' names and their order."""

from __future__ import annotations

import pytest

from minikafka.clients.consumer.assignment import ConsumerThreadId


def test_a_thread_is_called_by_its_consumer_and_its_number() -> None:
    assert str(ConsumerThreadId("g_host-1-abc", 2)) == "g_host-1-abc-2"


def test_threads_sort_by_name_so_ten_precedes_two() -> None:
    threads = [ConsumerThreadId("c1", number) for number in range(12)] + [ConsumerThreadId("c10", 0)]
    ordered = sorted(threads)
    assert ordered == sorted(threads, key=str)
    assert [one.thread_id for one in ordered if one.consumer == "c1"] == [
        0,
        1,
        10,
        11,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        9,
    ]
    assert ConsumerThreadId("c1", 11) > ConsumerThreadId("c1", 10)


def test_the_order_is_that_of_java_for_every_text() -> None:
    above, below = ConsumerThreadId("\uffee", 0), ConsumerThreadId("\U0001f600", 0)
    assert below < above


@pytest.mark.parametrize(
    ("text", "thread"),
    [
        ("old-group_c1-0", ConsumerThreadId("old-group_c1", 0)),
        ("c-", None),
        ("c", None),
        ("-1", None),
        ("c-²", None),
    ],
)
def test_an_owners_text_names_a_thread_or_none(text: str, thread: ConsumerThreadId | None) -> None:
    assert ConsumerThreadId.parse(text) == thread
