"""The search for anomalies of transactions: finds each kind by its name, and none in correct histories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.records.format.batch import ControlType
from minikafka.records.format.record import Codec, StoredRecord, TimestampType
from tests.faults.anomalies import Poll, shown
from tests.faults.transaction_anomalies import (
    OffsetFetch,
    Outcome,
    Transaction,
    TransactionHistory,
    committed_rows,
    find,
)

A, B, COPIES = TopicPartition("list", 0), TopicPartition("list", 1), TopicPartition("copies", 0)
committed, unsure = Outcome.COMMITTED, Outcome.UNSURE


@dataclass
class Run:
    """A history, the committed records, and the offsets of groups at the end."""

    history: TransactionHistory = field(default_factory=TransactionHistory)
    logs: dict[TopicPartition, list[tuple[int, bytes]]] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)

    def of(self, writer: str) -> list[Transaction]:
        """The transactions of a writer."""
        return self.history.transactions[writer]

    def found(self) -> dict[str, list[str]]:
        """The anomalies."""
        return find(self.history, self.logs, self.offsets)


def correct() -> Run:
    """Two writers whose values alternate, a copier of one partition, and a reader of all.

    ``v`` has one transaction of each outcome, and an unsure one that is visible. The copier's second
    transaction is aborted, and its third copies the same record.
    """
    run = Run()
    history = run.history
    history.add_writer("v").extend(
        [
            Transaction(
                [(A, b"v0"), (B, b"v1"), (A, b"v2")], {b"v0": 0, b"v2": 2}, [], {}, {}, committed, 10
            ),
            Transaction([(A, b"v3"), (B, b"v4")], {b"v3": 4}),
            Transaction([(A, b"v5"), (B, b"v6")], outcome=unsure, commit_s=30),
            Transaction([(A, b"v7"), (B, b"v8")], outcome=unsure, commit_s=40),
        ]
    )
    history.add_writer("w").extend(
        [
            Transaction([(A, b"w0"), (B, b"w1")], {}, [], {}, {}, committed, 20),
            Transaction([(B, b"w2")], {}, [b"v0", b"w1"], {}, {}, committed, 50),
        ]
    )
    history.add_writer("copier").extend(
        [
            Transaction([(COPIES, b"c0")], {}, [b"v0"], {b"c0": (A, 0)}, {A: 1}, committed, 15),
            Transaction([(COPIES, b"c1")], {}, [b"w0"], {b"c1": (A, 1)}, {A: 2}),
            Transaction([(COPIES, b"c2")], {}, [b"w0"], {b"c2": (A, 1)}, {A: 2}, unsure, 26),
        ]
    )
    history.fetches["copier"] = [OffsetFetch(A, -1, 0), OffsetFetch(A, 1, 2), OffsetFetch(A, 2, 3)]
    run.offsets["copier"] = {A: 2}
    run.logs = {
        A: [(0, b"v0"), (1, b"w0"), (2, b"v2"), (8, b"v7")],
        B: [(0, b"w1"), (1, b"v1"), (7, b"v8"), (9, b"w2")],
        COPIES: [(0, b"c0"), (4, b"c2")],
    }
    history.add_reader("r", [A, B, COPIES]).extend(
        [
            Poll(1, A, ((0, b"v0"),), 12.0),
            Poll(1, A, ((1, b"w0"), (2, b"v2")), 22.0),
            Poll(1, B, ((0, b"w1"), (1, b"v1")), 23.0),
            Poll(1, A, ((8, b"v7"),), 45.0),
            Poll(1, B, ((7, b"v8"), (9, b"w2")), 55.0),
            Poll(1, COPIES, ((0, b"c0"), (4, b"c2")), 56.0),
        ]
    )
    return run


def read(run: Run, *partitions: TopicPartition) -> None:
    """Let the reader read these partitions, as they are now, once more from the start."""
    run.history.polls["r"] += [Poll(9, name, tuple(run.logs[name]), 90.0) for name in partitions]


def aborted_value_in_the_log(run: Run) -> None:
    run.logs[A].append((9, b"v3"))
    run.logs[B].append((10, b"v4"))
    read(run, A, B)
    run.of("v").append(run.of("v").pop(1))  # its values are the last ones


def aborted_value_in_a_poll(run: Run) -> None:
    run.history.polls["r"].append(Poll(1, A, ((9, b"v3"),), 91.0))


def read_before_the_commit(run: Run) -> None:
    run.of("v")[0].commit_s = 21.0


def unsure_transaction_half_there(run: Run) -> None:
    del run.logs[A][3], run.history.polls["r"][3]


def committed_transaction_half_there(run: Run) -> None:
    del run.logs[B][1]
    run.history.polls["r"][2] = Poll(1, B, ((0, b"w1"),), 23.0)


def committed_transaction_not_there(run: Run) -> None:
    run.of("w").append(Transaction([(A, b"w3"), (B, b"w4")], {}, [], {}, {}, committed, 60))


def value_there_twice(run: Run) -> None:
    run.logs[B].append((10, b"w2"))
    read(run, B)


def later_transaction_first(run: Run) -> None:
    transactions = run.of("v")
    transactions[0], transactions[3] = transactions[3], transactions[0]


def later_value_first(run: Run) -> None:
    run.of("v")[0].appends.reverse()


def read_again(run: Run) -> None:
    run.history.polls["r"].append(Poll(1, A, ((2, b"v2"),), 91.0))


def left_out(run: Run) -> None:
    run.history.polls["r"][1] = Poll(1, A, ((2, b"v2"),), 22.0)
    run.history.polls["r"].append(Poll(2, A, ((1, b"w0"),), 91.0))


def not_read_to_the_end(run: Run) -> None:
    run.history.polls["r"].pop()


def read_and_gone(run: Run) -> None:
    run.history.polls["r"].append(Poll(1, A, ((9, b"v5"),), 91.0))


def never_sent(run: Run) -> None:
    run.logs[A].append((9, b"x"))
    read(run, A)


def acknowledged_elsewhere(run: Run) -> None:
    run.of("v")[0].places[b"v2"] = 3


def circle_of_reads(run: Run) -> None:
    run.of("v")[0].reads.append(b"w1")
    run.of("w")[0].reads.append(b"v1")


def longer_circle_of_reads(run: Run) -> None:
    run.of("v")[0].reads.append(b"c2")
    run.of("w")[0].reads.append(b"v0")


def offsets_without_outputs(run: Run) -> None:
    run.of("copier")[2].outcome = Outcome.ABORTED
    del run.logs[COPIES][1]
    run.history.polls["r"][-1] = Poll(1, COPIES, ((0, b"c0"),), 56.0)


def outputs_without_offsets(run: Run) -> None:
    run.offsets["copier"] = {A: 1}


def offsets_lost_meanwhile(run: Run) -> None:
    run.history.fetches["copier"][1] = OffsetFetch(A, -1, 2)


def offsets_of_an_aborted_transaction_fetched(run: Run) -> None:
    run.history.fetches["copier"][1] = OffsetFetch(A, 2, 2)


def record_copied_twice(run: Run) -> None:
    run.of("copier").append(Transaction([(COPIES, b"c3")], {}, [], {b"c3": (A, 1)}, {A: 2}, committed, 60))
    run.logs[COPIES].append((7, b"c3"))
    read(run, COPIES)


def record_passed_over(run: Run) -> None:
    run.of("copier")[2].offsets[A] = run.offsets["copier"][A] = 3
    run.history.fetches["copier"].pop()


def noticed_by_a_client(run: Run) -> None:
    run.history.wrong.append("a fatal error")


def test_correct_history_has_no_anomalies() -> None:
    assert correct().found() == {}


def test_write_cycle_is_legal() -> None:
    run = correct()
    assert run.logs[A][:2] == [(0, b"v0"), (1, b"w0")], "v before w"
    assert run.logs[B][:2] == [(0, b"w1"), (1, b"v1")], "w before v"
    assert run.found() == {}


def test_unsure_transaction_may_be_invisible_and_its_offsets_old() -> None:
    run = correct()
    del run.logs[COPIES][1]
    run.history.polls["r"][-1] = Poll(1, COPIES, ((0, b"c0"),), 56.0)
    run.history.fetches["copier"][-1] = OffsetFetch(A, 1, 3)
    run.offsets["copier"] = {A: 1}
    assert run.found() == {}


@pytest.mark.parametrize("last", [2, 4])
def test_unsure_transaction_without_values_may_have_either_offset(last: int) -> None:
    run = correct()
    run.of("copier").append(Transaction(offsets={A: 4}, outcome=unsure, commit_s=60))
    run.history.fetches["copier"].append(OffsetFetch(A, last, 4))
    run.offsets["copier"] = {A: last}
    assert set(run.found()) == ({"not copied"} if last == 4 else set())


def record(offset: int, value: bytes, producer_id: int) -> StoredRecord:
    """A record of a transaction; with the value b"commit" or b"abort" it is a marker."""
    kind = {b"abort": ControlType.ABORT, b"commit": ControlType.COMMIT}.get(value)
    key = None if kind is None else bytes([0, 0, 0, kind])
    return StoredRecord(
        *(offset, -1, TimestampType.CREATE_TIME, key, value, 2, Codec.NONE),
        control=kind is not None,
        transactional=True,
        producer_id=producer_id,
    )


def test_committed_rows_are_those_before_commit_markers() -> None:
    log = [
        record(0, b"a", 1),
        record(1, b"b", 2),
        record(2, b"abort", 1),
        record(3, b"c", 1),
        record(4, b"commit", 2),
        record(5, b"commit", 1),
        record(6, b"open", 2),
    ]
    assert committed_rows(log) == [(1, b"b"), (3, b"c")]


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (aborted_value_in_the_log, {"G1a"}),
        (aborted_value_in_a_poll, {"G1a", "inconsistent offsets"}),
        (read_before_the_commit, {"precommitted read"}),
        (unsure_transaction_half_there, {"torn transaction"}),
        (committed_transaction_half_there, {"torn transaction", "lost write"}),
        (committed_transaction_not_there, {"lost write"}),
        (value_there_twice, {"duplicate"}),
        (later_transaction_first, {"reordered"}),
        (later_value_first, {"reordered", "nonmonotonic send"}),
        (read_again, {"nonmonotonic poll"}),
        (left_out, {"poll skip"}),
        (not_read_to_the_end, {"unseen"}),
        (read_and_gone, {"inconsistent offsets"}),
        (never_sent, {"phantom"}),
        (acknowledged_elsewhere, {"inconsistent offsets"}),
        (circle_of_reads, {"G1c"}),
        (longer_circle_of_reads, {"G1c"}),
        (offsets_without_outputs, {"lost offsets", "not copied"}),
        (outputs_without_offsets, {"lost offsets"}),
        (offsets_lost_meanwhile, {"lost offsets"}),
        (offsets_of_an_aborted_transaction_fetched, {"lost offsets"}),
        (record_copied_twice, {"copied twice"}),
        (record_passed_over, {"not copied"}),
        (noticed_by_a_client, {"reported by a client"}),
    ],
)
def test_anomaly_is_found_by_its_name(spoil: Callable[[Run], None], names: set[str]) -> None:
    run = correct()
    spoil(run)
    found = run.found()
    assert set(found) == names, shown(found)
    assert all(name in shown(found) for name in names)
