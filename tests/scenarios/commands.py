"""The commands of scenario scripts: one function for each (see ``script`` for the language).

``start 1`` starts the broker of machine 1; without a number, machine 0 is meant. Commands that return a
``ScriptRequest`` are requests: they are sent, and time passes until they are answered; ``begin NAME`` before
a command leaves its request open. After each command, everything that needs no time runs. Errors in responses
appear by their names, exceptions of a command as ``Type: message``. Times are since the start of the script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, NoNode
from minikafka.records.format.batch import build_batch, set_producer
from minikafka.records.format.message_set import Codec, Record, StoredRecord, build_message_set, iterate
from minikafka.registry.entity_configs import EntityConfig
from minikafka.server.config.properties import BrokerConfig
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from minikafka.wire.apis.delete_topics import DeleteTopicsRequest
from minikafka.wire.apis.init_producer_id import InitProducerIdRequest
from minikafka.wire.apis.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from minikafka.wire.apis.metadata import MetadataResponse, metadata_request
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)
from minikafka.wire.frame_parts import buffer_of
from tests.scenarios.script import Duration, Numbers, ScriptError, Vocabulary, read
from tests.scenarios.script_simulation import Lines, ScriptRequest, ScriptSimulation
from tests.support import requests
from tests.support.requests import Request
from tests.support.simulation import PORT, Machine

VOCABULARY = Vocabulary()


def _running(simulation: ScriptSimulation, number: int) -> Machine:
    machine = simulation.machine_of(number)
    if machine.running is None:
        raise ScriptError(f"no broker runs on machine {number}")
    return machine


def _settings(given: dict[str, str]) -> dict[str, str]:
    """Check the names of properties: all of Kafka's have a dot, so others are misspelt options."""
    for name in given:
        if "." not in name:
            raise ScriptError(f"unknown option {name!r}")
    return given


def _text(data: bytes | None) -> str:
    """Return bytes in a readable form."""
    if data is None:
        return "null"
    text = data.decode("ascii", "replace")
    if len(text) > 40 and len(set(text)) == 1:
        return f"{text[0]}*{len(text)}"
    if not text.isprintable() or "\ufffd" in text:
        return f"0x{data.hex()}"
    return text if text and " " not in text else f"'{text}'"


# --- brokers ------------------------------------------------------------------------------------------------


@VOCABULARY.command
def start(simulation: ScriptSimulation, machine: int = 0, **properties: str) -> Lines:
    """Start a broker with Kafka's own properties."""
    config = BrokerConfig.from_properties({"zookeeper.connect": "memory", **properties})
    if config.unknown:
        raise ScriptError(f"start: unknown properties {', '.join(config.unknown)}")
    serves = simulation.machine_of(machine).start(properties)
    return () if serves else ("not ready yet",)


@VOCABULARY.command
def stop(simulation: ScriptSimulation, machine: int = 0) -> None:
    """Stop it cleanly."""
    _running(simulation, machine).stop()


@VOCABULARY.command
def kill(simulation: ScriptSimulation, machine: int = 0) -> None:
    """Kill the broker process; the disk keeps all writes."""
    _running(simulation, machine).kill()


@VOCABULARY.command
def power_cut(simulation: ScriptSimulation, machine: int = 0) -> None:
    """Cut the machine's power; unflushed data is lost."""
    _running(simulation, machine).power_cut()


@VOCABULARY.command
def log(simulation: ScriptSimulation) -> Lines:
    """Warnings and errors of the brokers that were not shown yet."""
    return simulation.log.take() or ("nothing",)


@VOCABULARY.command
def advance(simulation: ScriptSimulation, time: Duration) -> None:
    """Let time pass."""
    simulation.settle()
    simulation.network.wait(lambda: False, simulation.clock.monotonic_ms() + time)


@VOCABULARY.command
def use_client_id(simulation: ScriptSimulation, client_id: str) -> None:
    """Set the client id of later requests."""
    simulation.client_id = client_id


@VOCABULARY.command
def use_port(simulation: ScriptSimulation, port: int) -> None:
    """Connect the client to another listener."""
    simulation.go_to(port)


# --- topics -------------------------------------------------------------------------------------------------


def _outcome(answer: Any) -> Lines:
    return [ErrorCode.of(topic.error_code).name for topic in answer.topics if topic.error_code]


@VOCABULARY.command
def create(
    simulation: ScriptSimulation,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    timeout: Duration = 5000,
    **settings: str,
) -> ScriptRequest:
    """Create a topic."""
    request = requests.create_topic(
        topic, partitions, replicas=replicas, timeout_ms=timeout, settings=_settings(settings)
    )
    return ScriptRequest(request, _outcome)


