"""Replays of recorded exchanges with Apache Kafka 0.10.1.1 (``tests/data/wire``) against our broker.

A recording is named FILE#NUMBER. Its request is sent unchanged, except for member ids, which the broker
assigns: ours, of the same length, replace the recorded ones. The responses are compared decoded, in all
fields except ``LEFT_OUT``. Arrays that Kafka returns in the order of a hash map are compared in any order.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from minikafka.base.errors import NetworkError
from minikafka.net.interfaces import PendingResponse
from minikafka.records.format.message_set import Record, build_message_set
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS, is_refusal
from minikafka.wire.apis.heartbeat import HeartbeatRequest
from minikafka.wire.frame_parts import buffer_of
from minikafka.wire.framing import RequestHeader, split_response
from tests.support import requests
from tests.support.simulation import PORT, Simulation

WIRE = Path(__file__).parents[1] / "data" / "wire"

LEFT_OUT = {
    "brokers": "addresses; the recording had two brokers, we have one",
    "host": "an address",
    "port": "an address",
    "client_host": "an address",
    "cluster_id": "a random id",
    "api_keys": "the table of versions: ours has newer ones",
}
"""Fields that may differ -> the reason."""

IN_ANY_ORDER = {"topics", "partitions", "groups", "members"}
"""Arrays that come from a hash map in Kafka."""

OLD_AND_NEW = {"AwaitingSync": "CompletingRebalance"}
"""The states with other names in 0.10.1 -> their names in 2.1."""

LOGS = {"wire-0": "01-Fetch-v3#2", "wire-1": "01-Fetch-v3#1", "twice-1": "01-Fetch-v3#3"}
"""Partition -> the recording that has its whole log."""


class Recorded(NamedTuple):
    """A recorded exchange; frames without their lengths. ``response`` is None if there was none."""

    header: RequestHeader
    request: bytes
    response: bytes | None


def recorded(name: str) -> Recorded:
    """Return the exchange of this name."""
    file, _, number = name.partition("#")
    example = json.loads((WIRE / f"{file}.json").read_text("utf-8"))["examples"][int(number)]
    request = bytes.fromhex(example["request"])[4:]
    response = example["response"]
    header, _ = RequestHeader.decode(request)
    return Recorded(header, request, None if response is None else bytes.fromhex(response)[4:])


def names_of(broker: str) -> Iterator[str]:
    """Yield the names of all recordings with that release."""
    for path in sorted(WIRE.glob("*.json")):
        content = json.loads(path.read_text("utf-8"))
        if content["broker"] == broker:
            yield from (f"{path.stem}#{number}" for number in range(len(content["examples"])))


def decoded(header: RequestHeader, frame: bytes) -> Any:
    """Decode the response to a request with that header."""
    api, version = APIS[ApiKey(header.api_key)], header.api_version
    correlation_id, body = split_response(frame, api.has_tagged_response_header(version))
    assert correlation_id == header.correlation_id
    refused = api is API_VERSIONS and is_refusal(body)
    return api.decode_response(0 if refused else version, body)


def entries(log: str) -> Iterator[tuple[int, bytes]]:
    """Yield the last offset and the bytes of each message or wrapper of a partition's log."""
    exchange = recorded(LOGS[log])
    assert exchange.response is not None
    topic, _, number = log.rpartition("-")
    (records,) = (
        bytes(buffer_of(part.records))
        for found in decoded(exchange.header, exchange.response).topics
        for part in found.partitions
        if (found.name, part.index) == (topic, int(number)) and part.records
    )
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        yield int.from_bytes(records[:8], "big"), records[:size]
        records = records[size:]


def heartbeat_request(heartbeat: Recorded) -> HeartbeatRequest:
    """Decode a heartbeat: its group, generation and member."""
    _, body = RequestHeader.decode(heartbeat.request)
    request = APIS[ApiKey.HEARTBEAT].decode_request(heartbeat.header.api_version, body)
    assert isinstance(request, HeartbeatRequest)
    return request


def plain(value: Any, name: str = "") -> Any:
    """Return a decoded response as dicts, lists and bytes, without the fields that may differ."""
    if name in LEFT_OUT:
        return None
    if name == "records":
        return bytes(buffer_of(value))
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), field.name) for field in fields(value)}
    if isinstance(value, tuple | list):
        found = [plain(item) for item in value]
        return sorted(found, key=repr) if name in IN_ANY_ORDER else found
    return OLD_AND_NEW.get(value, value) if isinstance(value, str) else value


def make_offsets_topic(simulation: Simulation) -> None:
    """Create the offsets topic, as the first client that looks up a coordinator does."""
    simulation.call(requests.find_coordinator())
    simulation.settle()


