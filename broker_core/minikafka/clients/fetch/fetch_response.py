"""What an answer to Fetch holds of one partition, and what is said of answers that refuse something."""

from __future__ import annotations

from collections.abc import Collection

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.records.scan.isolation import without_aborted
from minikafka.records.scan.scan import ScanResult, scan
from minikafka.wire.apis.fetch import FetchPartitionResponse

_NO_INDEX = 1 << 30
_FORBIDDEN = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
TOO_FEW = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Codes by which acks=all is refused, or not kept, for want of replicas in sync."""


def missing_right(code: ErrorCode, operation: str, resource: str) -> str:
    """The end of an error's text: which right this client has not, where ``code`` says that it is one."""
    return f"; this client may not do {operation} to {resource}" if code in _FORBIDDEN else ""


def refused_fetch(code: ErrorCode, topic_partition: TopicPartition, offset: int) -> BrokerError:
    """The error of a partition that a broker gives nothing of."""
    right = missing_right(code, "Read", f"Topic:{topic_partition.topic}")
    return BrokerError(code, f"fetching {topic_partition} from offset {offset}{right}")


def too_few_in_sync(in_sync: Collection[int] | None) -> str:
    """The end of the text of an error that is one of TOO_FEW; ``in_sync``: the brokers, None for unknown."""
    told = "" if in_sync is None else f" (brokers: {', '.join(map(str, in_sync)) or 'none'})"
    return f"; fewer replicas are in sync{told} than the topic's min.insync.replicas"


def records_of(part: FetchPartitionResponse) -> memoryview:
    """The bytes that the broker sent, of which the last message may be cut off."""
    data = memoryview(b"") if part.records is None else part.records
    assert isinstance(data, memoryview)
    return data


def whole_entries(part: FetchPartitionResponse) -> tuple[memoryview, ScanResult]:
    """The entries that are whole, without those of aborted transactions, and what is known of all of them.

    Only where they end is looked for: the decoder checks the sums, but for those of what it will not see. The
    first batch may begin before the offset that was asked for.
    """
    data, aborted = records_of(part), part.aborted_transactions
    found = scan(data, base_offset=None, index_interval_bytes=_NO_INDEX, check_crc=bool(aborted))
    whole = data[: found.valid_bytes]
    if aborted:
        whole = without_aborted(whole, [(one.producer_id, one.first_offset) for one in aborted])
    return whole, found
