"""Any history of producers, read from anywhere to anywhere: what is left is what Kafka's consumer gives, and
what was committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from minikafka.records.columns import decode
from minikafka.records.scan.isolation import without_aborted
from tests.oracles.batches import Batch, batch
from tests.oracles.messages import Message
from tests.oracles.transactions import Transaction, aborted_in, committed

NONE = -1
PRODUCERS = st.sampled_from([NONE, 5, 5, 6])
STEPS = st.tuples(
    PRODUCERS,
    st.sampled_from(["write", "write", "write outside", "commit", "abort"]),
    st.integers(1, 3),  # records
    st.sampled_from([0, 0, 3, 4]),  # codec
    st.integers(0, 2),  # offsets at the end that compaction took
)


@dataclass
class History:
    """A log as brokers write it: batches, and the outcomes of the transactions."""

    batches: list[bytes] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    written: dict[int, list[int]] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    counting: list[int] = field(default_factory=list)

    def add(self, producer: int, action: str, count: int, codec: int, gap: int) -> None:
        if producer == NONE or action == "write outside":
            self.counting += self._append(count, Batch(codec=codec, producer_id=producer, more_offsets=gap))
        elif action == "write":
            self.open.setdefault(producer, self.end)
            about = Batch(codec=codec, producer_id=producer, transactional=True, more_offsets=gap)
            self.written.setdefault(producer, []).extend(self._append(count, about))
        elif producer in self.open:
            key = b"\0\0\0" + bytes([action == "commit"])
            about = Batch(producer_id=producer, transactional=True, control=True)
            (at,) = self._append(1, about, key)
            first = self.open.pop(producer)
            self.transactions.append(Transaction(producer, first, at, aborted=action == "abort"))
            if action == "commit":
                self.counting += self.written[producer]
            self.written[producer] = []

    def _append(self, count: int, about: Batch, key: bytes | None = None) -> list[int]:
        offsets = list(range(self.end, self.end + count))
        self.firsts.append(self.end)
        self.batches.append(batch([Message(n, 0, 0, key, b"v%d" % n) for n in offsets], about))
        self.end += count + about.more_offsets
        return offsets


@given(st.lists(STEPS, min_size=12, max_size=30), st.data())
def test_any_part_of_a_log_gives_its_committed_records(
    steps: list[tuple[int, str, int, int, int]], data: st.DataObject
) -> None:
    history = History()
    for step in steps:
        history.add(*step)
    for producer in data.draw(st.just(list(history.open)) | st.just([])):
        history.add(producer, "abort", 1, 0, 0)
    stable = min(history.open.values(), default=history.end)
    readable = sum(first < stable for first in history.firsts)
    begin = data.draw(st.just(0) | st.integers(0, readable))
    stop = data.draw(st.just(readable) | st.integers(begin, readable))
    part = history.batches[begin:stop]
    start, end = [*history.firsts, history.end][begin], [*history.firsts, history.end][stop]
    aborted = data.draw(st.permutations(aborted_in(history.transactions, start, end)))

    columns = decode(without_aborted(memoryview(b"".join(part)), aborted), start, history.end)

    found = columns.offsets.tolist()
    assert found == [message.offset for message in committed(part, aborted)]
    assert found == sorted(n for n in history.counting if start <= n < end)
    assert columns.value_array().to_pylist() == [b"v%d" % n for n in found]