class Replay:
    """Sends recorded frames to a broker with the topics of the recording, and compares the responses."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.simulation.machine.start(
            {
                "group.initial.rebalance.delay.ms": "0",
                "offsets.topic.num.partitions": "2",
                "auto.create.topics.enable": "false",
                "log.roll.ms": "9000000000000000",
            }
        )
        for topic in ("orders", "payments", "wire", "twice"):
            assert self.simulation.create_topic(topic, partitions=2) == 0
        self._connections: dict[str, Any] = {}
        self._sent: list[tuple[str, Recorded, PendingResponse]] = []
        self._ids: dict[bytes, bytes] = {}

    def run(self, steps: str) -> None:
        """Run steps, each of which sends a recording or prepares the state that it met.

        TOPIC-PARTITION:OFFSET fills that log up to the offset. later:MS lets time pass. For requests that
        were not recorded of the member of the heartbeat NAME: join:NAME joins, commit:NAME commits offset 0.
        """
        for step in steps.split():
            what, _, value = step.rpartition(":")
            if not what:
                self._send(step)
            elif what == "later":
                self.simulation.network.wait(lambda: False, self.simulation.clock.monotonic_ms() + int(value))
            elif what == "join":
                self._join(recorded(value))
            elif what == "commit":
                self._commit(recorded(value))
            else:
                self._fill(what, int(value))

    def check(self, comparable: Callable[[str, Any], Any] = lambda _, answer: answer) -> None:
        """Compare all responses with Kafka's, after ``comparable`` has removed differences from both."""
        self._learn_ids()
        for name, exchange, pending in self._sent:
            if exchange.response is None:
                continue
            answer = bytes(pending.result())
            for theirs, ours in self._ids.items():
                answer = answer.replace(ours, theirs)
            shown = [
                comparable(name, plain(decoded(exchange.header, frame)))
                for frame in (answer, exchange.response)
            ]
            assert shown[0] == shown[1], name

    def closed(self) -> bool:
        """Return True if the broker closed the connection on the last request."""
        _, _, pending = self._sent[-1]
        assert pending.done()
        try:
            pending.result()
        except NetworkError:
            return True
        return False

    def _send(self, name: str) -> None:
        self._learn_ids()
        exchange = recorded(name)
        request = exchange.request
        for theirs, ours in self._ids.items():
            request = request.replace(theirs, ours)
        client = exchange.header.client_id or ""
        if client not in self._connections:
            self._connections[client] = self.simulation.network.connect(self.simulation.host, PORT)
        pending = self._connections[client].request([request])
        self._sent.append((name, exchange, pending))
        self.simulation.network.run()
        self.simulation.settle()
        if exchange.response is None:
            # A client without a response had left, or was disconnected.
            del self._connections[client]
        elif exchange.header.api_key == ApiKey.FETCH:
            pending.result()

    def _fill(self, log: str, end: int) -> None:
        """Fill a log with the messages of Kafka's log, and after them with any."""
        topic, _, number = log.rpartition("-")
        partition = int(number)
        at = self.simulation.fetch(topic, partition=partition).high_watermark
        behind = itertools.repeat((-1, build_message_set([Record(None, b"", 0)])))
        for last, data in itertools.chain(entries(log), behind):
            if at == end:
                return
            if last >= at or last < 0:
                answer = self.simulation.call(requests.produce(topic, data, partitions=(partition,)))
                assert answer.topics[0].partitions[0].base_offset == at
                at = max(at, last) + 1

    def _join(self, heartbeat: Recorded) -> None:
        request = heartbeat_request(heartbeat)
        client = self.simulation.another_client()
        client.client_id = heartbeat.header.client_id or ""
        member = client.call(requests.join_group(request.group_id, {"roundrobin": b""})).member_id
        sync = requests.sync_group(request.group_id, request.generation_id, member)
        assert client.call(sync).error_code == 0
        self._ids[request.member_id.encode()] = member.encode()

    def _commit(self, heartbeat: Recorded) -> None:
        self._learn_ids()
        request = heartbeat_request(heartbeat)
        member = self._ids[request.member_id.encode()].decode()
        commit = requests.commit_offsets(
            *("orders", "payments"),
            group=request.group_id,
            offsets={0: 0, 1: 0},
            generation=request.generation_id,
            member_id=member,
        )
        answer = self.simulation.call(commit)
        assert {part.error_code for topic in answer.topics for part in topic.partitions} == {0}

    def _learn_ids(self) -> None:
        for _, exchange, pending in self._sent:
            if (
                exchange.header.api_key == ApiKey.JOIN_GROUP
                and exchange.response is not None
                and pending.done()
            ):
                theirs, ours = (
                    decoded(exchange.header, frame).member_id.encode()
                    for frame in (exchange.response, bytes(pending.result()))
                )
                assert len(theirs) == len(ours)
                if theirs:
                    self._ids[theirs] = ours
