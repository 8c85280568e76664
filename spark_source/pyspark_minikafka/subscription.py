"""Checks that a query still reads the topics of its checkpoint: a changed ``subscribe`` is refused by name.

A checkpoint holds offsets and not the options that they came from. Topics that are added need no word: the
query goes on with the others and reads the new ones from their first offset. A topic that is not read any
more would be dropped with what is left of it, also by a slip of the pen, so that takes the option
``minikafka.changed.topics``. A topic that was deleted is no change: ``failOnDataLoss`` decides about it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka import resume
from pyspark_minikafka.offsets import StreamOffset
from pyspark_minikafka.strategy import Assign, Strategy, Subscribe

CHANGED_TOPICS = "minikafka.changed.topics"
_ACCEPT, _REFUSE = "accept", "refuse"
_NAMED = 5
"""Partitions that a message names."""


class SubscriptionChanged(MinikafkaError):
    """The checkpoint has read partitions that the query's options do not read."""


def accepts_changes(options: Mapping[str, str]) -> bool:
    """Return whether ``options`` (keys in lower case) accept that topics are dropped. Raise ConfigError for
    an invalid value.
    """
    value = options.get(CHANGED_TOPICS, _REFUSE)
    word = value.strip().lower()
    if word not in (_ACCEPT, _REFUSE):
        raise ConfigError(
            CHANGED_TOPICS,
            value,
            f"must be {_REFUSE}, or {_ACCEPT} to leave topics behind that the checkpoint has read",
        )
    return word == _ACCEPT


def left_behind(strategy: Strategy, *positions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """The partitions among ``positions`` that a query with ``strategy`` does not read."""
    reads = resume.reads(strategy)
    return {tp for found in positions for tp in found if not reads(tp)}


def check(strategy: Strategy, checkpoint: resume.Place | None, *offsets: StreamOffset) -> None:
    """SubscriptionChanged where an offset of the checkpoint has partitions that are not read.

    checkpoint: where its directory is known; then the batch is named, too.
    """
    left = left_behind(strategy, *(offset.positions for offset in offsets))
    if not left:
        return
    last = next(offset.positions for offset in reversed(offsets) if left & set(offset.positions))
    option, before, now = _described(strategy, last)
    at = _batch(checkpoint) or f"after {_where(left & set(last), last)}"
    raise SubscriptionChanged(
        f"{option} was changed from {before} to {now} {at}: {now} leaves out {_names(left)}, which the "
        f"checkpoint has read. {_way_back(strategy, left)} to go on; give another checkpointLocation to "
        f"begin anew; or set {CHANGED_TOPICS}={_ACCEPT} to leave {_names(left)} behind: a batch that is "
        "planned is finished first, and topics that are new to the query are read from their first offset"
    )


def parting(left: Collection[TopicPartition], positions: Mapping[TopicPartition, int]) -> str:
    """Return the warning about dropped partitions."""
    where = _where(left, positions)
    return f"the query goes on without {where}: its options leave that out ({CHANGED_TOPICS}={_ACCEPT})"


def _described(strategy: Strategy, positions: Iterable[TopicPartition]) -> tuple[str, str, str]:
    """The option's name, its value before, as far as offsets tell it, and now."""
    partitions = sorted(positions)
    if isinstance(strategy, Assign):
        return "assign", _assigned(partitions), _assigned(strategy.partitions)
    topics = ",".join(dict.fromkeys(tp.topic for tp in partitions))
    if isinstance(strategy, Subscribe):
        return "subscribe", topics, ",".join(strategy.topics)
    return "subscribePattern", f"one of {topics}", strategy.pattern


def _assigned(partitions: Iterable[TopicPartition]) -> str:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return json.dumps(found, separators=(",", ":"))


def _way_back(strategy: Strategy, left: Iterable[TopicPartition]) -> str:
    if isinstance(strategy, Assign):
        return f"Assign {_names(left)} again"
    topics = list(dict.fromkeys(tp.topic for tp in sorted(left)))
    if isinstance(strategy, Subscribe):
        both = ",".join([*topics, *strategy.topics])
        return f"Set subscribe={','.join(topics)}, or {both} for all,"
    return f"Give a pattern that matches {', '.join(topics)}"


def _names(partitions: Iterable[TopicPartition]) -> str:
    return _some(map(str, sorted(partitions)))


def _where(partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, int]) -> str:
    return _some(f"{tp} at offset {positions[tp]}" for tp in sorted(partitions))


def _some(texts: Iterable[str]) -> str:
    found = list(texts)
    return ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def _batch(checkpoint: resume.Place | None) -> str:
    if checkpoint is None:
        return ""
    try:
        number = resume.last_batch(checkpoint.directory)
    except OSError:
        return ""
    return "" if number is None else f"at batch {number}"
