"""A client of librdkafka's that sends, consumes in a group and commits, and keeps what it was told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from tests.support.python_clients import confluent_kafka

PATIENCE_S = 30.0
PATIENT_LOOPS = 20_000

Place = tuple[int, int]
"""Partition and offset."""


class Load:
    """One producer and one member of a group, and what the broker has told them."""

    def __init__(
        self,
        servers: str,
        *,
        idempotent: bool = True,
        partitions: int = 3,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """security: librdkafka's settings of TLS and SASL."""
        security = security or {}
        self._partitions = partitions
        self.acknowledged: dict[Place, bytes] = {}
        self.consumed: dict[Place, bytes] = {}
        self.changed: list[str] = []
        self.failed: list[Any] = []
        self.committed: dict[int, int] = {}
        self.sent = 0
        self._committing = False
        """One commit at a time: an older one that is sent again would otherwise come behind a newer one."""
        self._group = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
            **security,
        }
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": idempotent,
                "acks": "all",
                "max.in.flight": 5 if idempotent else 1,  # more would not keep the order
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,  # its threads write to stderr, also to that of a later test
                **security,
            }
        )
        self._consumer = confluent_kafka.Consumer(
            self._group
            | {
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 300,
                "reconnect.backoff.max.ms": 100,
                "on_commit": self._on_commit,
            }
        )
        self._consumer.subscribe(["t"])

    def run(self, count: int) -> None:
        """Go on until so many messages more are acknowledged, and some more of the others' are consumed."""
        acknowledged, consumed = len(self.acknowledged) + count, len(self.consumed) + count // 2
        for _ in range(PATIENT_LOOPS):
            if len(self.acknowledged) >= acknowledged and len(self.consumed) >= consumed:
                return
            for _ in range(20 if len(self._producer) < 1_000 else 0):
                self._producer.produce(
                    "t",
                    b"%08d" % self.sent,
                    partition=self.sent % self._partitions,
                    on_delivery=self._on_delivery,
                )
                self.sent += 1
            self._producer.poll(0.002)
            self._consume(0.002)
        raise AssertionError(f"{len(self.acknowledged)} acknowledged, {len(self.consumed)} consumed: no more")

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Go on until ``condition`` holds."""
        for _ in range(PATIENT_LOOPS // 100):
            self.run(100)
            if condition():
                return
        raise AssertionError(f"not so while the load ran: {what}")

    def finish(self) -> None:
        """Have everything acknowledged and consumed, and leave."""
        assert self._producer.flush(PATIENCE_S) == 0
        for _ in range(PATIENT_LOOPS):
            if self.acknowledged.keys() <= self.consumed.keys():
                break
            self._consume(0.1)
        self._consumer.close()

    def committed_now(self) -> dict[int, int]:
        """What the broker says has been committed."""
        asking = confluent_kafka.Consumer(self._group)
        asked = [confluent_kafka.TopicPartition("t", partition) for partition in range(self._partitions)]
        told = {one.partition: one.offset for one in asking.committed(asked, PATIENCE_S)}
        asking.close()
        return told

    def taken_back(self, promised: Mapping[int, int]) -> dict[int, int]:
        """Committed offsets that are now below the ``promised`` ones."""
        kept = self.committed_now()
        return {number: kept[number] for number, offset in promised.items() if kept[number] < offset}

    def check_nothing_lost(self) -> None:
        """Everything was acknowledged and consumed, and nothing at another place."""
        assert self.failed == self.changed == []
        assert self.consumed == self.acknowledged

    def check_everything_came_once(self) -> None:
        """Nothing is lost, nothing came twice, and each partition is in the order of sending."""
        self.check_nothing_lost()
        assert len(set(self.acknowledged.values())) == len(self.acknowledged) == self.sent
        for partition in range(self._partitions):
            values = [value for place, value in sorted(self.acknowledged.items()) if place[0] == partition]
            assert all(before < after for before, after in pairwise(values))

    def _consume(self, timeout_s: float) -> None:
        messages = self._consumer.consume(500, timeout_s)
        for message in messages:
            if message.error() is None:
                self._keep(self.consumed, message)
        if messages and not self._committing:
            self._committing = True
            try:
                self._consumer.commit(asynchronous=True)
            except confluent_kafka.KafkaException:  # there is nothing to commit just after an assignment
                self._committing = False

    def _keep(self, where: dict[Place, bytes], message: Any) -> None:
        place = (message.partition(), message.offset())
        if where.setdefault(place, message.value()) != message.value():
            self.changed.append(f"{place} held {where[place]!r}, then {message.value()!r}")

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self._keep(self.acknowledged, message)

    def _on_commit(self, error: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._committing = False
        for one in partitions:
            if error is None and one.error is None and one.offset > self.committed.get(one.partition, -1):
                self.committed[one.partition] = one.offset
