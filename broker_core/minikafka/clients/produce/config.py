"""Settings of a producer, under Kafka's own property names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from minikafka.base.config.parsers import boolean, whole_number
from minikafka.base.errors import ConfigError
from minikafka.clients.network.retry import Backoff
from minikafka.records.format.message_set import Codec

ACKS_ALL = -1
_ACKS_UNSET = -2
MAX_IN_FLIGHT_IDEMPOTENT = 5
"""Brokers remember this many of a producer's last batches."""
_INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class BatchingConfig:
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

    acks: int = _ACKS_UNSET
    """If not set: all (-1) when ``idempotence`` is True, else 1."""
    retries: int = _INT32_MAX
    linger_ms: int = 0
    batch_bytes: int = 16_384
    max_in_flight: int = 5
    compression: Codec = Codec.NONE
    buffer_bytes: int = 33_554_432
    max_block_ms: int = 60_000
    max_request_bytes: int = 1_048_576
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    idempotence: bool | None = None

    def __post_init__(self) -> None:
        if self.acks == _ACKS_UNSET:
            object.__setattr__(self, "acks", ACKS_ALL if self.idempotence else 1)
        if self.acks not in (0, 1, ACKS_ALL):
            raise ConfigError("acks", self.acks, "must be 0, 1 or all (-1)")
        for name, least in _MINIMUMS.items():
            value = getattr(self, name)
            if not least <= value <= _INT32_MAX:
                raise ConfigError(_KAFKA_NAMES[name], value, f"must be a number from {least} to {_INT32_MAX}")
        if self.idempotence and (conflict := self._idempotence_conflict()):
            name, value, allowed = conflict
            raise ConfigError(name, value, f"must be {allowed} with enable.idempotence=true")

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
            name = _KAFKA_NAMES["max_in_flight"]
            return name, self.max_in_flight, f"{MAX_IN_FLIGHT_IDEMPOTENT} or less"
        return None

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts for one batch."""
        return Backoff(self.retry_backoff_ms, max(self.retry_backoff_ms, 1_000))

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> BatchingConfig:
        """Return the settings in a mapping of Kafka's names; other names are ignored.

        Values may be text. Raises ConfigError with the property's name, the value and what is allowed.
        """
        known = {kafka: ours for ours, kafka in _KAFKA_NAMES.items()}
        values: dict[str, int | bool | Codec] = {}
        for name, value in properties.items():
            if name not in known:
                continue
            text = str(value).strip()
            if name == "compression.type":
                values["compression"] = Codec.parse(text)
            elif name == "enable.idempotence":
                values["idempotence"] = boolean(name, text)
            elif name == "acks" and text == "all":
                values["acks"] = ACKS_ALL
            else:
                number = whole_number(text)
                if number is None:
                    raise ConfigError(name, value, "must be a whole number")
                values[known[name]] = number
        return cls(**values)  # type: ignore[arg-type]  # the names come from the table above


_KAFKA_NAMES = {
    "acks": "acks",
    "retries": "retries",
    "linger_ms": "linger.ms",
    "batch_bytes": "batch.size",
    "max_in_flight": "max.in.flight.requests.per.connection",
    "compression": "compression.type",
    "buffer_bytes": "buffer.memory",
    "max_block_ms": "max.block.ms",
    "max_request_bytes": "max.request.size",
    "request_timeout_ms": "request.timeout.ms",
    "delivery_timeout_ms": "delivery.timeout.ms",
    "retry_backoff_ms": "retry.backoff.ms",
    "idempotence": "enable.idempotence",
}
assert set(_KAFKA_NAMES) == {f.name for f in fields(BatchingConfig)}

_MINIMUMS = {
    "retries": 0,
    "linger_ms": 0,
    "batch_bytes": 0,
    "max_in_flight": 1,
    "buffer_bytes": 1,
    "max_block_ms": 0,
    "max_request_bytes": 1,
    "request_timeout_ms": 1,
    "delivery_timeout_ms": 1,
    "retry_backoff_ms": 0,
}
