"""Mistakes that the simulated group of consumers must find: each removes one precaution from the product.

``MISTAKES`` has them by description.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from minikafka.base.ids import TopicPartition
from minikafka.clients.consumer.assignment import RebalancePlan
from minikafka.clients.consumer.rebalancer import RebalanceResult, ZkRebalancerListener
from minikafka.clients.consumer.registration import GroupRegistration, Lease
from minikafka.clients.consumer.runtime import Steps
from minikafka.clients.consumer.streams import ConsumerIterator
from minikafka.clients.consumer.topic_registry import TopicRegistry
from minikafka.registry import paths
from minikafka.registry.consumer_offsets import ZookeeperOffsets
from minikafka.registry.consumer_session import ConsumerSession


@dataclass(frozen=True, slots=True)
class Mistake:
    """Replacements of the product's own attributes: (owner, name, replacement)."""

    seeds: tuple[int, ...]
    """Seeds that found the mistake last, which are tried first; other changes may make some miss it."""
    patches: Sequence[tuple[object, str, object]]


release = ZkRebalancerListener.release_partition_ownership
close = ZkRebalancerListener.close_fetchers
close_queues = ZkRebalancerListener.close_fetchers_for_queues
own = ConsumerSession.claim


def clear_queues_only(registry: TopicRegistry) -> None:
    """Keep the chunks that iterators are reading."""
    for queue in set(registry.topic_thread_id_and_queues.values()):
        with queue.lock:
            queue.clear_locked()


def own_at_once(session: ConsumerSession, tp: TopicPartition, thread: Any) -> None:
    """Claim the partition whoever owns it."""
    own(session, tp, thread)


def do_not_commit(listener: ZkRebalancerListener, plan: RebalancePlan) -> Steps[bool]:
    before = listener._context
    listener._context = replace(before, commit=no_steps)
    try:
        return (yield from close_queues(listener, plan))
    finally:
        listener._context = before


def no_steps() -> Steps[None]:
    yield None


def release_then_close(listener: ZkRebalancerListener, plan: RebalancePlan) -> Steps[bool]:
    """Delete the owners' znodes before the fetchers stop."""
    yield from release(listener, plan.release)
    return (yield from close(listener, plan))


def commit_after_release(listener: ZkRebalancerListener, plan: RebalancePlan) -> Steps[bool]:
    yield from do_not_commit(listener, plan)
    yield from release(listener, plan.release)
    return (yield from close(listener, plan))


def one_attempt(listener: ZkRebalancerListener) -> Steps[None]:
    listener._triggered.clear()
    yield from listener.rebalance()


def wait_for_nobody(listener: ZkRebalancerListener, kept: object, timeout_ms: int) -> bool:
    """Do not wait for the message in process."""
    return True


def look_offsets_up_first(listener: ZkRebalancerListener, plan: RebalancePlan) -> Steps[bool]:
    listener._early = listener._context.offsets.fetch_offsets(plan.my_assignment)  # type: ignore[attr-defined]
    return (yield from close(listener, plan))


def use_early_offsets(
    listener: ZkRebalancerListener, plan: RebalancePlan
) -> Steps[dict[TopicPartition, int] | None]:
    yield None
    return listener._early  # type: ignore[attr-defined,no-any-return]


def forget_nothing(listener: ZkRebalancerListener) -> None:
    """Keep the state of an expired session."""


def write_unconditionally(
    offsets: ZookeeperOffsets, wanted: dict[TopicPartition, int], _: object
) -> frozenset[TopicPartition]:
    for tp, offset in wanted.items():
        path = paths.consumer_offset_path(offsets._group, *tp)
        if offsets._store.exists(path) is None:
            offsets._store.create(path, b"%d" % offset, make_parents=True)
        else:
            offsets._store.write(path, b"%d" % offset)
    return frozenset()


def count_at_the_hand_out(iterator: ConsumerIterator[Any, Any]) -> Any:
    """Count a message at delivery, as 0.10.1 does."""
    message = next_message(iterator)
    iterator.mark_delivered_consumed()
    return message


def attempt_is_done(listener: ZkRebalancerListener) -> Steps[RebalanceResult]:
    yield from rebalance(listener)
    return RebalanceResult.DONE


rebalance, next_message = ZkRebalancerListener.rebalance, ConsumerIterator.__next__


def nothing(*_arguments: object, **_more: object) -> None:
    return


LISTENER = ZkRebalancerListener
MISTAKES = {
    "the chunk that an iterator is in is not cleared": Mistake(
        (4,), [(TopicRegistry, "clear_fetcher_queues", clear_queues_only)]
    ),
    "a partition is owned before the other has let go": Mistake(
        (1,), [(ConsumerSession, "claim", own_at_once)]
    ),
    "partitions are released before anything is stopped": Mistake(
        (3,), [(LISTENER, "close_fetchers", release_then_close)]
    ),
    "offsets are committed after the release": Mistake(
        (6, 15, 18), [(LISTENER, "close_fetchers", commit_after_release)]
    ),
    "offsets are not committed at a rebalance": Mistake(
        (3,), [(LISTENER, "close_fetchers_for_queues", do_not_commit)]
    ),
    "a rebalance that failed is not tried again": Mistake((1,), [(LISTENER, "rebalance", attempt_is_done)]),
    "offsets are looked up before the partition is owned": Mistake(
        (11,),
        [
            (LISTENER, "close_fetchers", look_offsets_up_first),
            (LISTENER, "_fetch_offsets", use_early_offsets),
        ],
    ),
    "the application is not waited for": Mistake(
        (9,), [(LISTENER, "_wait_until_processed", wait_for_nobody)]
    ),
    "a message counts when it is handed out": Mistake(
        (5, 9, 18), [(ConsumerIterator, "__next__", count_at_the_hand_out)]
    ),
    "a lease is valid for ever": Mistake((4,), [(Lease, "is_valid", property(lambda lease: True))]),
    "what was owned in an old session is kept": Mistake((190,), [(LISTENER, "reset_state", forget_nothing)]),
    "commits need no lease": Mistake(
        (298, 569, 721),
        [(GroupRegistration, "check_lease", nothing), (ZookeeperOffsets, "commit", write_unconditionally)],
    ),
}
