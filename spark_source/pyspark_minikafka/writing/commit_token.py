"""The token of a sink: the last batch that it has committed, written in the same transaction as its rows.

A token is a record in the sink's token topic: the key is the transactional id, the value JSON. It is read
after ``init_transactions``, when no transaction of the sink is open any more, so the last one is the truth.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.records.columns import decode_pieces

_READ_TIMEOUT_MS = 60_000


class TokenMismatch(MinikafkaError):
    """The token of a sink rules out a batch: it is of a later batch, or of another query."""


@dataclass(frozen=True, slots=True)
class CommitToken:
    """The last committed batch of a sink.

    batch: its id. query: the id of the streaming query; empty for a batch write. rows: of the batch. plan:
    identifies the batch's entry in the checkpoint; None: unknown.
    """

    batch: int
    query: str
    rows: int
    plan: str | None = None

    def to_bytes(self) -> bytes:
        """Return the value of the record."""
        return json.dumps({"version": 1, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def of_bytes(cls, value: bytes) -> CommitToken:
        """Return the token in a record's value. Raise TokenMismatch for anything else."""
        try:
            found = json.loads(value)
            if found["version"] != 1:
                raise ValueError
            return cls(int(found["batch"]), str(found["query"]), int(found["rows"]), found.get("plan"))
        except (ValueError, KeyError, TypeError):
            raise TokenMismatch(
                f"the token topic has a record that is no token of this release: {value[:200]!r}; use a "
                "release that can read it, or another minikafka.sink.id"
            ) from None


def is_committed(token: CommitToken | None, wanted: CommitToken, sink_id: str) -> bool:
    """Return True if the batch ``wanted`` is committed already: Spark runs it again after a crash before it
    has noted the commit. Raise TokenMismatch if another query has used the sink, or a later batch is
    committed: the checkpoint is older than the topic.
    """
    if token is None:
        return False
    advice = "; start the query with another minikafka.sink.id and a new checkpoint if that is meant"
    if token.query != wanted.query:
        raise TokenMismatch(
            f"minikafka.sink.id={sink_id} belongs to the query {token.query} (last batch {token.batch}), but "
            f"this is the query {wanted.query}: its batches have the same numbers as those{advice}"
        )
    if token.batch > wanted.batch:
        raise TokenMismatch(
            f"batch {wanted.batch} cannot be written: batch {token.batch} of minikafka.sink.id={sink_id} is "
            "committed, so the checkpoint is an older copy, or another run of this query goes on; continue "
            f"from the newest checkpoint{advice}"
        )
    if token.batch < wanted.batch:
        return False
    if token.plan is not None and wanted.plan is not None and token.plan != wanted.plan:
        raise TokenMismatch(
            f"batch {wanted.batch} of minikafka.sink.id={sink_id} is committed with other offsets than the "
            "checkpoint has for it, so the checkpoint is an older copy whose last batch was planned again; "
            f"continue from the newest checkpoint{advice}"
        )
    return True


def read_token(cluster: ClusterClient, at: TopicPartition, sink_id: str) -> CommitToken | None:
    """Return the sink's last token; None if it has committed nothing."""
    deadline = cluster.deadline(_READ_TIMEOUT_MS)

    def stable_end() -> int:
        ends = [
            list_offsets(cluster, {at: LATEST}, deadline, isolation)[at] or 0 for isolation in IsolationLevel
        ]
        if ends[0] != ends[1]:
            raise NetworkError(f"a transaction is open on {at}, the token of {sink_id!r}")
        return ends[0]

    end = cluster.retry(f"reading the token of sink {sink_id!r}", deadline, stable_end)
    start = list_offsets(cluster, {at: EARLIEST}, deadline)[at] or 0
    token = None
    key = sink_id.encode()
    isolation = IsolationLevel.READ_COMMITTED
    for data in RangeFetcher(cluster, at, start, end, isolation=isolation, timeout_ms=_READ_TIMEOUT_MS):
        for found in decode_pieces(data, 0, end):
            keys, values = found.key_array().to_pylist(), found.value_array().to_pylist()
            for record_key, value in zip(keys, values, strict=True):
                if record_key == key and value is not None:
                    token = value
    return None if token is None else CommitToken.of_bytes(token)
