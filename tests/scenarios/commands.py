"""What scenario scripts can say: one function for each command (see ``script`` for the language).

``start 1`` is the broker of machine 1; without a number, machine 0 is meant. Commands that return an
``Asked`` are requests: they are sent, and time passes until they are answered; ``begin NAME`` before one
leaves it open. After each command everything happens that needs no time. Errors in answers appear by their
name, those that a command meets itself as ``Type: message``. Times are since the start of the script.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable
from typing import Any

from minikafka.base.errors import BrokerError, ErrorCode, NetworkError, NoNode
from minikafka.records.format.batch import build_batch, set_producer
from minikafka.records.format.message_set import Codec, Record, StoredRecord, build_message_set, iterate
from minikafka.registry.paths import EntityConfig
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
from minikafka.wire.apis.metadata import MetadataRequest, MetadataResponse
from minikafka.wire.apis.offset_for_leader_epoch import (
    EpochPartition,
    EpochTopic,
    OffsetForLeaderEpochRequest,
)
from minikafka.wire.frame_parts import buffer_of
from tests.scenarios.script import Duration, Numbers, ScriptError, Vocabulary, read
from tests.scenarios.world import Asked, Lines, World
from tests.support import simulation
from tests.support.simulation import DATA_DIR, PORT, Machine, Request

VOCABULARY = Vocabulary()


def _running(world: World, number: int) -> Machine:
    machine = world.machine_of(number)
    if machine.running is None:
        raise ScriptError(f"no broker runs on machine {number}")
    return machine


def _settings(given: dict[str, str]) -> dict[str, str]:
    """Kafka's properties, all of which have a dot in their names: anything else is a misspelt option."""
    for name in given:
        if "." not in name:
            raise ScriptError(f"unknown option {name!r}")
    return given


def _text(data: bytes | None) -> str:
    """Bytes as a reader likes them."""
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
def start(world: World, machine: int = 0, **properties: str) -> Lines:
    """Start a broker with Kafka's own properties."""
    config = BrokerConfig.from_properties({"zookeeper.connect": "memory", **properties})
    if config.unknown:
        raise ScriptError(f"start: unknown properties {', '.join(config.unknown)}")
    serves = world.machine_of(machine).start(properties)
    return () if serves else ("does not serve yet",)


@VOCABULARY.command
def stop(world: World, machine: int = 0) -> None:
    """Stop it cleanly."""
    _running(world, machine).stop()


@VOCABULARY.command
def kill(world: World, machine: int = 0) -> None:
    """End the process at once; what it wrote stays."""
    _running(world, machine).kill()


@VOCABULARY.command
def power_cut(world: World, machine: int = 0) -> None:
    """End the machine at once; what was not flushed is lost."""
    _running(world, machine).power_cut()


@VOCABULARY.command
def log(world: World) -> Lines:
    """Warnings and errors of the brokers since they were last shown."""
    return world.log.take() or ("nothing",)


@VOCABULARY.command
def advance(world: World, time: Duration) -> None:
    """Let time pass."""
    world.settle()
    world.network.wait(lambda: False, world.clock.monotonic_ms() + time)


@VOCABULARY.command
def call_yourself(world: World, client_id: str) -> None:
    """The client's id from now on."""
    world.client_id = client_id


@VOCABULARY.command
def use_port(world: World, port: int) -> None:
    """The client goes to another listener from now on."""
    world.go_to(port)


# --- topics -------------------------------------------------------------------------------------------------


def _outcome(answer: Any) -> Lines:
    return [ErrorCode.of(topic.error_code).name for topic in answer.topics if topic.error_code]


@VOCABULARY.command
def create(
    world: World,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    timeout: Duration = 5000,
    **settings: str,
) -> Asked:
    """Create a topic."""
    request = simulation.create_topic(
        topic, partitions, replicas=replicas, timeout_ms=timeout, settings=_settings(settings)
    )
    return Asked(request, _outcome)


@VOCABULARY.command
def delete(world: World, topic: str, *, timeout: Duration = 5000) -> Asked:
    """Delete a topic."""
    return Asked(Request(ApiKey.DELETE_TOPICS, 0, DeleteTopicsRequest((topic,), timeout)), _outcome)


@VOCABULARY.command
def metadata(world: World, *topics: str, version: int = 2, may_create: bool = True) -> Asked:
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

    return Asked(Request(ApiKey.METADATA, version, MetadataRequest(topics or None, may_create)), show)


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "none"