@VOCABULARY.command
def delete(simulation: ScriptSimulation, topic: str, *, timeout: Duration = 5000) -> ScriptRequest:
    """Delete a topic."""
    return ScriptRequest(Request(ApiKey.DELETE_TOPICS, 0, DeleteTopicsRequest((topic,), timeout)), _outcome)


@VOCABULARY.command
def metadata(
    simulation: ScriptSimulation, *topics: str, version: int = 2, may_create: bool = True
) -> ScriptRequest:
    """Partitions of some or all topics."""

    def show(answer: MetadataResponse) -> Lines:
        for topic in answer.topics:
            if topic.error_code:
                yield f"{topic.name} {ErrorCode.of(topic.error_code).name}"
            for part in sorted(topic.partitions, key=lambda part: part.index):
                error = f" {ErrorCode.of(part.error_code).name}" if part.error_code else ""
                epoch = f" epoch {part.leader_epoch}" if version >= 7 else ""
                offline = f" offline {_list(part.offline_replicas)}" if part.offline_replicas else ""
                numbers = f"replicas {_list(part.replica_nodes)} in sync {_list(part.isr_nodes)}{offline}"
                yield f"{topic.name}-{part.index} leader {part.leader_id}{epoch} {numbers}{error}"
        if not answer.topics:
            yield "no topics"

    return ScriptRequest(
        Request(ApiKey.METADATA, version, metadata_request(topics or None, may_create)), show
    )


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "none"


@VOCABULARY.command
def cluster(simulation: ScriptSimulation) -> ScriptRequest:
    """The cluster's id, controller and brokers."""

    def show(answer: MetadataResponse) -> Lines:
        yield f"id {answer.cluster_id} controller {answer.controller_id}"
        for broker in answer.brokers:
            yield f"broker {broker.node_id} at {broker.host}:{broker.port}"

    return ScriptRequest(requests.metadata(), show)


# --- messages -----------------------------------------------------------------------------------------------


def _value(text: str) -> bytes | None:
    """Return the value of ``text``: ``part*times`` is repeated, ``null`` is no value."""
    if text == "null":
        return None
    part, star, times = text.rpartition("*")
    return (part * int(times) if star and times.isdigit() else text).encode()


@VOCABULARY.command
def produce(
    simulation: ScriptSimulation,
    topic: str,
    *messages: str,
    partition: Numbers = (0,),
    acks: int = -1,
    codec: str = "none",
    version: int = 2,
    at: Duration = -1,
    damaged: bool = False,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = 0,
) -> ScriptRequest:
    """Send one message set of VALUE or KEY:VALUE, of magic 0 up to version 1 and a batch from version 3 on,
    with the time ``at`` or the current one; ``damaged`` flips its last bit. VALUE may be like ``x*5000``, or
    ``null``. A ``producer`` numbers its messages from ``sequence`` on.
    """
    timestamp_ms = simulation.clock.now_ms() if at < 0 else at
    records = []
    for message in messages:
        key, colon, value = message.rpartition(":")
        records.append(Record(key.encode() if colon else None, _value(value), timestamp_ms))
    chosen = Codec[codec.upper()]
    if version >= 3:
        message_set = bytearray(build_batch(records, codec=chosen))
        if producer >= 0:
            set_producer(message_set, producer, epoch, sequence)
    else:
        message_set = bytearray(build_message_set(records, magic=int(version == 2), codec=chosen))
    if damaged:
        message_set[-1] ^= 1

    def show(answer: Any) -> Lines:
        if answer is None:
            assert simulation.connection is not None
            return ["connection closed"] if simulation.connection.closed else []
        parts = answer.topics[0].partitions
        named = len(parts) > 1
        return [f"partition {part.index} " * named + _appended(part) for part in parts]

    request = requests.produce(topic, bytes(message_set), partitions=partition, acks=acks, version=version)
    return ScriptRequest(request, show)


@VOCABULARY.command
def producer_id(simulation: ScriptSimulation, *, transactional_id: str = "") -> ScriptRequest:
    """Request a producer id."""

    def show(answer: Any) -> Lines:
        code = answer.error_code
        yield ErrorCode.of(code).name if code else f"id {answer.producer_id} epoch {answer.producer_epoch}"

    return ScriptRequest(
        Request(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(transactional_id or None, 60_000)), show
    )


def _appended(part: Any) -> str:
    if part.error_code:
        return ErrorCode.of(part.error_code).name
    time = f" timestamp {part.log_append_time_ms}" if part.log_append_time_ms >= 0 else ""
    return f"offset {part.base_offset}{time}"


