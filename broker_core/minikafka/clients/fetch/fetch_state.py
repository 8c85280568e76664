"""The fetch state of one partition, and the rules for what a broker returns for it.

Pure: no clock, thread or socket. ``FETCH_ERRORS`` has the meaning of each error code, ``larger_fetch_bytes``
the size of the next fetch when a message did not fit. Single records are not looked at: a kernel finds the
end of a response's complete entries.

Position
    The offset of the next fetch. It moves behind the last complete entry, also behind control records, and
    batches of aborted transactions, which are cut out here.
A message that does not fit
    Fetch 0 to 2 cut the first message off at the limit, later versions that of any partition but the first.
    A partition that was not the first is fetched again as the first; otherwise with a larger size.
Unreadable data
    It is fetched once more, as the broker may have been writing it. If it is unreadable again it is damaged.
Leader epochs (KIP-320)
    The position has the epoch of the last batch before it. A leader of a later epoch than the last one is
    asked first for the end of that epoch: if that is before the position, what was read has been truncated.
    So is a leader of another epoch of a topic that was made again: if it does not know that epoch, the
    position is out of range. With the same epoch the position stays, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from minikafka.base.errors import BrokerError, ErrorCode, LogTruncated
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.metadata import NO_LEADER, LeaderAndEpoch
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.batch import MAGIC as BATCH_MAGIC
from minikafka.records.kernels.layout import LEADER_EPOCH_AT, MAGIC_AT
from minikafka.records.scan.isolation import without_aborted
from minikafka.records.scan.scan import ScanResult, find_position, scan
from minikafka.wire.apis.fetch import (
    LARGEST_MESSAGE_BYTES,
    NO_REPLICA,
    FetchPartition,
    FetchPartitionResponse,
    consumer_partition,
)
from minikafka.wire.apis.offset_for_leader_epoch import EpochPartitionResponse
from minikafka.wire.fields import ZERO_UUID

NO_POSITION = -1
"""The offset of a partition that is not to be fetched."""
UNKNOWN_ENTRY_BYTES = (1 << 31) + 11
"""The size of a cut-off entry whose real size is unknown: brokers that convert records down for an old client
give 2^31 - 1 in its header.
"""
EMPTY_PAUSE_MS = 10
"""The pause after an empty response of a broker that has not waited for data."""

_NO_INDEX = 1 << 30
_NOTHING = memoryview(b"")
_UNKNOWN = -1


class FetchStatus(Enum):
    """The meaning of what a broker returned for a partition."""

    RECORDS = auto()
    """Complete entries; the position is behind them."""
    EMPTY = auto()
    """No records at the position yet."""
    THROTTLED = auto()
    """The response is without the partition, as the client is above its quota: fetch it later."""
    RETRY = auto()
    """No complete entry: fetch it again at once, as the first partition, or with a larger size."""
    LEADER_LOST = auto()
    """Perhaps not the leader any more: look the leader up, and fetch after a back-off."""
    OUT_OF_RANGE = auto()
    """The log does not have the position: the driver's reset policy decides."""
    TRUNCATED = auto()
    """An unclean election has truncated records before the position: the reset policy decides."""
    TOO_LARGE = auto()
    """The message at the position exceeds the largest fetch."""
    CORRUPT = auto()
    """The data at the position is damaged."""
    FAILED = auto()
    """A further fetch would fail too."""