@VOCABULARY.command
def cluster(world: World) -> Asked:
    """The cluster's id, controller and brokers."""

    def show(answer: MetadataResponse) -> Lines:
        yield f"id {answer.cluster_id} controller {answer.controller_id}"
        for broker in answer.brokers:
            yield f"broker {broker.node_id} at {broker.host}:{broker.port}"

    return Asked(simulation.metadata(), show)


# --- messages -----------------------------------------------------------------------------------------------


def _value(text: str) -> bytes | None:
    """The text, ``part*times`` multiplied; no value at all for ``null``."""
    if text == "null":
        return None
    part, star, times = text.rpartition("*")
    return (part * int(times) if star and times.isdigit() else text).encode()


@VOCABULARY.command
def produce(
    world: World,
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
) -> Asked:
    """Send one message set of VALUE or KEY:VALUE, of magic 0 up to version 1 and a batch from version 3 on,
    with the time ``at`` or now's; ``damaged`` spoils its last bit. VALUE may be like ``x*5000``, or ``null``.
    A ``producer`` numbers its messages from ``sequence`` on.
    """
    timestamp_ms = world.clock.now_ms() if at < 0 else at
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
            assert world.connection is not None
            return ["connection closed"] if world.connection.closed else []
        parts = answer.topics[0].partitions
        named = len(parts) > 1
        return [f"partition {part.index} " * named + _appended(part) for part in parts]

    request = simulation.produce(topic, bytes(message_set), partitions=partition, acks=acks, version=version)
    return Asked(request, show)


@VOCABULARY.command
def producer_id(world: World, *, transactional_id: str = "") -> Asked:
    """Get an id for a producer."""

    def show(answer: Any) -> Lines:
        code = answer.error_code
        yield ErrorCode.of(code).name if code else f"id {answer.producer_id} epoch {answer.producer_epoch}"

    return Asked(
        Request(ApiKey.INIT_PRODUCER_ID, 1, InitProducerIdRequest(transactional_id or None, 60_000)), show
    )


def _appended(part: Any) -> str:
    if part.error_code:
        return ErrorCode.of(part.error_code).name
    time = f" timestamp {part.log_append_time_ms}" if part.log_append_time_ms >= 0 else ""
    return f"offset {part.base_offset}{time}"


@VOCABULARY.command
def fetch(
    world: World,
    topic: str,
    *,
    from_: int = 0,
    partition: int = 0,
    wait: Duration = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    version: int = 3,
    leader_epoch: int = -1,
) -> Asked:
    """Read one partition."""

    def show(answer: Any) -> Lines:
        (part,) = answer.topics[0].partitions
        if part.error_code:
            return [ErrorCode.of(part.error_code).name]
        data = buffer_of(part.records)
        lines = []
        try:
            lines += [show_record(record) for record in iterate(data)]
        except BrokerError as error:  # the consumer's finding, not the broker's answer
            return [*lines, f"damaged: {error.detail}"]
        return lines or [f"{len(data)} bytes of a message" if len(data) else "nothing"]

    request = simulation.fetch(
        topic,
        from_,
        partition=partition,
        wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        version=version,
        leader_epoch=leader_epoch,
    )
    return Asked(request, show)


def show_record(record: StoredRecord) -> str:
    """One message on one line."""
    time = f" timestamp {record.timestamp_ms}" if record.magic else ""
    key = f" key {_text(record.key)}" if record.key is not None else ""
    codec = f" {record.codec.name.lower()}" if record.codec else ""
    magic = "" if record.magic == 1 else f" magic {record.magic}"
    return f"offset {record.offset}{time}{key} value {_text(record.value)}{codec}{magic}"


@VOCABULARY.command
def offsets(
    world: World, topic: str, *, at: str = "end", partition: int = 0, limit: int = 1, version: int = 1
) -> Asked:
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

    return Asked(Request(ApiKey.LIST_OFFSETS, version, body), show)


@VOCABULARY.command
def epoch(world: World, topic: str, of: int, *, partition: int = 0, leader_epoch: int = -1) -> Asked:
    """Where a leader epoch of a partition ends."""
    part = EpochPartition(partition, leader_epoch, of)
    body = OffsetForLeaderEpochRequest((EpochTopic(topic, (part,)),))

    def show(answer: Any) -> Lines:
        (found,) = answer.topics[0].partitions
        if found.error_code:
            return [ErrorCode.of(found.error_code).name]
        return [f"epoch {found.leader_epoch} ends at {found.end_offset}"]

    return Asked(Request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, body), show)


