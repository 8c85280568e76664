"""Commands of scenario scripts for several brokers (see ``commands``).

A broker runs on a machine, whose number is the broker's id. Clients connect to machine 0 until
``use-machine``.
"""

from __future__ import annotations

from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress, TopicPartition
from minikafka.net.memory import Fault
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry.paths import partition_state_path
from minikafka.registry.topics import PartitionState
from minikafka.server.control import controller_requests as messages
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.controlled_shutdown import ControlledShutdownRequest
from minikafka.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.scenarios.commands import VOCABULARY
from tests.scenarios.script import Numbers, ScriptError
from tests.scenarios.script_simulation import Lines, ScriptRequest, ScriptSimulation
from tests.support.requests import Request
from tests.support.simulation import PORT

CONTROLLER = 0
"""The controller id of ``leader-and-isr`` and the other requests in a controller's name."""


@VOCABULARY.command
def use_machine(simulation: ScriptSimulation, machine: int) -> None:
    """Connect the client to the broker on that machine."""
    simulation.move_to(simulation.machine_of(machine).host)


@VOCABULARY.command
def hold(simulation: ScriptSimulation, machine: int) -> None:
    """Pause all threads of that machine's broker except those that serve requests."""
    simulation.machine_of(machine).held = True


@VOCABULARY.command
def release(simulation: ScriptSimulation, machine: int) -> None:
    """Resume the paused threads."""
    simulation.machine_of(machine).held = False


@VOCABULARY.command
def network(simulation: ScriptSimulation, fault: str, machine: int, times: int = 1) -> None:
    """Inject a fault into the next frames of that machine's broker: ``refuse``, ``drop-request``,
    ``drop-response``, ``cut-request``, ``cut-response``; ``heal`` removes pending faults.
    """
    host = simulation.machine_of(machine).host
    if fault == "heal":
        simulation.network.heal(host, PORT)
        return
    try:
        kind = Fault[fault.upper().replace("-", "_")]
    except KeyError:
        raise ScriptError(f"network: unknown fault {fault!r}") from None
    simulation.network.inject(host, PORT, kind, times)


@VOCABULARY.command
def place(simulation: ScriptSimulation, topic: str, *replicas: Numbers, **settings: str) -> ScriptRequest:
    """Create a topic; each of ``replicas`` lists the machines of one partition."""
    configs = tuple(CreatableTopicConfig(*setting) for setting in settings.items())
    assignment = tuple(CreatableReplicaAssignment(index, machines) for index, machines in enumerate(replicas))
    body = CreateTopicsRequest((CreatableTopic(topic, -1, -1, assignment, configs),), 5000)
    return ScriptRequest(
        Request(ApiKey.CREATE_TOPICS, 0, body),
        lambda answer: [ErrorCode.of(topic.error_code).name for topic in answer.topics if topic.error_code],
    )


@VOCABULARY.command
def replicas(simulation: ScriptSimulation, topic: str, *, partition: int = 0) -> Lines:
    """The state of a partition on each running broker."""
    key = TopicPartition(topic, partition)
    for number, machine in sorted(simulation.machines.items()):
        if machine.running is None:
            continue
        found = machine.broker.partitions.get(key)
        if found is None or found.leadership is None:
            log = machine.broker.logs.get(key)
            yield f"{number} has nothing" if log is None else f"{number} has an unassigned log"
            continue
        known = found.leadership
        role = "leads" if found.is_leader else f"follows {known.leader}" if known.leader >= 0 else "waits"
        in_sync = f", in sync {','.join(map(str, known.isr))}" if found.is_leader else ""
        offsets = f"{found.log.start_offset} to {found.log.end_offset}, committed {found.high_watermark}"
        yield f"{number} {role} in epoch {known.leader_epoch}: {offsets}{in_sync}"


@VOCABULARY.command
def state(simulation: ScriptSimulation, topic: str, *, partition: int = 0) -> Lines:
    """The state of a partition in ZooKeeper."""
    observer, path = simulation.zookeeper.connect(), partition_state_path(topic, partition)
    try:
        data, stat = observer.read(path)
    finally:
        observer.close()
    found = PartitionState.from_json(data, path)
    in_sync = ",".join(map(str, found.isr))
    return [f"leader {found.leader} epoch {found.leader_epoch} in sync {in_sync} version {stat.version}"]


# --- requests in a controller's name ------------------------------------------------------------------------


def _errors(answer: Any) -> Lines:
    codes = [answer.error_code, *(part.error_code for part in getattr(answer, "partitions", ()))]
    return [ErrorCode.of(code).name for code in codes if code]


@VOCABULARY.command
def leader_and_isr(
    simulation: ScriptSimulation,
    topic: str,
    *,
    leader: int,
    epoch: int,
    in_sync: Numbers,
    replicas: Numbers,
    version: int = 0,
    controller_epoch: int = 1,
    partition: int = 0,
) -> ScriptRequest:
    """Send the broker the leader and ISR of a partition, and the address of each machine."""
    known = LeaderAndIsr(leader, epoch, in_sync, replicas, controller_epoch, version)
    brokers = {
        number: BrokerAddress(number, machine.host, PORT) for number, machine in simulation.machines.items()
    }
    body = messages.leader_and_isr(
        CONTROLLER, controller_epoch, {TopicPartition(topic, partition): known}, brokers, {}, 0
    )
    return ScriptRequest(Request(ApiKey.LEADER_AND_ISR, 0, body), _errors)


@VOCABULARY.command
def stop_replica(
    simulation: ScriptSimulation,
    topic: str,
    *,
    delete: bool = False,
    controller_epoch: int = 1,
    partition: int = 0,
) -> ScriptRequest:
    """Request the broker to stop copying a partition, or to delete it."""
    body = messages.stop_replica(
        CONTROLLER, controller_epoch, [TopicPartition(topic, partition)], delete=delete
    )
    return ScriptRequest(Request(ApiKey.STOP_REPLICA, messages.STOP_REPLICA_VERSION, body), _errors)


@VOCABULARY.command
def update_metadata(simulation: ScriptSimulation, *, controller_epoch: int = 1) -> ScriptRequest:
    """Send the broker metadata without any live broker."""
    body = messages.update_metadata(CONTROLLER, controller_epoch, {}, {}, {})
    return ScriptRequest(Request(ApiKey.UPDATE_METADATA, messages.UPDATE_METADATA_VERSION, body), _errors)


@VOCABULARY.command
def controlled_shutdown(simulation: ScriptSimulation, machine: int) -> ScriptRequest:
    """Request another leader for each partition that a machine's broker leads."""

    def show(answer: Any) -> Lines:
        yield from _errors(answer)
        yield from (f"{left.topic}-{left.index} stays" for left in answer.remaining_partitions)

    body = ControlledShutdownRequest(machine)
    return ScriptRequest(Request(ApiKey.CONTROLLED_SHUTDOWN, 1, body), show)
