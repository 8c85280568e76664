"""Publishes staged batches, in the driver: copies them to their topics, in transactions of the sink's id.

One transaction
    ``init_transactions`` fences an earlier driver and ends its transaction. The token then says whether this
    batch is committed already. If not, batches and token are written, and committed together.
Portions, for a batch of a stream that cannot be copied within the time-out
    A first transaction notes the list of staged batches beside a token that has copied none of them: from
    then on the batch is decided. Each portion is a transaction with a token that counts the copied batches;
    the last one has the token of the whole batch. After any failure the next driver goes on by the list,
    whatever the tasks of the rerun have staged. Readers see one portion after another.
Failures
    After an error whose outcome is unknown the steps begin again, so the token decides. A driver that was
    fenced by another one stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from minikafka.base.clock import Clock
from minikafka.base.errors import (
    BrokerError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    ProducerFenced,
    TransactionAbortable,
)
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import is_retriable
from minikafka.clients.produce.batch_copier import StagedBatch, StagedRowsLost, copy
from minikafka.clients.produce.config import TransactionalConfig
from minikafka.clients.produce.transaction_manager import TransactionState
from minikafka.clients.produce.transactional_producer import TransactionalProducer
from pyspark_minikafka import report
from pyspark_minikafka.options.delivery_options import DELIVERY, TRANSACTION_TIMEOUT
from pyspark_minikafka.writing import noted_batches
from pyspark_minikafka.writing.commit_token import CommitToken, is_committed, read_token
from pyspark_minikafka.writing.staging_area import StagingArea

ATTEMPTS = 3
"""How often the same portion, or whole batch, is published before its error ends the query."""
_LOOKED_AT, _LOOKED_AT_MS = 0.05, 10_000
"""The share of the time-out, and the least time, after which the pace of a copy is known."""
_STALL_MS = 2_000
"""The longest time without progress that counts: brokers that stand still do not make a batch large."""
_ALLOWED = 0.7
"""The share of the time-out that a copy may take by its pace."""
_AIMED_AT = 0.3
"""The share of the time-out that a portion is made for."""


class TooSlow(Exception):
    """A copy would not end within the time-out. rows: what one within a third of it has."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class Pace:
    """Raises TooSlow if a copy of ``rows`` rows, by what it has copied so far, will not end in time.

    Only a copy that moves is judged. One that stands still runs into its time-out, and is tried again whole.
    """

    def __init__(self, clock: Clock, rows: int, timeout_ms: int) -> None:
        self._clock, self._rows, self._timeout_ms = clock, rows, timeout_ms
        self._progressed_ms = clock.monotonic_ms()
        self._moved_ms = self._copied = 0

    def __call__(self, copied: int) -> None:
        if copied <= self._copied:
            return
        now_ms = self._clock.monotonic_ms()
        self._moved_ms += min(now_ms - self._progressed_ms, _STALL_MS)
        self._progressed_ms, self._copied = now_ms, copied
        took_ms = self._moved_ms
        if took_ms < max(_LOOKED_AT_MS, self._timeout_ms * _LOOKED_AT):
            return
        if took_ms * self._rows > self._timeout_ms * _ALLOWED * copied:
            raise TooSlow(int(copied * self._timeout_ms * _AIMED_AT / took_ms))


class Unsupported(MinikafkaError):
    """The cluster does not allow writes exactly once."""


def no_transactions(servers: str) -> Unsupported:
    """Return the error for a cluster without transactions."""
    return Unsupported(
        f"{DELIVERY}=exactly-once is not possible here: the brokers of {servers} have no transactions. "
        "Apache Kafka has them since 0.11, and minikafka's brokers unless they are in a cluster with 0.10.1; "
        "use at-least-once"
    )