@VOCABULARY.command
def delete_records(world: World, topic: str, before: int, *, partition: int = 0) -> Asked:
    """Let a partition start at ``before``; -1 is its end."""
    body = DeleteRecordsRequest((DeleteRecordsTopic(topic, (DeleteRecordsPartition(partition, before),)),), 0)

    def show(answer: Any) -> Lines:
        (result,) = answer.topics[0].partitions
        if result.error_code:
            return [ErrorCode.of(result.error_code).name]
        return [f"low watermark {result.low_watermark}"]

    return Asked(Request(ApiKey.DELETE_RECORDS, 1, body), show)


# --- requests in the background, and nonsense ---------------------------------------------------------------


@VOCABULARY.command
def begin(world: World, name: str, command: str, *words: str, **options: str) -> None:
    """Send a request as the client ``name``, and do not wait for its answer."""
    asked = VOCABULARY.call(world, command, words, options)
    if not isinstance(asked, Asked):
        raise ScriptError(f"begin: {command} is no request")
    if name in world.open:
        raise ScriptError(f"begin: {name} has a request open")
    if not asked.request.answered:
        raise ScriptError(f"begin: this {command} has no answer")
    client = world.another_client()
    client.begin(asked.request)
    world.open[name] = client, asked


@VOCABULARY.command
def answer(world: World, name: str) -> Lines:
    """The answer to what was begun, or ``waits``. No time passes."""
    if name not in world.open:
        raise ScriptError(f"answer: {name} has no request open; {', '.join(world.open) or 'nobody'} has")
    client, asked = world.open[name]
    if not client.answered():
        return ["waits"]
    del world.open[name]
    return asked.show(client.finish())


@VOCABULARY.command
def frame(world: World, text: str = "", *, hex_: str = "") -> Lines:
    """Send any bytes as one frame over a connection of its own."""
    connection = world.network.connect(world.host, PORT)
    pending = connection.request([text.encode() + bytes.fromhex(hex_)])
    if not pending.done():
        return ["no answer"]
    try:
        return [f"answer {bytes(pending.result()).hex(' ', 4)}"]
    except NetworkError:
        return ["connection closed"]


# --- ZooKeeper ----------------------------------------------------------------------------------------------


@VOCABULARY.command
def zookeeper(world: World, what: str, machine: int = 0) -> None:
    """``lost`` and ``found``: the broker's connection; ``lost-with-answer``: after its next write, and before
    the answer to it; ``expired``: its session; ``silent`` and ``talks``: it answers all, but its news are
    held back.
    """
    actions: dict[str, Callable[[], None]] = {
        "lost": lambda: world.zookeeper.suspend(world.machine_of(machine).store),
        "lost-with-answer": lambda: world.zookeeper.suspend_at_next_write(world.machine_of(machine).store),
        "found": lambda: world.zookeeper.resume(world.machine_of(machine).store),
        "expired": lambda: world.zookeeper.expire(world.machine_of(machine).store),
        "silent": lambda: setattr(world, "zookeeper_is_silent", True),
        "talks": lambda: setattr(world, "zookeeper_is_silent", False),
    }
    if what not in actions:
        raise ScriptError(f"zookeeper: {what!r} is none of {', '.join(actions)}")
    actions[what]()


@VOCABULARY.command
def znode(world: World, path: str) -> Lines:
    """What a znode holds."""
    observer = world.zookeeper.connect()
    try:
        data, stat = observer.read(path)
        children = observer.children(path)
    except NoNode:
        return ["not there"]
    finally:
        observer.close()
    lines = [_text(data)] * bool(data) + [f"children {', '.join(children)}"] * bool(children)
    return lines + ["ephemeral"] * bool(stat.ephemeral_owner) or ["empty"]


@VOCABULARY.command
def set_znode(world: World, path: str, data: str) -> None:
    """Write a znode, past all brokers."""
    observer = world.zookeeper.connect()
    observer.write(path, data.encode())
    observer.close()


@VOCABULARY.command
def make_znode(world: World, path: str, data: str = "", *, sequential: bool = False) -> None:
    """Make a znode, past all brokers."""
    observer = world.zookeeper.connect()
    observer.create(path, data.encode(), sequential=sequential, make_parents=True)
    observer.close()


