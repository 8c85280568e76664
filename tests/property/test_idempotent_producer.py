"""An idempotent producer through anything that brokers and networks do: what is acknowledged is in the log
once, at its offset, nothing is there twice, and everything is in the order of its sending.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.produce import BatchingConfig, BatchingProducer, SendFuture
from minikafka.net.memory import Fault
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, produce_error

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
CODES = [
    ErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
]
AFTER_AN_APPEND = [*CODES[:1], *CODES[2:4]]
"""What a broker says of records that it has."""
FAULTS = [Fault.CUT_REQUEST, Fault.CUT_RESPONSE, Fault.DROP_REQUEST, Fault.DROP_RESPONSE]


class ProducerHarness:
    def __init__(self, seed: int, **settings: Any) -> None:
        self.chance = random.Random(seed)
        self.brokers = BrokerHarness(2, {"t": 3})
        self.sent: dict[TopicPartition, list[tuple[bytes, int, SendFuture]]] = {tp: [] for tp in PARTITIONS}
        self.producer = BatchingProducer(
            self.brokers.client(), BatchingConfig(idempotence=True, **settings), threads=False
        )

    def send(self) -> None:
        tp = self.chance.choice(PARTITIONS)
        count = self.chance.randint(1, 4)
        values = [b"%d" % (len(self.sent[tp]) + number) for number in range(count)]
        if self.chance.random() < 0.5:
            data = bytearray(build_message_set([Record(None, value) for value in values], magic=2))
            future = self.producer.send_encoded(tp, data, count, sealed=self.chance.random() < 0.5)
            self.sent[tp] += [(value, number, future) for number, value in enumerate(values)]
        else:
            for value in values:
                future = self.producer.send("t", value, partition=tp.partition)
                self.sent[tp].append((value, 0, future))

    def trouble(self) -> None:
        kind = self.chance.randrange(6)
        if kind == 0:
            self.brokers.move_leader(self.chance.choice(PARTITIONS), self.chance.randint(1, 2))
        elif kind == 1:
            self.brokers.fault(self.chance.randint(1, 2), self.chance.choice(FAULTS))
        elif kind == 2:
            self.brokers.script(ApiKey.PRODUCE, produce_error(self.chance.choice(CODES)))
        elif kind == 3:
            refusal = produce_error(self.chance.choice(AFTER_AN_APPEND))
            take = self.brokers.serve
            self.brokers.script(ApiKey.PRODUCE, lambda *a: (take(*a), refusal(*a))[1])
        elif kind == 4:
            self.brokers.script(ApiKey.PRODUCE, produce_error(ErrorCode.MESSAGE_TOO_LARGE))
        else:
            self.brokers.script(ApiKey.INIT_PRODUCER_ID, lambda *_: Fault.CUT_REQUEST)

    def check(self) -> None:
        for tp, sent in self.sent.items():
            stored = self.brokers.logs[tp].values()
            assert len(set(stored)) == len(stored), f"{tp} has records twice"
            order = [value for value, _, _ in sent]
            assert [value for value in order if value in set(stored)] == stored
            for value, number, future in sent:
                assert future.done
                if future.error is None:
                    assert stored[future.result().offset + number] == value


@given(st.integers(0, 1 << 32), st.sampled_from([1, 3, 1 << 30]), st.sampled_from([100, 16_384]))
def test_nothing_is_lost_doubled_or_moved(seed: int, retries: int, batch_bytes: int) -> None:
    harness = ProducerHarness(seed, retries=retries, batch_bytes=batch_bytes, delivery_timeout_ms=60_000)
    for _ in range(40):
        harness.send()
        if harness.chance.random() < 0.4:
            harness.trouble()
        for _ in range(harness.chance.randrange(4)):
            harness.producer.step()
        harness.brokers.advance(harness.chance.choice([0, 50, 500]))
    harness.producer.close()
    harness.check()
