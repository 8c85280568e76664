"""Checks that a query still reads the topics of its checkpoint: a changed ``subscribe`` is refused by name.

A checkpoint holds offsets, not the options of the query. Added topics are accepted: the query reads them from
their first offset. A topic that is no longer read would be dropped with its unread records, possibly by a
misspelling, so that requires the option ``minikafka.changed.topics``. A deleted topic is not a change:
``failOnDataLoss`` decides about it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.config.config_def import ConfigKey
from minikafka.base.config.types import choice
from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.base.text import first_of
from pyspark_minikafka.checkpoint import spark_checkpoint
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.strategy import Assign, Strategy, Subscribe

CHANGED_TOPICS = "minikafka.changed.topics"
OPTION = ConfigKey(
    CHANGED_TOPICS,
    choice(
        {"refuse": False, "accept": True},
        "refuse, or accept to drop topics of the checkpoint that are no longer read",
    ),
    "refuse",
    "`accept`: drop topics of the checkpoint that are no longer subscribed.",
)
_NAMED = 5
"""The most partitions that a message names."""


class SubscriptionChanged(MinikafkaError):
    """The checkpoint has partitions that the query's options do not read."""


def accepts_changes(options: Mapping[str, str]) -> bool:
    """Return whether ``options`` (keys in lower case) accept that topics are dropped. Raise ConfigError for
    an invalid value.
    """
    accepts: bool = OPTION.type.parse(CHANGED_TOPICS, options.get(CHANGED_TOPICS, OPTION.default))
    return accepts


def dropped_partitions(strategy: Strategy, *positions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions among ``positions`` that a query with ``strategy`` does not read."""
    reads = spark_checkpoint.reads(strategy)
    return {tp for found in positions for tp in found if not reads(tp)}


def check(
    strategy: Strategy, checkpoint: spark_checkpoint.CheckpointLocation | None, *offsets: StreamOffset
) -> None:
    """Raise SubscriptionChanged when an offset of the checkpoint has partitions that are not read.

    checkpoint: if known, the error names the batch too.
    """
    dropped = dropped_partitions(strategy, *(offset.positions for offset in offsets))
    if not dropped:
        return
    last = next(offset.positions for offset in reversed(offsets) if dropped & set(offset.positions))
    option, before, now = _described(strategy, last)
    at = _batch(checkpoint) or f"after {_with_offsets(dropped & set(last), last)}"
    raise SubscriptionChanged(
        f"{option} was changed from {before} to {now} {at}: {now} does not include {_names(dropped)}, which "
        f"the checkpoint contains. {_restored(strategy, dropped)} to continue; set a new checkpointLocation "
        f"to start over; or set {CHANGED_TOPICS}=accept to drop {_names(dropped)}: a planned batch is "
        "finished first, and topics that are new to the query are read from their first offset"
    )


def dropped_warning(dropped: Collection[TopicPartition], positions: Mapping[TopicPartition, int]) -> str:
    """Return the warning about dropped partitions."""
    partitions = _with_offsets(dropped, positions)
    return f"the query drops {partitions}: its options no longer read that ({CHANGED_TOPICS}=accept)"


def _described(strategy: Strategy, positions: Iterable[TopicPartition]) -> tuple[str, str, str]:
    """Return the option's name, its former value as far as the offsets show it, and its present value."""
    partitions = sorted(positions)
    if isinstance(strategy, Assign):
        return "assign", _assigned(partitions), _assigned(strategy.partitions)
    topics = ",".join(dict.fromkeys(tp.topic for tp in partitions))
    if isinstance(strategy, Subscribe):
        return "subscribe", topics, ",".join(strategy.topics)
    return "subscribePattern", f"one of {topics}", strategy.pattern


def _assigned(partitions: Iterable[TopicPartition]) -> str:
    return json.dumps(numbers_by_topic(partitions), separators=(",", ":"))


def _restored(strategy: Strategy, dropped: Iterable[TopicPartition]) -> str:
    """Return the advice that makes the query read the ``dropped`` partitions again."""
    if isinstance(strategy, Assign):
        return f"Assign {_names(dropped)} again"
    topics = list(dict.fromkeys(tp.topic for tp in sorted(dropped)))
    if isinstance(strategy, Subscribe):
        both = ",".join([*topics, *strategy.topics])
        return f"Set subscribe={','.join(topics)}, or {both} for all,"
    return f"Set a pattern that matches {', '.join(topics)}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return first_of(sorted(partitions), _NAMED)


def _with_offsets(partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, int]) -> str:
    return first_of([f"{tp} at offset {positions[tp]}" for tp in sorted(partitions)], _NAMED)


def _batch(checkpoint: spark_checkpoint.CheckpointLocation | None) -> str:
    if checkpoint is None:
        return ""
    try:
        number = spark_checkpoint.last_batch(checkpoint.directory)
    except OSError:
        return ""
    return "" if number is None else f"at batch {number}"
