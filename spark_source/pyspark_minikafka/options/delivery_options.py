"""Options of a write about its delivery: at least once, or exactly once by a transaction for each batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from minikafka.base.config.config_def import ConfigKey, Faults
from minikafka.base.config.types import choice, int32, text_type
from minikafka.base.errors import BrokerError, ConfigError
from minikafka.base.ids import check_topic_name
from pyspark_minikafka import private_topics

if TYPE_CHECKING:
    from minikafka.clients.produce.config import BatchingConfig

DELIVERY = "minikafka.delivery"
SINK_ID = "minikafka.sink.id"
TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
TRANSACTION_TIMEOUT_MS = 300_000
"""The default of ``kafka.transaction.timeout.ms``."""
SINK_ID_ADVICE = "choose a name that no other query has, and keep it after a restart"


class Delivery(Enum):
    """The number of times that a row may be in the topic after failures."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


def _sink_id(text: str) -> str:
    text = text.strip()
    try:
        check_topic_name(private_topics.STAGING_PREFIX + text)
    except BrokerError:
        raise ValueError from None
    if not text:
        raise ValueError
    return text


OPTIONS = (
    ConfigKey(
        DELIVERY,
        choice({delivery.value: delivery for delivery in Delivery}),
        Delivery.AT_LEAST_ONCE.value,
        "`at-least-once`, or `exactly-once`: the rows of a batch become visible in one transaction, once.",
    ),
    ConfigKey(
        SINK_ID,
        text_type(
            "1 to 229 letters, digits, '.', '_' and '-' that name this query alone, the same after a restart",
            _sink_id,
        ),
        None,
        "The name of a stream that writes exactly once; its transactional id.",
    ),
    ConfigKey(
        TRANSACTION_TIMEOUT,
        int32(1),
        TRANSACTION_TIMEOUT_MS,
        "How long the transaction of a batch that is written exactly once may take.",
    ),
)


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """The parsed options of delivery. sink_id: None unless given. checkpoint: the directory or address of the
    query's checkpoint, if the options of the write name it.
    """

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    sink_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    checkpoint: str | None = None

    @property
    def is_exactly_once(self) -> bool:
        """True if batches are written in transactions."""
        return self.delivery is Delivery.EXACTLY_ONCE


def delivery_options(options: Mapping[str, str], producer: BatchingConfig | None) -> DeliveryOptions:
    """Parse ``options`` (keys in lower case). Raise ConfigErrors for invalid ones, and for settings of the
    producer that rule exactly once out.
    """
    faults = Faults()

    def parsed(key: ConfigKey) -> Any:
        text = options.get(key.name)
        if text is None:
            return key.initial
        return faults.attempt(lambda: key.type.parse(key.name, text), key.initial)

    delivery, sink_id, timeout_ms = map(parsed, OPTIONS)
    faults.check(options)
    if delivery is Delivery.EXACTLY_ONCE and producer is not None and not producer.may_be_idempotent:
        raise ConfigError(
            DELIVERY,
            delivery.value,
            "needs kafka.acks=all, kafka.retries of 1 or more, at most 5 "
            "kafka.max.in.flight.requests.per.connection, and not kafka.enable.idempotence=false",
        )
    return DeliveryOptions(delivery, sink_id, timeout_ms)


def without_effect(options: Mapping[str, str], chosen: DeliveryOptions) -> tuple[str, ...]:
    """Return a warning for options that have no effect on a write at least once."""
    given = [name for name in (SINK_ID, TRANSACTION_TIMEOUT) if name in options]
    if chosen.is_exactly_once or not given:
        return ()
    return (f"{', '.join(given)} has no effect without {DELIVERY}={Delivery.EXACTLY_ONCE.value}",)
