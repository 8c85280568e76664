"""Settings of a producer, under Kafka's own property names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from minikafka.base.config.config_def import REQUIRED, AbstractConfig, Faults, setting
from minikafka.base.config.types import BOOLEAN, INT_MAX, capped_int64, int32, text_type
from minikafka.base.errors import ConfigError
from minikafka.clients.common_client_configs import (
    ACKS,
    ACKS_ALL,
    SECURITY_SETTINGS,
    UNSUPPORTED_BY_CLIENTS,
    ClientSecurity,
)
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.compression import COMPRESSION_TYPE, Codec

MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Brokers remember this many of a producer's last batches."""
_IN_FLIGHT = "max.in.flight.requests.per.connection"


def _one_attempt_ms(linger_ms: int, request_timeout_ms: int) -> int:
    return min(linger_ms + request_timeout_ms, INT_MAX)


@dataclass(frozen=True, slots=True)
class BatchingConfig(AbstractConfig):
    """The settings of batching, retries and time-outs. Sizes are bytes.

    Defaults are those of Kafka 0.10.1, except for two.

    ``retries`` is unbounded and ``delivery_timeout_ms`` (of later releases) is the limit instead: with
    0.10.1's default of no retry, every change of a leader loses records. At most one batch of a partition is
    in flight at a time, so that a retry cannot overtake (see ``sender``); ``max_in_flight`` counts requests
    per broker.

    ``idempotence`` (``enable.idempotence`` of 0.11): True requires brokers that never write a retry twice;
    it needs ``acks`` all (the default with it), retries, and at most 5 requests in flight. None, the default,
    enables it if these settings allow it and the brokers support it, as releases from 3.0 on do.
    """

    UNSUPPORTED: ClassVar[Mapping[str, str]] = UNSUPPORTED_BY_CLIENTS
    PASSED_ON: ClassVar[Collection[str]] = SECURITY_SETTINGS

    acks: int = setting(
        "acks",
        ACKS,
        None,
        "Acknowledgements of a write: `0`, `1` or `all`; by default `1`, or `all` with `enable.idempotence`.",
        derive=lambda values: ACKS_ALL if values["idempotence"] else 1,
    )
    retries: int = setting("retries", int32(0), INT_MAX, "How often a batch is sent again.")
    linger_ms: int = setting("linger.ms", capped_int64(0), 0, "How long a batch waits for more records.")
    batch_bytes: int = setting("batch.size", int32(0), 16_384, "The largest batch.")
    max_in_flight: int = setting(_IN_FLIGHT, int32(1), 5, "Requests under way to one broker.")
    compression: Codec = setting(
        "compression.type", COMPRESSION_TYPE, Codec.NONE, "`none`, `gzip`, `snappy`, `lz4` or `zstd`."
    )
    buffer_bytes: int = setting("buffer.memory", capped_int64(1), 33_554_432, "Memory for records that wait.")
    max_block_ms: int = setting(
        "max.block.ms", capped_int64(0), 60_000, "How long a write waits for room or metadata."
    )
    max_request_bytes: int = setting(
        "max.request.size", int32(1), 1_048_576, "The largest request, and record."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", int32(1), 30_000, "How long to wait for a response."
    )
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        int32(1),
        None,
        "How long a batch is tried in all: at least `linger.ms` + `request.timeout.ms`; by default that, but "
        "not less than 120000.",
        derive=lambda values: max(
            120_000, _one_attempt_ms(values["linger_ms"], values["request_timeout_ms"])
        ),
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", capped_int64(0), 100, "How long to wait before a batch is sent again."
    )
    idempotence: bool | None = setting(
        "enable.idempotence",
        BOOLEAN,
        None,
        "Whether batches are numbered, so that a retry writes nothing twice; by default where the brokers "
        "allow it.",
    )

    security: ClientSecurity | None = field(default=None, repr=False)
    """``security.protocol``, ``ssl.*`` and ``sasl.*``: those of the ClusterClient; None: not given."""

    @classmethod
    def _other_fields(cls, properties: Mapping[str, object], faults: Faults) -> Mapping[str, object]:
        return {"security": faults.attempt(lambda: ClientSecurity.given_in(properties), None)}

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        least_ms = _one_attempt_ms(self.linger_ms, self.request_timeout_ms)
        if self.delivery_timeout_ms < least_ms:
            allowed = f"must be at least linger.ms + request.timeout.ms, which is {least_ms}"
            error = ConfigError("delivery.timeout.ms", self.delivery_timeout_ms, allowed)
            yield "request.timeout.ms", error
        if self.idempotence and (conflict := self._idempotence_conflict()):
            name, value, allowed = conflict
            error = ConfigError(name, value, f"must be {allowed} with enable.idempotence=true")
            yield "enable.idempotence", error

    @property
    def may_be_idempotent(self) -> bool:
        """True if batches get sequence numbers when the brokers support them."""
        return self.idempotence is not False and self._idempotence_conflict() is None

    def _idempotence_conflict(self) -> tuple[str, object, str] | None:
        """Return the property that rules out idempotence, its value, and the allowed values."""
        if self.acks != ACKS_ALL:
            return "acks", self.acks, "all (-1)"
        if self.retries < 1:
            return "retries", self.retries, "1 or more"
        if self.max_in_flight > MAX_IN_FLIGHT_IDEMPOTENT:
            return _IN_FLIGHT, self.max_in_flight, f"{MAX_IN_FLIGHT_IDEMPOTENT} or less"
        return None

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts for one batch."""
        return Backoff(self.retry_backoff_ms, max(self.retry_backoff_ms, 1_000))


def _transactional_id(text: str) -> str:
    if not text:
        raise ValueError
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalConfig(BatchingConfig):
    """The settings of a producer with transactions: those of batches, its id, and its time-out.

    ``acks`` is all, and idempotence on. An earlier producer with the same ``transactional_id`` is fenced.
    """

    transactional_id: str = setting(
        "transactional.id",
        text_type("a name that no other running producer has", _transactional_id),
        REQUIRED,
        "The name of the producer, the same after a restart.",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        int32(1),
        60_000,
        "How long a transaction may be open before the coordinator aborts it.",
    )
    idempotence: bool | None = setting(
        "enable.idempotence", BOOLEAN, True, "Whether batches are numbered: transactions need it."
    )

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        yield from BatchingConfig._conflicts(self)
        if not self.idempotence:
            error = ConfigError("enable.idempotence", self.idempotence, "must be true with transactional.id")
            yield "transactional.id", error
