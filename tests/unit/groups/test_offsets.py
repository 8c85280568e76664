"""The committed offsets of a group: their visibility, order and expiration."""

from __future__ import annotations

from minikafka.base.ids import TopicPartition
from minikafka.groups.messages import NEVER_MS, OffsetCommitValue
from minikafka.groups.offsets import CommittedOffsets

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RETENTION_MS = 1_000
MANY = 1_000


def at(offset: int, *, time_ms: int = 0, expires_ms: int = NEVER_MS) -> OffsetCommitValue:
    return OffsetCommitValue(offset, -1, "", time_ms, expires_ms)


def committed(**times_ms: int) -> CommittedOffsets:
    """A group that has committed ``a`` and ``b`` at these times."""
    offsets = CommittedOffsets()
    for number, (name, time_ms) in enumerate(times_ms.items()):
        offsets.load({"a": A, "b": B}[name], number, at(1, time_ms=time_ms))
    return offsets


def test_a_commit_is_seen_when_it_is_done() -> None:
    offsets = CommittedOffsets()
    commit = {A: at(5)}
    offsets.begin(commit)
    assert offsets.get(A) is None
    assert offsets.has_any
    offsets.complete(commit, 10)
    assert offsets.get(A) == at(5)
    assert offsets.all() == commit


def test_a_commit_that_fails_leaves_what_was() -> None:
    offsets = CommittedOffsets()
    first, second = {A: at(5)}, {A: at(6)}
    for commit in (first, second):
        offsets.begin(commit)
    offsets.complete(first, 10)
    offsets.abort(second)
    assert offsets.get(A) == at(5)


def test_a_failed_commit_does_not_take_the_next_one_with_it() -> None:
    offsets = CommittedOffsets()
    first, second = {A: at(5)}, {A: at(5)}
    for commit in (first, second):
        offsets.begin(commit)
    offsets.abort(first)
    offsets.complete(second, 11)
    assert offsets.get(A) == at(5)


def test_failed_commit_does_not_take_an_earlier_one_with_it() -> None:
    offsets = CommittedOffsets()
    first, second = {A: at(5)}, {A: at(6)}
    for commit in (first, second):
        offsets.begin(commit)
    offsets.abort(second)
    offsets.complete(first, 10)
    assert offsets.get(A) == at(5)


def test_removed_commit_does_not_return_with_a_later_one() -> None:
    offsets = CommittedOffsets()
    first, second = {A: at(5)}, {A: at(6)}
    offsets.begin(first)
    offsets.remove([A])
    offsets.begin(second)
    offsets.complete(first, 10)
    assert offsets.get(A) is None
    offsets.complete(second, 12)
    assert offsets.get(A) == at(6)


def test_later_commit_in_the_log_counts_in_any_order_of_completion() -> None:
    offsets = CommittedOffsets()
    first, second = {A: at(5)}, {A: at(6)}
    for commit in (first, second):
        offsets.begin(commit)
    offsets.complete(second, 11)
    offsets.complete(first, 10)
    assert offsets.get(A) == at(6)


def test_a_commit_may_go_back() -> None:
    offsets = CommittedOffsets()
    for log_offset, commit in enumerate([{A: at(6)}, {A: at(2)}]):
        offsets.begin(commit)
        offsets.complete(commit, log_offset)
    assert offsets.get(A) == at(2)


def test_commit_to_a_topic_deleted_meanwhile_is_removed() -> None:
    offsets = CommittedOffsets()
    commit = {A: at(5)}
    offsets.begin(commit)
    assert offsets.remove([A]) == [A]
    offsets.complete(commit, 10)
    assert not offsets.has_any


def test_only_what_was_committed_is_removed() -> None:
    offsets = committed(a=0)
    assert offsets.remove([A, B]) == [A]
    assert len(offsets) == 0


def test_all_that_is_removed_is_what_was_committed_and_what_is_pending() -> None:
    offsets = committed(a=0)
    offsets.begin({A: at(2), B: at(3)})
    assert offsets.remove_all() == [A, B]
    assert not offsets.has_any


def test_offset_outside_a_group_expires_by_its_commit() -> None:
    offsets = committed(a=0, b=1)
    assert offsets.expire(999, RETENTION_MS, None, MANY) == []
    assert offsets.expire(1_000, RETENTION_MS, None, MANY) == [A]
    assert list(offsets.all()) == [B]


def test_offsets_of_a_group_expire_after_its_last_member_left() -> None:
    offsets = committed(a=0, b=5_000)
    assert offsets.expire(10_999, RETENTION_MS, 10_000, MANY) == []
    assert offsets.expire(11_000, RETENTION_MS, 10_000, MANY) == [A, B]


def test_a_retention_of_its_own_counts_from_the_commit() -> None:
    offsets = CommittedOffsets()
    offsets.load(A, 0, at(1, expires_ms=300))
    offsets.load(B, 1, at(1, expires_ms=90_000))
    assert offsets.expire(299, RETENTION_MS, 0, MANY) == []
    assert offsets.expire(5_000, RETENTION_MS, 0, MANY) == [A]


def test_pending_commit_does_not_expire() -> None:
    offsets = committed(a=0)
    offsets.begin({A: at(2, time_ms=5_000)})
    assert offsets.expire(5_000, RETENTION_MS, None, MANY) == []