FETCH_ERRORS: Mapping[ErrorCode, FetchStatus] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: FetchStatus.OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE: FetchStatus.CORRUPT,
    ErrorCode.UNKNOWN: FetchStatus.LEADER_LOST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: FetchStatus.LEADER_LOST,
    ErrorCode.LEADER_NOT_AVAILABLE: FetchStatus.LEADER_LOST,
    ErrorCode.NOT_LEADER_FOR_PARTITION: FetchStatus.LEADER_LOST,
    ErrorCode.REQUEST_TIMED_OUT: FetchStatus.LEADER_LOST,
    ErrorCode.BROKER_NOT_AVAILABLE: FetchStatus.LEADER_LOST,
    ErrorCode.REPLICA_NOT_AVAILABLE: FetchStatus.LEADER_LOST,
    ErrorCode.NETWORK_EXCEPTION: FetchStatus.LEADER_LOST,
    ErrorCode.KAFKA_STORAGE_ERROR: FetchStatus.LEADER_LOST,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: FetchStatus.LEADER_LOST,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: FetchStatus.LEADER_LOST,
    ErrorCode.LISTENER_NOT_FOUND: FetchStatus.LEADER_LOST,
    ErrorCode.FENCED_LEADER_EPOCH: FetchStatus.LEADER_LOST,
    ErrorCode.UNKNOWN_LEADER_EPOCH: FetchStatus.LEADER_LOST,
    ErrorCode.OFFSET_NOT_AVAILABLE: FetchStatus.LEADER_LOST,
    ErrorCode.UNKNOWN_TOPIC_ID: FetchStatus.LEADER_LOST,
    ErrorCode.INCONSISTENT_TOPIC_ID: FetchStatus.LEADER_LOST,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: FetchStatus.LEADER_LOST,
}
"""The meaning of the error codes of a fetch; any other is FAILED, such as a missing permission. UNKNOWN is an
unexpected error in the broker, or a code of a newer release: it may pass, as in Kafka's consumer.
"""


def fetch_status(code: ErrorCode) -> FetchStatus:
    """Return the meaning of the error code of a fetch."""
    return FETCH_ERRORS.get(code, FetchStatus.FAILED)


def fetch_error(code: ErrorCode, topic_partition: TopicPartition, offset: int) -> BrokerError:
    """Return the error for a partition that a Fetch response gives no records of."""
    hint = authorization_hint(code, "Read", f"Topic:{topic_partition.topic}")
    return BrokerError(code, f"fetching {topic_partition} from offset {offset}{hint}")


def larger_fetch_bytes(fetch_bytes: int, entry_bytes: int, max_bytes: int) -> int | None:
    """Return the size of the next fetch after one of ``fetch_bytes`` has cut off its first entry, of
    ``entry_bytes``: doubled until the entry fits; None if it does not fit ``max_bytes``.
    """
    known_bytes = 0 if entry_bytes == UNKNOWN_ENTRY_BYTES else entry_bytes
    if known_bytes > max_bytes or fetch_bytes >= max_bytes:
        return None
    larger = 2 * fetch_bytes
    while larger < known_bytes:
        larger *= 2
    return min(larger, max_bytes)