@VOCABULARY.command
def fetch(
    simulation: ScriptSimulation,
    topic: str,
    *,
    from_: int = 0,
    partition: int = 0,
    wait: Duration = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    version: int = 3,
    leader_epoch: int = -1,
) -> ScriptRequest:
    """Fetch from one partition."""

    def show(answer: Any) -> Lines:
        (part,) = answer.topics[0].partitions
        if part.error_code:
            return [ErrorCode.of(part.error_code).name]
        data = buffer_of(part.records)
        lines = []
        try:
            lines += [show_record(record) for record in iterate(data)]
        except BrokerError as error:  # found by the consumer, not the broker
            return [*lines, f"damaged: {error.detail}"]
        return lines or [f"{len(data)} bytes of a message" if len(data) else "nothing"]

    request = requests.fetch(
        topic,
        from_,
        partition=partition,
        wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        version=version,
        leader_epoch=leader_epoch,
    )
    return ScriptRequest(request, show)


def show_record(record: StoredRecord) -> str:
    """Return one line for a message."""
    time = f" timestamp {record.timestamp_ms}" if record.magic else ""
    key = f" key {_text(record.key)}" if record.key is not None else ""
    codec = f" {record.codec.name.lower()}" if record.codec else ""
    magic = "" if record.magic == 1 else f" magic {record.magic}"
    return f"offset {record.offset}{time}{key} value {_text(record.value)}{codec}{magic}"


@VOCABULARY.command
def offsets(
    simulation: ScriptSimulation,
    topic: str,
    *,
    at: str = "end",
    partition: int = 0,
    limit: int = 1,
    version: int = 1,
) -> ScriptRequest:
    """The offset at the ``start``, the ``end`` or a time; of up to ``limit`` segments with version 0."""
    named = {"start": EARLIEST, "end": LATEST}
    part = ListOffsetsPartition(
        partition, -1, named[at] if at in named else read(Duration, at, "offsets: at"), limit
    )
    body = ListOffsetsRequest(-1, 0, (ListOffsetsTopic(topic, (part,)),))

    def show(answer: Any) -> Lines:
        (found,) = answer.topics[0].partitions
        if found.error_code:
            return [ErrorCode.of(found.error_code).name]
        if version == 0:
            return [f"offsets {_list(found.offsets)}"]
        time = f" timestamp {found.timestamp}" if found.timestamp >= 0 else ""
        epoch = f" epoch {found.leader_epoch}" if found.leader_epoch >= 0 else ""
        return [f"offset {found.offset}{time}{epoch}" if found.offset >= 0 else "none"]

    return ScriptRequest(Request(ApiKey.LIST_OFFSETS, version, body), show)


@VOCABULARY.command
def epoch(
    simulation: ScriptSimulation, topic: str, of: int, *, partition: int = 0, leader_epoch: int = -1
) -> ScriptRequest:
    """The end offset of a leader epoch of a partition."""
    part = EpochPartition(partition, leader_epoch, of)
    body = OffsetForLeaderEpochRequest((EpochTopic(topic, (part,)),))

    def show(answer: Any) -> Lines:
        (found,) = answer.topics[0].partitions
        if found.error_code:
            return [ErrorCode.of(found.error_code).name]
        return [f"epoch {found.leader_epoch} ends at {found.end_offset}"]

    return ScriptRequest(Request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, body), show)


@VOCABULARY.command
def delete_records(
    simulation: ScriptSimulation, topic: str, before: int, *, partition: int = 0
) -> ScriptRequest:
    """Delete the records of a partition before an offset; -1 is its high watermark."""
    body = DeleteRecordsRequest((DeleteRecordsTopic(topic, (DeleteRecordsPartition(partition, before),)),), 0)

    def show(answer: Any) -> Lines:
        (result,) = answer.topics[0].partitions
        if result.error_code:
            return [ErrorCode.of(result.error_code).name]
        return [f"low watermark {result.low_watermark}"]

    return ScriptRequest(Request(ApiKey.DELETE_RECORDS, 1, body), show)


# --- requests in the background, and invalid ones -----------------------------------------------------------


@VOCABULARY.command
def begin(simulation: ScriptSimulation, name: str, command: str, *words: str, **options: str) -> None:
    """Send a request as the client ``name``, and do not wait for its response."""
    script_request = VOCABULARY.call(simulation, command, words, options)
    if not isinstance(script_request, ScriptRequest):
        raise ScriptError(f"begin: {command} is not a request")
    if name in simulation.open:
        raise ScriptError(f"begin: {name} has a request open")
    if not script_request.request.answered:
        raise ScriptError(f"begin: this {command} has no response")
    client = simulation.another_client()
    client.begin(script_request.request)
    simulation.open[name] = client, script_request


@VOCABULARY.command
def answer(simulation: ScriptSimulation, name: str) -> Lines:
    """The response to a request of ``begin``, or ``waits``. No time passes."""
    if name not in simulation.open:
        raise ScriptError(f"answer: {name} has no request open; open: {', '.join(simulation.open) or 'none'}")
    client, script_request = simulation.open[name]
    if not client.answered():
        return ["waits"]
    del simulation.open[name]
    return script_request.show(client.finish())


