"""Mistakes that the simulated cluster must find: each removes one precaution from the product.

``MISTAKES`` has them by description.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from minikafka.base.clock import Clock
from minikafka.base.ids import TopicPartition
from minikafka.controller import controller as deciding
from minikafka.controller.context import ControllerContext
from minikafka.controller.controller import Controller
from minikafka.controller.effect_batch import EffectBatch
from minikafka.controller.election import EligibleBrokers, next_leader_and_isr
from minikafka.controller.reassignment import PartitionReassignments
from minikafka.groups.shard import GroupCoordinatorShard
from minikafka.log.checkpoints.data_directory import DataDirectory
from minikafka.log.checkpoints.leader_epochs import LeaderEpochs
from minikafka.log.log import Log
from minikafka.log.manager import LogManager
from minikafka.log.reading import LogRead
from minikafka.partition.partition import Partition
from minikafka.partition.replica import FollowerReplica, LeaderAndIsr
from minikafka.records.append.replicated import FollowerRecords, replicated
from minikafka.server.groups.group_coordinator import GroupCoordinator
from minikafka.server.inter_broker_connection import InterBrokerConnection, Peer
from minikafka.server.replication.follower_partition import FollowerPartition
from minikafka.server.replication.isr_writer import IsrWriter
from minikafka.server.replication.replica_fetcher import ReplicaFetcher
from minikafka.server.replication.replica_fetcher_manager import ReplicaFetcherManager
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.server.zookeeper.partition_states import PartitionStates
from minikafka.server.zookeeper.topic_watches import TopicWatches
from minikafka.server.zookeeper.zookeeper_client import ZooKeeperClient
from tests.faults.mistake import Mistake, nothing, yes

# Leaders and followers.

become, read, check_leader, check_follower = (
    Partition.apply_leadership,
    Partition.read,
    Partition.check_leader,
    Partition.check_follower,
)
append_copy, cut_later, propose = Log.append_as_follower, ReplicaFetcher._cut_later, Partition._propose_isr
fetched, converse, read_states = (
    FollowerReplica.update_fetch_state,
    InterBrokerConnection.__init__,
    PartitionStates.read_with_bounced_brokers,
)


def cut_nothing(fetcher: ReplicaFetcher, follower: FollowerPartition, offset: int, **more: Any) -> None:
    cut_later(fetcher, follower, max(offset, follower.partition.log.end_offset), **more)


def cut_to_high_watermark(fetcher: ReplicaFetcher, asking: list[FollowerPartition]) -> bool:
    """Truncate as 0.10.1, which loses messages that KIP-101 keeps."""
    for follower in asking:
        cut_later(fetcher, follower, follower.partition.high_watermark)
    return True


def know_no_epoch(partition: Partition, epoch: int = -1) -> LeaderAndIsr:
    return check_leader(partition)


def advance_to_end(partition: Partition) -> bool:
    moved = partition.log.end_offset > partition._high_watermark
    partition._high_watermark = partition.log.end_offset
    return moved


advance = Partition._advance_high_watermark


def advance_with_proposed_isr(partition: Partition) -> bool:
    """Use the proposed ISR as if it were written."""
    known, proposed = partition._leadership, partition._proposed_isr
    if known is None or proposed is None:
        return advance(partition)
    partition._leadership, partition._proposed_isr = proposed, None
    try:
        return advance(partition)
    finally:
        partition._leadership, partition._proposed_isr = known, proposed


def take_back(partition: Partition, replica: int, leadership: LeaderAndIsr) -> LeaderAndIsr | None:
    """Add the replica to the ISR, whatever it has."""
    if partition._proposed_isr is not None:
        return None
    in_sync = {*leadership.isr, replica}
    return propose(
        partition, leadership, tuple(broker for broker in leadership.replicas if broker in in_sync)
    )


def read_all(partition: Partition, *arguments: Any, for_replica: bool = False, **more: Any) -> LogRead:
    return read(partition, *arguments, for_replica=True, **more)


def committed_at_once(partition: Partition, offset: int, leader_epoch: int) -> bool:
    partition.check_leader()
    return True


def commit_with_too_few(partition: Partition, offset: int, leader_epoch: int) -> bool:
    return check_leader(partition).leader_epoch == leader_epoch and partition.high_watermark > offset


def append_gaps(log: Log, copied: FollowerRecords, **more: Any) -> None:
    """Leave out the first of several batches."""
    if copied.positions.size > 1:
        found = replicated(copied.data[int(copied.positions[1]) :], 0)
        assert found is not None
        copied = found
    append_copy(log, copied, **more)


def fetched_much(progress: FollowerReplica, offset: int, leader_end: int, now_ms: int) -> None:
    """Count the messages of the response as fetched."""
    fetched(progress, leader_end, leader_end, now_ms)


def follow_any_leader(partition: Partition, leader_epoch: int) -> LeaderAndIsr:
    leadership = partition.leadership
    assert leadership is not None
    return leadership


def converse_patiently(
    conversation: InterBrokerConnection, peer: Peer, clock: Clock, timeout_ms: int
) -> None:
    converse(conversation, peer, clock, 1 << 40)


# Control path.


def confirm_every_replica(states: PartitionStates, replicas: Any, registered: Any) -> Any:
    return read_states(states, replicas, {})


def write_blindly(
    states: PartitionStates, topic_partition: TopicPartition, leadership: LeaderAndIsr
) -> LeaderAndIsr | None:
    """Ignore the version of the znode."""
    from minikafka.server.zookeeper import partition_states as module

    stat = states._store.write(module._path(topic_partition), module._state_of(leadership).to_json())
    return replace(leadership, version=stat.version)


def shrink_before_written(in_sync: IsrWriter, partition: Partition, wanted: LeaderAndIsr) -> None:
    """Use the new ISR at once."""
    partition.complete_isr_update(wanted, wanted)
    in_sync._broker.after(lambda: None)
    in_sync._broker.worker.submit(lambda: None)


def obey_any(
    replicas: ReplicaManager, controller_epoch: int, context: Any, respond: Callable[[], Any], refuse: Any
) -> None:
    replicas._broker.worker.submit(lambda: context.answer(respond))


def elect_anybody(
    known: LeaderAndIsr,
    replicas: tuple[int, ...],
    eligible: EligibleBrokers,
    controller_epoch: int,
    *,
    unclean: bool = False,
    force_new_epoch: bool = False,
) -> LeaderAndIsr | None:
    return next_leader_and_isr(
        known, replicas, eligible, controller_epoch, unclean=True, force_new_epoch=force_new_epoch
    )


def keep_epoch(*arguments: Any, **more: Any) -> LeaderAndIsr | None:
    """Elect another leader in the same epoch."""
    found = next_leader_and_isr(*arguments, **more)
    return None if found is None else replace(found, leader_epoch=arguments[0].leader_epoch)


def forget_failed(controller: Controller, brokers: Mapping[int, Any], sessions: Mapping[int, int]) -> None:
    """Ignore brokers that are gone."""
    known = controller._context
    brokers_changed(controller, {**known.brokers, **brokers}, {**known.sessions, **sessions})


brokers_changed = Controller._brokers_changed


def no_bounced_brokers(context: ControllerContext, bounced_brokers: Collection[int] = ()) -> EligibleBrokers:
    return EligibleBrokers(context.brokers, context.shutting_down)


def stop_with_deletion(replicas: ReplicaManager, partitions: Any) -> None:
    """Delete the log of a replica that is only stopped."""
    replicas.stop_and_delete(partitions, lambda topic_partition: None)


def delete_in_name_only(manager: LogManager, home: DataDirectory, partition: TopicPartition) -> None:
    """Keep the files."""
    log = manager._logs.pop(partition, None)
    if log is not None:
        log.abandon()


def leave_old_replicas(
    reassignments: PartitionReassignments,
    topic_partition: TopicPartition,
    known: LeaderAndIsr,
    out: EffectBatch,
) -> None:
    """Do not ask the old replicas of a moved partition to delete their logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out, "add_stop_replica", nothing)
        finish_reassignment(reassignments, topic_partition, known, out)


