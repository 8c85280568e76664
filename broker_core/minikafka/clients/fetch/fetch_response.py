"""The records and the errors of one partition in a Fetch response."""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.records.scan.isolation import without_aborted
from minikafka.records.scan.scan import ScanResult, scan
from minikafka.wire.apis.fetch import FetchPartitionResponse

_NO_INDEX = 1 << 30


def fetch_error(code: ErrorCode, topic_partition: TopicPartition, offset: int) -> BrokerError:
    """Return the error for a partition that a Fetch response gives no records of."""
    hint = authorization_hint(code, "Read", f"Topic:{topic_partition.topic}")
    return BrokerError(code, f"fetching {topic_partition} from offset {offset}{hint}")


def records_of(part: FetchPartitionResponse) -> memoryview:
    """Return the bytes that the broker sent; the last message may be cut off."""
    data = memoryview(b"") if part.records is None else part.records
    assert isinstance(data, memoryview)
    return data


def whole_entries(part: FetchPartitionResponse) -> tuple[memoryview, ScanResult]:
    """Return the complete entries, without those of aborted transactions, and the scan of all entries.

    The scan only looks for the ends of entries: the decoder checks the checksums. Only with aborted
    transactions the scan checks them too, as the decoder does not see what is cut out. The first batch may
    begin before the requested offset.
    """
    data, aborted = records_of(part), part.aborted_transactions
    found = scan(data, base_offset=None, index_interval_bytes=_NO_INDEX, check_crc=bool(aborted))
    whole = data[: found.valid_bytes]
    if aborted:
        whole = without_aborted(whole, [(txn.producer_id, txn.first_offset) for txn in aborted])
    return whole, found
