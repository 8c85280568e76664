"""The token of a sink: the last batch that it has committed, written in the same transaction as its rows.

A token is a record in the sink's token topic: the key is the transactional id, the value JSON. It is read
after ``init_transactions``, when no transaction of the sink is open any more, so the last one is the truth.
Version 2 is that of a batch that is published in part, so that a release without portions stops at it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.fetch.list_offsets import EARLIEST, LATEST, list_offsets
from minikafka.clients.fetch.range_fetcher import RangeFetcher
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.retry import Deadline
from minikafka.records.columns import decode_pieces

_READ_TIMEOUT_MS = 60_000


class TokenMismatch(MinikafkaError):
    """The token of a sink rules out a batch: it is of a later batch, or of another query."""


@dataclass(frozen=True, slots=True)
class CommitToken:
    """The last committed batch of a sink.

    batch: its id. query: the id of the streaming query; empty for a batch write. rows: of the batch. plan:
    identifies the batch's entry in the checkpoint; None: unknown. copied: how many of its staged batches are
    published; None: all.
    """

    batch: int
    query: str
    rows: int
    plan: str | None = None
    copied: int | None = None

    def to_bytes(self) -> bytes:
        """Return the value of the record."""
        found = {"version": 1 if self.copied is None else 2, **asdict(self)}
        if self.copied is None:
            del found["copied"]
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def of_bytes(cls, value: bytes) -> CommitToken:
        """Return the token in a record's value. Raise TokenMismatch for anything else."""
        try:
            found = json.loads(value)
            if found["version"] not in (1, 2):
                raise ValueError
            copied = None if found["version"] == 1 else int(found["copied"])
            return cls(
                int(found["batch"]), str(found["query"]), int(found["rows"]), found.get("plan"), copied
            )
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


def is_settled(cluster: ClusterClient, at: TopicPartition, sink_id: str) -> bool:
    """Return True if no transaction of the sink is open, and its last batch is published as a whole."""
    deadline = cluster.deadline(_READ_TIMEOUT_MS)
    end, stable_end = _ends(cluster, at, deadline)
    if end != stable_end:
        return False
    token = _token_in(_records_before(cluster, at, end, deadline), sink_id)
    return token is None or token.copied is None


def read_token(cluster: ClusterClient, at: TopicPartition, sink_id: str) -> CommitToken | None:
    """Return the sink's last token; None if it has committed nothing."""
    return _token_in(read_records(cluster, at, sink_id), sink_id)


def _token_in(records: Mapping[bytes, bytes], sink_id: str) -> CommitToken | None:
    token = records.get(sink_id.encode())
    return None if token is None else CommitToken.of_bytes(token)


def read_records(cluster: ClusterClient, at: TopicPartition, sink_id: str) -> dict[bytes, bytes]:
    """Return the last committed value of each key in the token topic."""
    deadline = cluster.deadline(_READ_TIMEOUT_MS)

    def stable_end() -> int:
        ends = _ends(cluster, at, deadline)
        if ends[0] != ends[1]:
            raise NetworkError(f"a transaction is open on {at}, the token of {sink_id!r}")
        return ends[0]

    end = cluster.retry(f"reading the token of sink {sink_id!r}", deadline, stable_end)
    return _records_before(cluster, at, end, deadline)


def _records_before(
    cluster: ClusterClient, at: TopicPartition, end: int, deadline: Deadline
) -> dict[bytes, bytes]:
    start = list_offsets(cluster, {at: EARLIEST}, deadline)[at] or 0
    found: dict[bytes | None, bytes | None] = {}
    isolation = IsolationLevel.READ_COMMITTED
    for data in RangeFetcher(cluster, at, start, end, isolation=isolation, timeout_ms=_READ_TIMEOUT_MS):
        for piece in decode_pieces(data, 0, end):
            keys, values = piece.key_array().to_pylist(), piece.value_array().to_pylist()
            found.update(zip(keys, values, strict=True))
    return {key: value for key, value in found.items() if key is not None and value is not None}


def _ends(cluster: ClusterClient, at: TopicPartition, deadline: Deadline) -> list[int]:
    """Return the end of the log, and the last stable offset."""
    return [list_offsets(cluster, {at: LATEST}, deadline, isolation)[at] or 0 for isolation in IsolationLevel]