@VOCABULARY.command
def frame(simulation: ScriptSimulation, text: str = "", *, hex_: str = "") -> Lines:
    """Send any bytes as one frame over a new connection."""
    connection = simulation.network.connect(simulation.host, PORT)
    pending = connection.request([text.encode() + bytes.fromhex(hex_)])
    if not pending.done():
        return ["no response"]
    try:
        return [f"response {bytes(pending.result()).hex(' ', 4)}"]
    except NetworkError:
        return ["connection closed"]


# --- ZooKeeper ----------------------------------------------------------------------------------------------


@VOCABULARY.command
def zookeeper(simulation: ScriptSimulation, what: str, machine: int = 0) -> None:
    """Change the broker's connection to ZooKeeper: ``disconnect``, ``reconnect``, ``expire`` (the session),
    ``disconnect-at-next-write`` (before the response), ``hold-watches``, ``release-watches`` (all brokers).
    """
    actions: dict[str, Callable[[], None]] = {
        "disconnect": lambda: simulation.zookeeper.suspend(simulation.machine_of(machine).store),
        "disconnect-at-next-write": lambda: simulation.zookeeper.suspend_at_next_write(
            simulation.machine_of(machine).store
        ),
        "reconnect": lambda: simulation.zookeeper.resume(simulation.machine_of(machine).store),
        "expire": lambda: simulation.zookeeper.expire(simulation.machine_of(machine).store),
        "hold-watches": lambda: setattr(simulation, "watches_are_held", True),
        "release-watches": lambda: setattr(simulation, "watches_are_held", False),
    }
    if what not in actions:
        raise ScriptError(f"zookeeper: unknown action {what!r}; expected one of {', '.join(actions)}")
    actions[what]()


@VOCABULARY.command
def znode(simulation: ScriptSimulation, path: str) -> Lines:
    """The data and children of a znode."""
    observer = simulation.zookeeper.connect()
    try:
        data, stat = observer.read(path)
        children = observer.children(path)
    except NoNode:
        return ["does not exist"]
    finally:
        observer.close()
    lines = [_text(data)] * bool(data) + [f"children {', '.join(children)}"] * bool(children)
    return lines + ["ephemeral"] * bool(stat.ephemeral_owner) or ["empty"]


@VOCABULARY.command
def set_znode(simulation: ScriptSimulation, path: str, data: str) -> None:
    """Write a znode directly."""
    observer = simulation.zookeeper.connect()
    observer.write(path, data.encode())
    observer.close()


@VOCABULARY.command
def create_znode(
    simulation: ScriptSimulation, path: str, data: str = "", *, sequential: bool = False
) -> None:
    """Create a znode directly."""
    observer = simulation.zookeeper.connect()
    observer.create(path, data.encode(), sequential=sequential, make_parents=True)
    observer.close()


@VOCABULARY.command
def delete_znode(simulation: ScriptSimulation, path: str) -> None:
    """Delete a znode and its descendants directly."""
    observer = simulation.zookeeper.connect()
    observer.delete(path, recursive=True)
    observer.close()


@VOCABULARY.command
def alter(simulation: ScriptSimulation, topic: str, **settings: str) -> None:
    """Replace the topic's settings in ZooKeeper, as Kafka's own tool does."""
    set_znode(simulation, f"/config/topics/{topic}", EntityConfig(_settings(settings)).to_json().decode())
    change = json.dumps({"version": 2, "entity_path": f"topics/{topic}"})
    create_znode(simulation, "/config/changes/config_change_", change, sequential=True)


@VOCABULARY.command
def alter_client(simulation: ScriptSimulation, client: str, **settings: str) -> None:
    """Replace the client's quotas in ZooKeeper, as Kafka's own tool does."""
    _alter_entity(simulation, f"clients/{client}", settings)


@VOCABULARY.command
def alter_user(simulation: ScriptSimulation, user: str, **settings: str) -> None:
    """Replace the quotas of the user, or of ``USER/clients/ID``, in ZooKeeper, as Kafka's own tool does."""
    _alter_entity(simulation, f"users/{user}", settings)


@VOCABULARY.command
def alter_broker(simulation: ScriptSimulation, machine: int, **settings: str) -> None:
    """Replace the broker's settings in ZooKeeper, as Kafka's own tool does."""
    _alter_entity(simulation, f"brokers/{machine}", settings)


def _alter_entity(simulation: ScriptSimulation, entity: str, settings: dict[str, str]) -> None:
    path = f"/config/{entity}"
    observer = simulation.zookeeper.connect()
    exists = observer.exists(path) is not None
    observer.close()
    write = set_znode if exists else create_znode
    write(simulation, path, EntityConfig(settings).to_json().decode())
    change = json.dumps({"version": 2, "entity_path": entity})
    create_znode(simulation, "/config/changes/config_change_", change, sequential=True)