@VOCABULARY.command
def remove_znode(world: World, path: str) -> None:
    """Remove a znode and all below it, past all brokers."""
    observer = world.zookeeper.connect()
    observer.delete(path, recursive=True)
    observer.close()


@VOCABULARY.command
def alter(world: World, topic: str, **settings: str) -> None:
    """These are the topic's settings from now on, as Kafka's own tool writes it into ZooKeeper."""
    set_znode(world, f"/config/topics/{topic}", EntityConfig(_settings(settings)).to_json().decode())
    news = json.dumps({"version": 2, "entity_path": f"topics/{topic}"})
    make_znode(world, "/config/changes/config_change_", news, sequential=True)


@VOCABULARY.command
def alter_client(world: World, client: str, **settings: str) -> None:
    """These are the client's quotas from now on, as Kafka's own tool writes it into ZooKeeper."""
    _alter_entity(world, f"clients/{client}", settings)


@VOCABULARY.command
def alter_broker(world: World, machine: int, **settings: str) -> None:
    """These are the settings of that broker from now on, as Kafka's own tool writes it into ZooKeeper."""
    _alter_entity(world, f"brokers/{machine}", settings)


def _alter_entity(world: World, entity: str, settings: dict[str, str]) -> None:
    path = f"/config/{entity}"
    observer = world.zookeeper.connect()
    there = observer.exists(path) is not None
    observer.close()
    write = set_znode if there else make_znode
    write(world, path, EntityConfig(settings).to_json().decode())
    news = json.dumps({"version": 2, "entity_path": entity})
    make_znode(world, "/config/changes/config_change_", news, sequential=True)


# --- the disk -----------------------------------------------------------------------------------------------


def _path(path: str) -> str:
    return f"{DATA_DIR}/{path}".rstrip("/.")


def _shown(path: str) -> str:
    return path.removeprefix(DATA_DIR).lstrip("/") or "." * bool(path)


@VOCABULARY.command
def disk(world: World, what: str, machine: int = 0) -> None:
    """``full``: no file can grow; ``free``: they can again."""
    files = world.machine_of(machine).files
    if what not in {"full", "free"}:
        raise ScriptError(f"disk: {what!r} is neither full nor free")
    files.capacity_bytes = files.used_bytes() if what == "full" else None


@VOCABULARY.command
def fail(
    world: World, operation: str, path: str = "", *, error: str = "EIO", after: int = 0, machine: int = 0
) -> None:
    """The next ``write`` (``after`` bytes of it), ``read``, ``sync``, ``truncate``, ``rename`` or ``open`` of
    a path that holds ``path`` fails.
    """
    files, number = world.machine_of(machine).files, getattr(errno, error, None)
    if number is None:
        raise ScriptError(f"fail: there is no error {error!r}")
    if operation == "write":
        files.fail_next_write(number, after, match=path)
    elif operation in {"read", "sync", "truncate", "rename", "open"}:
        getattr(files, f"fail_next_{operation}")(number, match=path)
    else:
        raise ScriptError(f"fail: {operation!r} is none of write, read, sync, truncate, rename, open")


@VOCABULARY.command
def files(world: World, directory: str = "", *, machine: int = 0) -> Lines:
    """The files below the data directory with their sizes in bytes."""
    disk = world.machine_of(machine).files

    def below(path: str) -> Lines:
        for name in disk.list_dir(path):
            child = f"{path}/{name}"
            if disk.is_dir(child):
                yield from below(child)
            else:
                yield f"{_shown(child)} {disk.open(child, read_only=True).size()}"

    return list(below(_path(directory))) if disk.is_dir(_path(directory)) else ["not there"]


@VOCABULARY.command
def remove(world: World, path: str, *, machine: int = 0) -> None:
    """Somebody removes a file or a directory; ``.`` is the data directory."""
    disk = world.machine_of(machine).files
    (disk.remove_tree if disk.is_dir(_path(path)) else disk.remove)(_path(path))


@VOCABULARY.command
def damage(world: World, path: str, *, at: int, machine: int = 0) -> None:
    """One bit of a file is another from now on."""
    file = world.machine_of(machine).files.open(_path(path))
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
    file.close()


@VOCABULARY.command
def operations(world: World, *, machine: int = 0) -> Lines:
    """What the last command did to files, and when its request was answered."""
    done = world.machine_of(machine).files.operations[world.operations_before.get(machine, 0) :]
    return [f"{one.kind} {_shown(one.path)} {one.length or ''}".strip() for one in done] or ["nothing"]
