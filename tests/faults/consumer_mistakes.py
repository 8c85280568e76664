"""Mistakes that the simulated group of consumers must find: each removes one precaution from the product.

``MISTAKES`` has them by description.
"""

from __future__ import annotations

from dataclasses import replace
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
from tests.faults.mistake import Mistake, nothing

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


LISTENER = ZkRebalancerListener
MISTAKES = {
    "the chunk that an iterator is in is not cleared": Mistake(
        [(TopicRegistry, "clear_fetcher_queues", clear_queues_only)], seeds=(4,)
    ),
    "a partition is owned before the other has let go": Mistake(
        [(ConsumerSession, "claim", own_at_once)], seeds=(1,)
    ),
    "partitions are released before anything is stopped": Mistake(
        [(LISTENER, "close_fetchers", release_then_close)], seeds=(3,)
    ),
    "offsets are committed after the release": Mistake(
        [(LISTENER, "close_fetchers", commit_after_release)], seeds=(6, 15, 18)
    ),
    "offsets are not committed at a rebalance": Mistake(
        [(LISTENER, "close_fetchers_for_queues", do_not_commit)], seeds=(3,)
    ),
    "a rebalance that failed is not tried again": Mistake(
        [(LISTENER, "rebalance", attempt_is_done)], seeds=(1,)
    ),
    "offsets are looked up before the partition is owned": Mistake(
        [
            (LISTENER, "close_fetchers", look_offsets_up_first),
            (LISTENER, "_fetch_offsets", use_early_offsets),
        ],
        seeds=(11,),
    ),
    "the application is not waited for": Mistake(
        [(LISTENER, "_wait_until_processed", wait_for_nobody)], seeds=(9,)
    ),
    "a message counts when it is handed out": Mistake(
        [(ConsumerIterator, "__next__", count_at_the_hand_out)], seeds=(5, 9, 18)
    ),
    "a lease is valid for ever": Mistake([(Lease, "is_valid", property(lambda lease: True))], seeds=(4,)),
    "what was owned in an old session is kept": Mistake([(LISTENER, "reset_state", nothing)], seeds=(190,)),
    "commits need no lease": Mistake(
        [(GroupRegistration, "check_lease", nothing), (ZookeeperOffsets, "commit", write_unconditionally)],
        seeds=(298, 569, 721),
    ),
}