finish_reassignment = PartitionReassignments.finish


# Groups.


def coordinate_while_loading(coordinator: GroupCoordinator, group_id: str) -> GroupCoordinatorShard:
    """Answer from an empty shard while the log is loaded."""
    if coordinator.partition_of(group_id).partition in coordinator._loads:
        return GroupCoordinatorShard(coordinator._settings)
    return shard_of(coordinator, group_id)


shard_of = GroupCoordinator._shard_of


MISTAKES: dict[str, Mistake] = {
    "a follower does not truncate its log": Mistake(
        [(ReplicaFetcher, "_cut_later", cut_nothing)], seeds=(2, 7)
    ),
    "a follower truncates its log to its high watermark": Mistake(
        [(ReplicaFetcher, "_ask_epochs", cut_to_high_watermark)],
        ("kill", "pause", "isolate", "end_in_the_middle", "expire"),
        seeds=(45, 33, 24),
    ),
    "the leader epoch of a request is not checked": Mistake(
        [(Partition, "check_leader", know_no_epoch)],
        ("kill", "stop", "slow_network"),
        rare=True,
        seeds=(208, 100, 392),
    ),
    "the high watermark is the log's end": Mistake([(Partition, "_advance_high_watermark", advance_to_end)]),
    "the high watermark uses an ISR that is not written yet": Mistake(
        [(Partition, "_advance_high_watermark", advance_with_proposed_isr)], seeds=(5, 2, 7)
    ),
    "the ISR is written without a version check": Mistake([(PartitionStates, "write", write_blindly)]),
    "the ISR shrinks before it is written": Mistake([(IsrWriter, "write", shrink_before_written)]),
    "a lagging replica rejoins the ISR at once": Mistake(
        [(Partition, "_expand_isr", take_back)],
        ("pause", "kill", "slow_network", "isolate"),
        rare=True,
        seeds=(846, 510, 44),
    ),
    "requests of a former controller are executed": Mistake(
        [
            (ReplicaManager, "answer_controller", obey_any),
            (ReplicaManager, "take_epoch", yes),
            (ZooKeeperClient, "is_controller", True),
        ],
        seeds=(2, 1),
    ),
    "acks=all is answered at once": Mistake([(Partition, "is_committed", committed_at_once)]),
    "acks=all is answered for too few replicas": Mistake(
        [(Partition, "is_committed", commit_with_too_few)], ("isolate", "pause", "partition"), seeds=(7,)
    ),
    "a replica out of sync is elected": Mistake(
        [(deciding, "next_leader_and_isr", elect_anybody)], seeds=(69, 6, 8)
    ),
    "an election keeps the leader epoch": Mistake([(deciding, "next_leader_and_isr", keep_epoch)]),
    "a leader does not record the start of its epoch": Mistake(
        [(LeaderEpochs, "assign", nothing)], ("kill", "end_in_the_middle", "power_cut"), seeds=(16, 20, 92)
    ),
    "a follower may leave out a batch": Mistake([(Log, "append_as_follower", append_gaps)]),
    "a follower keeps fetching from earlier leaders": Mistake(
        [(Partition, "check_follower", follow_any_leader), (ReplicaFetcherManager, "leave", nothing)],
        rare=True,
        seeds=(20, 18, 16),
    ),
    "a follower counts as having the messages of a response": Mistake(
        [(FollowerReplica, "update_fetch_state", fetched_much)], rare=True, seeds=(13, 10, 18)
    ),
    "a failed flush of a follower is ignored": Mistake(
        [(ReplicaFetcher, "_is_safe", yes)],
        ("break_disk", "power_cut", "power_cut_everywhere"),
        rare=True,
        seeds=(181, 18, 43),
    ),
    "consumers read to the log's end": Mistake([(Partition, "read", read_all)], seeds=(18, 1)),
    "the controller forgets the partitions of dead brokers": Mistake(
        [(Controller, "_brokers_changed", forget_failed)], seeds=(60, 52, 12)
    ),
    "a broker that restarted at once does not count as bounced": Mistake(
        [(ControllerContext, "eligible_brokers", no_bounced_brokers)],
        ("careful_power_cut",),
        rare=True,
        seeds=(49, 8, 33),
    ),
    "a new controller confirms every replica": Mistake(
        [(PartitionStates, "read_with_bounced_brokers", confirm_every_replica)], rare=True, seeds=(4, 1, 38)
    ),
    "a stopped replica is deleted": Mistake(
        [(ReplicaManager, "stop", stop_with_deletion)], ("stop", "kill"), seeds=(57,)
    ),
    "partitions that a tool adds are ignored": Mistake([(TopicWatches, "keep", nothing)], seeds=(80, 41, 3)),
    "the files of a deleted topic stay": Mistake(
        [(LogManager, "_put_away", delete_in_name_only)], more=True, seeds=(3, 6, 7)
    ),
    "the logs of moved replicas stay": Mistake(
        [(PartitionReassignments, "finish", leave_old_replicas)], seeds=(16, 26, 41)
    ),
    "a coordinator answers before it has read its log": Mistake(
        [(GroupCoordinator, "_shard_of", coordinate_while_loading)],
        ("slow_control", "kill", "expire"),
        rare=True,
        seeds=(201, 3, 92),
        more=True,
    ),
    "a request waits for a response for ever": Mistake(
        [(InterBrokerConnection, "__init__", converse_patiently)], ("hang_connections",)
    ),
}
