"""What an answer to Fetch holds of one partition, and what is said of answers that refuse something."""

from __future__ import annotations

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.records.scan.isolation import without_aborted
from minikafka.records.scan.scan import ScanResult, scan
from minikafka.wire.apis.fetch import FetchPartitionResponse

_NO_INDEX = 1 << 30


def fetch_error(code: ErrorCode, topic_partition: TopicPartition, offset: int) -> BrokerError:
    """The error of a partition that a broker gives nothing of."""
    right = authorization_hint(code, "Read", f"Topic:{topic_partition.topic}")
    return BrokerError(code, f"fetching {topic_partition} from offset {offset}{right}")


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
