"""Delayed requests that wait for a key or a deadline."""

import weakref

from minikafka.partition.purgatory import Purgatory


def test_a_ticket_is_found_under_each_of_its_keys() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("fetch", ["a", "b"], deadline_ms=100)
    assert purgatory.tickets_of("a") == ["fetch"]
    assert purgatory.tickets_of("b") == ["fetch"]
    assert purgatory.tickets_of("c") == []


def test_tickets_of_a_key_come_in_the_order_in_which_they_were_filed() -> None:
    purgatory: Purgatory[str] = Purgatory()
    for ticket in ("first", "second", "third"):
        purgatory.add(ticket, ["a"], deadline_ms=100)
    assert purgatory.tickets_of("a") == ["first", "second", "third"]


def test_a_ticket_that_was_removed_is_under_no_key_and_never_expires() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("fetch", ["a", "b"], deadline_ms=100)
    assert purgatory.remove("fetch")
    assert purgatory.tickets_of("a") == []
    assert purgatory.tickets_of("b") == []
    assert purgatory.take_expired(1000) == []
    assert len(purgatory) == 0


def test_a_ticket_may_be_filed_under_more_keys_and_fewer() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("session", ["a"], deadline_ms=100)
    purgatory.watch("session", ["a", "b"])
    purgatory.unwatch("session", "a")
    purgatory.unwatch("session", "c")
    assert [purgatory.tickets_of(key) for key in "abc"] == [[], ["session"], []]
    assert purgatory.remove("session")
    assert purgatory.tickets_of("b") == []


def test_a_ticket_that_was_removed_is_filed_under_no_further_key() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("session", [], deadline_ms=100)
    purgatory.remove("session")
    purgatory.watch("session", ["a"])
    purgatory.unwatch("session", "a")
    assert (len(purgatory), purgatory.tickets_of("a")) == (0, [])


def test_removing_a_ticket_twice_says_that_somebody_was_first() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("fetch", ["a"], deadline_ms=100)
    assert purgatory.remove("fetch")
    assert not purgatory.remove("fetch")


def test_a_ticket_expires_at_its_deadline_and_not_before() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("late", ["a"], deadline_ms=200)
    purgatory.add("soon", ["a"], deadline_ms=100)
    assert purgatory.take_expired(99) == []
    assert purgatory.take_expired(100) == ["soon"]
    assert purgatory.tickets_of("a") == ["late"]
    assert purgatory.take_expired(500) == ["late"]


def test_the_next_deadline_is_that_of_a_ticket_that_still_waits() -> None:
    purgatory: Purgatory[str] = Purgatory()
    assert purgatory.next_deadline_ms() is None
    purgatory.add("soon", ["a"], deadline_ms=100)
    purgatory.add("late", ["a"], deadline_ms=200)
    purgatory.remove("soon")
    assert purgatory.next_deadline_ms() == 200


def test_clearing_gives_every_ticket_once() -> None:
    purgatory: Purgatory[str] = Purgatory()
    purgatory.add("one", ["a", "b"], deadline_ms=100)
    purgatory.add("two", ["a"], deadline_ms=50)
    assert purgatory.clear() == ["one", "two"]
    assert purgatory.clear() == []
    assert purgatory.tickets_of("a") == []


def test_answered_tickets_are_not_kept_until_their_deadline() -> None:
    purgatory: Purgatory[int] = Purgatory()
    for ticket in range(10_000):
        purgatory.add(ticket, ["a"], deadline_ms=1_000_000)
        purgatory.remove(ticket)
    assert len(purgatory._deadlines) < 200


class Request:
    """A ticket that a weak reference can watch."""


def test_a_removed_ticket_does_not_stay_in_memory_until_its_deadline() -> None:
    purgatory: Purgatory[Request] = Purgatory()
    ticket = Request()
    purgatory.add(ticket, ["a"], deadline_ms=100)
    watched = weakref.ref(ticket)
    assert purgatory.remove(ticket)
    del ticket
    assert watched() is None


def test_deadlines_of_removed_tickets_are_dropped() -> None:
    purgatory: Purgatory[int] = Purgatory()
    for ticket in range(1_000):
        purgatory.add(ticket, ["a"], deadline_ms=100 + ticket)
    for ticket in range(999):
        assert purgatory.remove(ticket)
    assert purgatory.next_deadline_ms() == 1099
    assert purgatory.take_expired(2_000) == [999]