def records_of(part: FetchPartitionResponse) -> memoryview:
    """Return the bytes that the broker sent; the last message may be cut off."""
    data = _NOTHING if part.records is None else part.records
    assert isinstance(data, memoryview)
    return data


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of a fetch session.

    partition_max_bytes  of one partition in a response, unless its first message is larger
    max_bytes            of a whole response
    message_max_bytes    the largest fetch for a message that does not fit ``partition_max_bytes``
    retry_backoff        the pauses after failed fetches in a row
    rack                 of the client: the leader may name a follower in it to read from (KIP-392)
    follower_ms          the time for which such a follower is read from, before the leader is asked again
    in_session           True if brokers keep the partitions (KIP-227): a request names those that changed
    """

    partition_max_bytes: int
    max_bytes: int
    message_max_bytes: int
    min_bytes: int = 1
    max_wait_ms: int = 500
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    retry_backoff: Backoff = field(default_factory=Backoff)
    rack: str = ""
    follower_ms: int = 300_000
    in_session: bool = False


@dataclass(frozen=True, slots=True)
class PositionEpochs:
    """The leader epochs of a position.

    offset_epoch  of the last batch before it; -1 if unknown, as after a seek, or in older formats
    leader_epoch  of the leader that sent that batch, or has validated the position since
    """

    offset_epoch: int = _UNKNOWN
    leader_epoch: int = _UNKNOWN

    def needs_validation(self, leader_epoch: int) -> bool:
        """Return True if the log of a leader of this epoch may lack records before the position."""
        return self.offset_epoch >= 0 and leader_epoch > self.leader_epoch


NO_EPOCHS = PositionEpochs()


@dataclass(frozen=True, slots=True)
class CompletedFetch:
    """The result of one fetch of one partition.

    records             complete entries, a view of the response, without batches of aborted transactions: it
                        may be empty. The first may hold messages before ``offset``, as a compressed one is
                        sent whole
    offset              the position that was fetched
    next_offset         the position afterwards; where an epoch that is TRUNCATED ends
    high_watermark      -1 with an error, like the others
    last_stable_offset  None with READ_UNCOMMITTED, and if the broker has no transactions
    error               the reason of any status from LEADER_LOST on
    entry_bytes         the size of a message that is TOO_LARGE
    failures            failed fetches in a row, with this one
    epochs              of ``next_offset``, with RECORDS
    log_start_offset    the start of the log; -1 with an error, and from brokers before 1.0
    new_leader          the leader that the broker names, with LEADER_LOST (KIP-951)
    """

    topic_partition: TopicPartition
    status: FetchStatus
    offset: int
    next_offset: int
    records: memoryview = _NOTHING
    high_watermark: int = _UNKNOWN
    last_stable_offset: int | None = None
    error: BrokerError | None = None
    entry_bytes: int = 0
    failures: int = 0
    epochs: PositionEpochs = NO_EPOCHS
    log_start_offset: int = _UNKNOWN
    new_leader: LeaderAndEpoch | None = None

    @property
    def readable_end(self) -> int:
        """The end of what the broker sends at this isolation level."""
        return self.high_watermark if self.last_stable_offset is None else self.last_stable_offset


class PartitionFetchState:
    """The position of one partition, the size of its next fetch, and its failures."""

    __slots__ = (
        "_follower",
        "_is_made_again",
        "_row",
        "_settings",
        "_topic_id",
        "_unreadable_offset",
        "epochs",
        "failures",
        "fetch_bytes",
        "not_before_ms",
        "offset",
        "paused",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        settings: FetchSettings,
        offset: int,
        epochs: PositionEpochs = NO_EPOCHS,
    ) -> None:
        self.topic_partition = topic_partition
        self.offset = offset
        self.epochs = epochs
        self.paused = False
        self.fetch_bytes = settings.partition_max_bytes
        self.not_before_ms = 0
        """The time of the next fetch, after a failure."""
        self.failures = 0
        self._settings = settings
        self._row: FetchPartition | None = None
        self._follower: tuple[int, int] | None = None
        """The follower to read from, and the time until which to do so."""
        self._unreadable_offset = NO_POSITION
        """The position at which the last response was unreadable."""
        self._topic_id = ZERO_UUID
        self._is_made_again = False
        """True if the position is of a topic that was deleted, and that another one of its name replaces."""

    def seek(self, offset: int) -> None:
        """Continue at ``offset``."""
        if offset != self.offset:
            self.offset, self.fetch_bytes = offset, self._settings.partition_max_bytes
            self.epochs = NO_EPOCHS
            self._is_made_again = False

    def use_settings(self, settings: FetchSettings) -> None:
        """Go on with the settings of another session."""
        self._settings, self.fetch_bytes = settings, settings.partition_max_bytes

    def is_at(self, offset: int) -> bool:
        """Return True if a response for ``offset`` still counts."""
        return self.offset == offset and not self.paused

    def back_off(self, now_ms: int) -> None:
        """Count a failed fetch: the next one is made after a pause."""
        self.failures += 1
        self.not_before_ms = now_ms + self._settings.retry_backoff.delay_ms(self.failures)

    def request(self, leader_epoch: int) -> FetchPartition:
        """Return the partition's row of a Fetch request, with the epoch of its leader: the same object while
        nothing in it changes.
        """
        row = self._row
        if (
            row is None
            or row.fetch_offset != self.offset
            or row.current_leader_epoch != leader_epoch
            or row.partition_max_bytes != self.fetch_bytes
        ):
            row = self._row = consumer_partition(
                self.topic_partition.partition, self.offset, self.fetch_bytes, leader_epoch
            )
        return row

    def source(self, leader_id: int, now_ms: int) -> int:
        """Return the broker to read from: the leader, or the follower that it has named."""
        if self._follower is None:
            return leader_id
        follower_id, until_ms = self._follower
        if now_ms >= until_ms:
            self._follower = None
            return leader_id
        return follower_id

    @property
    def follower_until_ms(self) -> int | None:
        """The time until which a follower is read from; None if the leader is."""
        return None if self._follower is None else self._follower[1]

    def leave_follower(self) -> bool:
        """Read from the leader again. Return False if that is so already."""
        left, self._follower = self._follower, None
        return left is not None

    def use_topic(self, topic_id: bytes) -> None:
        """Fetch from the topic of this id, zero if it is unknown."""
        if topic_id != ZERO_UUID:
            self._is_made_again = self._is_made_again or self._topic_id not in (ZERO_UUID, topic_id)
            self._topic_id = topic_id

    def needs_validation(self, leader_epoch: int) -> bool:
        """Return True if the log of a leader of this epoch may lack records before the position.

        The epochs of a topic that was made again begin anew.
        """
        epochs = self.epochs
        if self._is_made_again:
            return epochs.offset_epoch >= 0 and 0 <= leader_epoch != epochs.leader_epoch
        return epochs.needs_validation(leader_epoch)

    def confirm(self, leader_epoch: int) -> None:
        """Count the position as valid in the log of the leader of this epoch."""
        self.epochs = replace(self.epochs, leader_epoch=leader_epoch)
        self._is_made_again = False

    def validate(self, part: EpochPartitionResponse, now_ms: int, leader_epoch: int) -> CompletedFetch | None:
        """Apply what the leader of this epoch returned for the epoch of the position. None: it is valid, as
        far as the leader knows.
        """
        code = ErrorCode.of(part.error_code)
        if code is not ErrorCode.NONE:
            return self.fail(code, now_ms)
        self.failures = 0
        tp, offset, end_offset = self.topic_partition, self.offset, part.end_offset
        if 0 <= end_offset < offset:
            error = LogTruncated(*tp, offset, self.epochs.offset_epoch, end_offset)
            return CompletedFetch(tp, FetchStatus.TRUNCATED, offset, end_offset, error=error)
        if end_offset < 0 and self._is_made_again:
            return self.fail(ErrorCode.OFFSET_OUT_OF_RANGE, now_ms)  # the log never had that epoch
        self.confirm(leader_epoch)
        return None

    def complete(
        self, part: FetchPartitionResponse, now_ms: int, *, had_room: bool, leader_epoch: int = _UNKNOWN
    ) -> CompletedFetch:
        """Apply what the leader of this epoch returned for a fetch of the position. ``had_room``: a cut-off
        first entry exceeds the size of the fetch; otherwise the entries of other partitions may have taken
        its room.
        """
        code = ErrorCode.of(part.error_code)
        if code is not ErrorCode.NONE:
            completed, leader = self.fail(code, now_ms), part.current_leader
            if leader.leader_id == NO_LEADER:
                return completed
            return replace(completed, new_leader=LeaderAndEpoch(leader.leader_id, leader.leader_epoch))
        self.failures = 0
        if part.preferred_read_replica != NO_REPLICA:
            self._follower = part.preferred_read_replica, now_ms + self._settings.follower_ms
            return self._completed(FetchStatus.RETRY, part)
        if not records_of(part):
            return self._completed(FetchStatus.EMPTY, part)
        entries, found = complete_entries(part)
        if found.valid_bytes and found.next_offset > self.offset:
            known = leader_epoch != _UNKNOWN
            epochs = PositionEpochs(last_epoch(part, found), leader_epoch) if known else NO_EPOCHS
            return self._advance(part, entries, found.next_offset, epochs)
        allowed = max(LARGEST_MESSAGE_BYTES, self._settings.message_max_bytes)
        if found.valid_bytes or not found.incomplete:
            problem = found.problem or f"the response ends at {found.next_offset}, before it"
            return self._unreadable(part, problem)
        if allowed < found.wanted_bytes != UNKNOWN_ENTRY_BYTES:
            problem = f"message size {found.wanted_bytes} exceeds the limit of {allowed} bytes"
            return self._unreadable(part, problem)
        return self._cut_off(part, found.wanted_bytes, had_room)

    def fail(self, code: ErrorCode, now_ms: int) -> CompletedFetch:
        """Apply the error of a broker."""
        tp, offset, status = self.topic_partition, self.offset, fetch_status(code)
        if status is FetchStatus.CORRUPT and self._unreadable_offset != offset:
            self._unreadable_offset = offset
            return CompletedFetch(tp, FetchStatus.RETRY, offset, offset)
        if self.leave_follower() and status is FetchStatus.OUT_OF_RANGE:
            # The follower may lag behind, or have deleted more: the leader decides.
            return CompletedFetch(tp, FetchStatus.RETRY, offset, offset)
        if status is FetchStatus.OUT_OF_RANGE:
            self.offset = NO_POSITION
        elif status is FetchStatus.LEADER_LOST:
            self.back_off(now_ms)
        error = fetch_error(code, tp, offset)
        return CompletedFetch(tp, status, offset, offset, error=error, failures=self.failures)

    def throttle(self, now_ms: int, throttle_time_ms: int) -> CompletedFetch:
        """Apply a response without the partition."""
        self.not_before_ms = now_ms + max(throttle_time_ms, EMPTY_PAUSE_MS)
        return CompletedFetch(self.topic_partition, FetchStatus.THROTTLED, self.offset, self.offset)

    def _advance(
        self, part: FetchPartitionResponse, entries: memoryview, next_offset: int, epochs: PositionEpochs
    ) -> CompletedFetch:
        completed = self._completed(
            FetchStatus.RECORDS, part, records=entries, next_offset=next_offset, epochs=epochs
        )
        self.seek(next_offset)
        self.epochs = epochs
        return completed

    def _unreadable(self, part: FetchPartitionResponse, problem: str) -> CompletedFetch:
        if self._unreadable_offset != self.offset:
            self._unreadable_offset = self.offset
            return self._completed(FetchStatus.RETRY, part)
        detail = f"{self.topic_partition}, fetched from offset {self.offset}: {problem}"
        return self._completed(
            FetchStatus.CORRUPT, part, error=BrokerError(ErrorCode.CORRUPT_MESSAGE, detail)
        )

    def _cut_off(self, part: FetchPartitionResponse, entry_bytes: int, had_room: bool) -> CompletedFetch:
        if not had_room:
            return self._completed(FetchStatus.RETRY, part)
        allowed = self._settings.message_max_bytes
        larger = larger_fetch_bytes(self.fetch_bytes, entry_bytes, allowed)
        if larger is None:
            detail = f"the message of {self.topic_partition} at {self.offset} does not fit {allowed} bytes"
            return self._completed(
                FetchStatus.TOO_LARGE,
                part,
                error=BrokerError(ErrorCode.MESSAGE_TOO_LARGE, detail),
                entry_bytes=entry_bytes,
            )
        self.fetch_bytes = larger
        return self._completed(FetchStatus.RETRY, part)

    def _completed(
        self,
        status: FetchStatus,
        part: FetchPartitionResponse,
        *,
        records: memoryview = _NOTHING,
        next_offset: int | None = None,
        error: BrokerError | None = None,
        entry_bytes: int = 0,
        epochs: PositionEpochs = NO_EPOCHS,
    ) -> CompletedFetch:
        committed = self._settings.isolation is IsolationLevel.READ_COMMITTED
        return CompletedFetch(
            self.topic_partition,
            status,
            self.offset,
            self.offset if next_offset is None else next_offset,
            records,
            part.high_watermark,
            part.last_stable_offset if committed and part.last_stable_offset >= 0 else None,
            error,
            entry_bytes,
            epochs=epochs,
            log_start_offset=part.log_start_offset,
        )


def complete_entries(part: FetchPartitionResponse) -> tuple[memoryview, ScanResult]:
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


def last_epoch(part: FetchPartitionResponse, found: ScanResult) -> int:
    """Return the leader epoch of the last complete batch; -1 in older formats."""
    data = records_of(part)
    at = 0 if found.count == 1 else find_position(data, found.next_offset - 1)
    if at is None or data[at + MAGIC_AT] != BATCH_MAGIC:
        return _UNKNOWN
    return int.from_bytes(data[at + LEADER_EPOCH_AT : at + LEADER_EPOCH_AT + 4], "big", signed=True)