class Publisher:
    """Publishes the batches of one sink. servers: the addresses of the cluster, for errors."""

    def __init__(
        self, cluster: ClusterClient, area: StagingArea, config: TransactionalConfig, servers: str
    ) -> None:
        self._cluster, self._area, self._config, self._servers = cluster, area, config, servers
        self._began_ms = 0
        self._portion_rows: int | None = None
        """Rows of a portion; None: of all that is left."""
        self._failures = 0
        self._unfinished: CommitToken | None = None
        """The token of a batch of an earlier driver while its other portions are published."""
        self._timeout_ms = config.transaction_timeout_ms

    def publish(self, batches: Sequence[StagedBatch], token: CommitToken) -> None:
        """Publish ``batches`` with ``token``, unless they are already. Raise TokenMismatch, StagedRowsLost,
        ProducerFenced, or the error of the brokers.
        """
        self._attempt(
            f"publishing batch {token.batch}", lambda producer: self._publish(producer, batches, token)
        )

    def check(self) -> None:
        """Get a producer id, so that a cluster which refuses transactions does so before rows are written."""
        self._attempt("preparing the write", lambda _: None)

    def recover(self) -> None:
        """Fence an earlier driver, end its transaction, and finish a batch that is published in part."""
        self._attempt("preparing the sink", self._finish_left)

    def _attempt(self, what: str, work: Callable[[TransactionalProducer], object]) -> None:
        """Do ``work`` with a producer, again after errors that may pass."""
        while True:
            self._began_ms = self._cluster.clock.monotonic_ms()
            try:
                with TransactionalProducer(self._cluster, self._config) as producer:
                    self._init(producer)
                    work(producer)
                    return
            except (BrokerError, NetworkError) as problem:
                took_ms = self._cluster.clock.monotonic_ms() - self._began_ms
                self._failures += 1
                if self._failures >= ATTEMPTS or not self._may_retry(problem, took_ms):
                    raise self._explained(problem, took_ms) from problem
                report.warn([f"{what} again, after an error: {problem}"])

    def _publish(
        self, producer: TransactionalProducer, batches: Sequence[StagedBatch], token: CommitToken
    ) -> None:
        if is_committed(self._finish_left(producer), token, self._area.transactional_id):
            report.note(f"batch {token.batch} was committed before, nothing is written", shown=False)
            return
        if self._area.is_temporary:
            self._copy(producer, batches, token)  # all or nothing, for as long as it may take
            return
        rows = sum(batch.count for batch in batches)
        try:
            self._copy(producer, batches, token, Pace(self._cluster.clock, rows, self._timeout_ms))
        except TooSlow as slow:
            producer.abort(self._timeout_ms)
            self._portion_rows = slow.rows
            text = (
                f"batch {token.batch} has {rows} rows, too many to copy within "
                f"{TRANSACTION_TIMEOUT}={self._timeout_ms}: it is published in portions, which readers see "
                "one after another; make batches smaller (maxOffsetsPerTrigger of the source), or raise the "
                "time-out"
            )
            report.warn([text])
            self._note(producer, batches, begun := replace(token, copied=0))
            self._copy_rest(producer, batches, begun)

    def _finish_left(self, producer: TransactionalProducer) -> CommitToken | None:
        """Finish the batch that is published in part, if there is one. Return the last token."""
        found = read_token(self._cluster, self._area.token, self._area.transactional_id)
        if found is None or found.copied is None:
            return found
        batches = noted_batches.read(self._cluster, self._area)
        done = f"{found.copied} of {len(batches)} staged batches"
        report.warn([f"batch {found.batch} is published in part ({done}): its other portions follow now"])
        self._unfinished = found
        try:
            token = self._copy_rest(producer, batches, found)
        except StagedRowsLost as lost:
            if found.copied == 0:
                return self._withdraw(producer, found)
            raise StagedRowsLost(
                f"batch {found.batch} of minikafka.sink.id={self._area.transactional_id} was published in "
                "part, and the rest cannot be: its staged rows are gone, as their topic was deleted, made "
                "again or trimmed, or the brokers have lost them. Its rows in the topics are incomplete: "
                "start the query with another minikafka.sink.id after you have decided about them"
            ) from lost
        self._unfinished = None
        return token

    def _withdraw(self, producer: TransactionalProducer, noted: CommitToken) -> CommitToken:
        """Take back a batch that was noted, of which nothing is visible and whose staged rows are gone: the
        rerun writes it.
        """
        if producer.state is not TransactionState.READY:
            producer.abort(self._timeout_ms)
        before = replace(noted, batch=noted.batch - 1, rows=0, plan=None, copied=None)
        self._begin(producer)
        self._end(producer, before)
        self._unfinished = None
        return before

    def _note(
        self, producer: TransactionalProducer, batches: Sequence[StagedBatch], token: CommitToken
    ) -> None:
        """Commit to publishing ``batches`` in portions."""
        self._begin(producer)
        most = self._config.max_request_bytes
        for key, value in noted_batches.records(self._area.transactional_id, batches, most):
            self._send(producer, key, value)
        self._end(producer, token)

    def _copy_rest(
        self, producer: TransactionalProducer, batches: Sequence[StagedBatch], token: CommitToken
    ) -> CommitToken:
        """Copy the rest of a noted list in portions. Return the token of the whole batch."""
        while (copied := token.copied) is not None:
            end = self._end_of_portion(batches, copied)
            portion = batches[copied:end]
            is_last = end == len(batches)
            after = replace(token, copied=None if is_last else end)
            forgotten = self._list_keys(batches) if is_last else ()
            limit = self._portion_rows
            rows = sum(batch.count for batch in portion)
            pace = None if len(portion) == 1 else Pace(self._cluster.clock, rows, self._timeout_ms)
            self._portion_rows = max(1, rows // 2)  # if it fails
            try:
                self._copy(producer, portion, after, pace, forgotten)
            except TooSlow as slow:
                producer.abort(self._timeout_ms)
                self._portion_rows = min(slow.rows, rows // 2)
                continue
            took_ms = self._cluster.clock.monotonic_ms() - self._began_ms
            is_quick = took_ms < self._timeout_ms * _AIMED_AT / 2
            self._portion_rows = 2 * limit if limit is not None and is_quick else limit
            self._failures, token = 0, after
        return token

    def _list_keys(self, batches: Sequence[StagedBatch]) -> list[bytes]:
        return noted_batches.keys(self._area.transactional_id, batches, self._config.max_request_bytes)

    def _end_of_portion(self, batches: Sequence[StagedBatch], start: int) -> int:
        if self._portion_rows is None:
            return len(batches)
        rows = 0
        for number in range(start, len(batches)):
            rows += batches[number].count
            if rows > self._portion_rows:
                return max(number, start + 1)
        return len(batches)

    def _copy(
        self,
        producer: TransactionalProducer,
        batches: Sequence[StagedBatch],
        token: CommitToken,
        pace: Pace | None = None,
        forgotten: Sequence[bytes] = (),
    ) -> None:
        """Copy ``batches`` and write ``token`` in one transaction; delete the records ``forgotten``."""
        self._begin(producer)
        copy(self._cluster, producer, self._area.topic, batches, min(self._timeout_ms, 120_000), pace)
        for key in forgotten:
            self._send(producer, key, None)
        self._end(producer, token)

    def _begin(self, producer: TransactionalProducer) -> None:
        self._began_ms = self._cluster.clock.monotonic_ms()
        producer.begin()

    def _end(self, producer: TransactionalProducer, token: CommitToken) -> None:
        self._send(producer, self._area.transactional_id.encode(), token.to_bytes())
        producer.commit(timeout_ms=self._timeout_ms)

    def _send(self, producer: TransactionalProducer, key: bytes, value: bytes | None) -> None:
        producer.send(self._area.token.topic, value, key=key, partition=self._area.token.partition)

    def _may_retry(self, problem: MinikafkaError, took_ms: int) -> bool:
        """Return True if another attempt may succeed where this one has failed."""
        if isinstance(problem, ProducerFenced):
            # By its own time-out, or by another driver meanwhile, which the token will tell.
            return took_ms >= self._timeout_ms
        if isinstance(problem, TransactionAbortable):
            cause = problem.__cause__
            return not isinstance(cause, MinikafkaError) or is_retriable(cause)
        return is_retriable(problem)

    def _explained(self, problem: MinikafkaError, took_ms: int) -> MinikafkaError:
        if not isinstance(problem, ProducerFenced):
            if self._unfinished is None or not isinstance(problem, BrokerError):
                return problem
            what = f"batch {self._unfinished.batch} is published in part, and its other portions come first"
            return BrokerError(problem.code, f"{what}: {problem.detail}")
        if took_ms >= self._timeout_ms:
            return ProducerFenced(
                problem.code,
                f"the batch could not be copied within {TRANSACTION_TIMEOUT}={self._timeout_ms}; make "
                "batches smaller (maxOffsetsPerTrigger of the source), or raise it up to the brokers' "
                f"transaction.max.timeout.ms. {problem.detail}",
            )
        return ProducerFenced(
            problem.code,
            f"another query has started with minikafka.sink.id={self._area.transactional_id}, so this one "
            f"stops; give each query an id of its own. {problem.detail}",
        )

    def _init(self, producer: TransactionalProducer) -> None:
        try:
            producer.init_transactions()
        except BrokerError as error:
            if error.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                longest_ms = producer.max_timeout_ms()
                known = "" if longest_ms is None else f"={longest_ms}"
                raise Unsupported(
                    f"{TRANSACTION_TIMEOUT}={self._timeout_ms} is longer than transaction.max.timeout.ms"
                    f"{known} of the brokers allows: lower it, or raise that setting of the brokers"
                ) from None
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise no_transactions(self._servers) from None
            raise
