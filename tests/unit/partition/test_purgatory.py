"""Requests that wait for a key or a deadline."""

from minikafka.partition.purgatory import Waiting


def test_a_ticket_is_found_under_each_of_its_keys() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.add("fetch", ["a", "b"], deadline_ms=100)
    assert waiting.watching("a") == ["fetch"]
    assert waiting.watching("b") == ["fetch"]
    assert waiting.watching("c") == []


def test_tickets_of_a_key_come_in_the_order_in_which_they_were_filed() -> None:
    waiting: Waiting[str] = Waiting()
    for ticket in ("first", "second", "third"):
        waiting.add(ticket, ["a"], deadline_ms=100)
    assert waiting.watching("a") == ["first", "second", "third"]


def test_a_ticket_that_was_removed_is_under_no_key_and_never_expires() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.add("fetch", ["a", "b"], deadline_ms=100)
    assert waiting.remove("fetch")
    assert waiting.watching("a") == []
    assert waiting.watching("b") == []
    assert waiting.expired(1000) == []
    assert len(waiting) == 0


def test_removing_a_ticket_twice_says_that_somebody_was_first() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.add("fetch", ["a"], deadline_ms=100)
    assert waiting.remove("fetch")
    assert not waiting.remove("fetch")


def test_a_ticket_expires_at_its_deadline_and_not_before() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.add("late", ["a"], deadline_ms=200)
    waiting.add("soon", ["a"], deadline_ms=100)
    assert waiting.expired(99) == []
    assert waiting.expired(100) == ["soon"]
    assert waiting.watching("a") == ["late"]
    assert waiting.expired(500) == ["late"]


def test_the_next_deadline_is_that_of_a_ticket_that_still_waits() -> None:
    waiting: Waiting[str] = Waiting()
    assert waiting.next_deadline_ms() is None
    waiting.add("soon", ["a"], deadline_ms=100)
    waiting.add("late", ["a"], deadline_ms=200)
    waiting.remove("soon")
    assert waiting.next_deadline_ms() == 200


def test_clearing_gives_every_ticket_once() -> None:
    waiting: Waiting[str] = Waiting()
    waiting.add("one", ["a", "b"], deadline_ms=100)
    waiting.add("two", ["a"], deadline_ms=50)
    assert waiting.clear() == ["one", "two"]
    assert waiting.clear() == []
    assert waiting.watching("a") == []


def test_answered_tickets_are_not_kept_until_their_deadline() -> None:
    waiting: Waiting[int] = Waiting()
    for ticket in range(10_000):
        waiting.add(ticket, ["a"], deadline_ms=1_000_000)
        waiting.remove(ticket)
    assert len(waiting._deadlines) < 200
