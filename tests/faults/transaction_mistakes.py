"""Mistakes in transactions that are planted in the product, which a simulation must find by some seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.partition.partition import Partition
from minikafka.server.coordination.delayed_write import WriteCallback
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.transactions.produced_transaction import ProducedTransaction
from minikafka.server.transactions.transaction_coordinator import TransactionCoordinator
from minikafka.server.transactions.transaction_marker_sender import TransactionMarkerSender
from minikafka.transactions.decisions import TxnMarkers
from tests.faults.mistake import Mistake, nothing


def answer_before_stored(
    coordinator: TransactionCoordinator, topic_partition: TopicPartition, records: Any, done: WriteCallback
) -> None:
    """Go on as soon as the leader has a change of a transaction."""
    codes: list[ErrorCode] = []
    write(coordinator, topic_partition, records, lambda error, offset: codes.append(error))
    done(codes[0] if codes else ErrorCode.NONE, 0)


write = TransactionCoordinator._write


def leave_out_a_marker(sender: TransactionMarkerSender, markers: TxnMarkers) -> None:
    """Report the marker of the last partition as written."""
    *others, last = sorted(markers.partitions)
    if others:
        sender.broker.after(lambda: sender.written(markers, [last]))
        markers = replace(markers, partitions=frozenset(others))
    send(sender, markers)


send = TransactionMarkerSender.send


def read_to_high_watermark(partition: Partition) -> int:
    return partition.high_watermark


MISTAKES: dict[str, Mistake] = {
    "a coordinator answers before the replicas have the outcome": Mistake(
        [(TransactionCoordinator, "_write", answer_before_stored)],
        ("kill", "isolate", "pause", "end_in_the_middle"),
        seeds=(4,),
    ),
    "one partition does not get its marker": Mistake([(TransactionMarkerSender, "send", leave_out_a_marker)]),
    "a leader does not verify transactions": Mistake(
        [(ProducedTransaction, "unverified", ()), (ProducedTransaction, "guard", nothing)],
        ("slow_network",),
        rare=True,
        seeds=(14,),
    ),
    "consumers read above the last stable offset": Mistake(
        [(Partition, "last_stable_offset", property(read_to_high_watermark))]
    ),
    "the offsets of a transaction do not get its outcome": Mistake(
        [(GroupCoordinator, "transaction_completed", nothing)], seeds=(5,)
    ),
}
