"""The search for anomalies: finds each kind by its name, and none in a correct history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.anomalies import History, Poll, Rows, find, shown

Logs = dict[int, list[tuple[int, bytes]]]


def correct() -> tuple[History, Logs]:
    """Two producers, one partition, one reader, and a record without a response."""
    history = History()
    history.add_sender("p", once=True, in_order=True).extend([(0, b"p0"), (0, b"p1"), (0, b"p2")])
    history.add_sender("q", once=False, in_order=True).extend([(0, b"q0"), (0, b"q1"), (0, b"q2")])
    history.acknowledged.update({b"p0": (0, 0), b"p2": (0, 5), b"q0": (0, 3)})
    history.failed.add(b"q2")
    log = [(0, b"p0"), (1, b"q0"), (2, b"p1"), (3, b"q0"), (5, b"p2")]
    history.add_reader("r").extend([Poll(1, 0, tuple(log[:3])), Poll(2, 0, tuple(log[2:]))])
    return history, {0: log}


def acknowledged_elsewhere(history: History, logs: Logs) -> None:
    history.acknowledged[b"p1"] = 0, 1


def acknowledged_and_nowhere(history: History, logs: Logs) -> None:
    history.acknowledged[b"q1"] = 0, 4


def acknowledged_out_of_order(history: History, logs: Logs) -> None:
    logs[0] += [(6, b"q1")]
    history.polls["r"].append(Poll(2, 0, ((6, b"q1"),)))
    history.acknowledged |= {b"q0": (0, 3), b"q1": (0, 2)}


def written_twice(history: History, logs: Logs) -> None:
    logs[0] += [(6, b"p2")]
    history.polls["r"].append(Poll(2, 0, ((6, b"p2"),)))


def overtaken(history: History, logs: Logs) -> None:
    logs[0] = [(0, b"p2"), (1, b"p0")]
    history.acknowledged.clear()
    history.polls["r"] = [Poll(1, 0, tuple(logs[0]))]


def written_though_rejected(history: History, logs: Logs) -> None:
    logs[0] += [(6, b"q2")]
    history.polls["r"].append(Poll(2, 0, ((6, b"q2"),)))


def never_sent(history: History, logs: Logs) -> None:
    logs[0] += [(6, b"x")]
    history.polls["r"].append(Poll(2, 0, ((6, b"x"),)))


def truncated_after_it_was_read(history: History, logs: Logs) -> None:
    history.polls["r"].append(Poll(2, 0, ((6, b"p1"),)))


def left_out_at_the_end(history: History, logs: Logs) -> None:
    history.polls["r"][-1] = Poll(2, 0, tuple(logs[0][2:4]))


def read_again_without_a_reason(history: History, logs: Logs) -> None:
    history.polls["r"].append(Poll(2, 0, (logs[0][0],)))


def read_again_in_one_poll(history: History, logs: Logs) -> None:
    history.polls["r"].append(Poll(3, 0, (logs[0][1], logs[0][0])))


def left_out_between_polls(history: History, logs: Logs) -> None:
    history.polls["r"] += [Poll(3, 0, (logs[0][0],)), Poll(3, 0, (logs[0][2],))]


def left_out_in_a_poll(history: History, logs: Logs) -> None:
    history.polls["r"].append(Poll(3, 0, (logs[0][0], logs[0][2])))


def noticed_by_a_client(history: History, logs: Logs) -> None:
    history.wrong.append("a fatal error")


def test_correct_history_has_no_anomalies() -> None:
    assert find(*correct()) == {}


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        (acknowledged_elsewhere, {"inconsistent offsets"}),
        (acknowledged_and_nowhere, {"lost write", "inconsistent offsets"}),
        (acknowledged_out_of_order, {"nonmonotonic send", "inconsistent offsets"}),
        (written_twice, {"duplicate"}),
        (overtaken, {"reordered"}),
        (written_though_rejected, {"G1a"}),
        (never_sent, {"phantom"}),
        (truncated_after_it_was_read, {"inconsistent offsets"}),
        (left_out_at_the_end, {"unseen"}),
        (read_again_without_a_reason, {"nonmonotonic poll"}),
        (read_again_in_one_poll, {"int-nonmonotonic poll"}),
        (left_out_between_polls, {"poll skip"}),
        (left_out_in_a_poll, {"int-poll skip"}),
        (noticed_by_a_client, {"reported by a client"}),
    ],
)
def test_anomaly_is_found_by_its_name(
    spoil: Callable[[History, dict[int, Rows]], None], names: set[str]
) -> None:
    history, logs = correct()
    spoil(history, logs)  # type: ignore[arg-type]
    found = find(history, logs)
    assert set(found) == names
    assert all(name in shown(found) for name in names)
