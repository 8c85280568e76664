"""Wrong requests, by chance: recorded ones of real clients, and classic ones, damaged in the ways that break
parsers. The same seed and number give the same bytes.
"""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from minikafka.base.errors import RemoteWireError
from minikafka.base.ids import ProducerIdAndEpoch
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire import classic
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.create_partitions import CreatePartitionsRequest
from minikafka.wire.apis.create_topics import CreateTopicsRequest
from minikafka.wire.apis.produce import ProducePartition, ProduceRequest, ProduceTopic
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader, encode_frame
from minikafka.wire.schema import Struct
from tests.support import transaction_requests as transactions
from tests.support.requests import Request
from tests.support.wire_values import filled

DATA = Path(__file__).resolve().parents[1] / "data" / "wire"
MANY = 200
KEYS = max(ApiKey) + 2
VERSIONS = 19
STEADY, TRANSACTED = "steady", "transacted"
"""The topics of the well-behaved client and of transactions."""

_OF_CONTROLLERS = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}

_EXTREMES = {
    1: [0, 1, 0x7F, -1, -128],
    2: [0, 1, -1, -2, 0x7FFF, -0x8000],
    4: [0, 1, -1, -2, 0xFFFF, 1 << 20, (1 << 20) + 1, 0x7FFFFFFF, -0x80000000],
    8: [0, -1, -2, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000],
}
_FORMS = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}


@dataclass(frozen=True, slots=True)
class Input:
    """The bytes for one connection: to the classic listener, or to the other one."""

    data: bytes
    to_classic: bool


def _recorded() -> list[bytes]:
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("*.json"))]
    return [bytes.fromhex(example["request"])[4:] for content in files for example in content["examples"]]


def _flexible() -> list[bytes]:
    """The newest version of each API that has compact lengths and tagged fields."""
    return [
        join(
            [
                RequestHeader(int(api.key), version, 1, "flexible").encode(),
                *api.encode_request(version, filled(Struct(api.request), version, count(1), nulls=False)),
            ]
        )
        for api in APIS.values()
        for version in [api.max_version]
        if api.is_flexible[version]
    ]


def _transactional() -> list[bytes]:
    """The requests of a producer's transaction, in the oldest and newest versions of producers."""
    name, first = "txn", ProducerIdAndEpoch(0, 0)
    partitions = {TRANSACTED: (0, 1)}
    batch = build_batch(
        [Record(None, b"v", 1)], producer_id=0, producer_epoch=0, base_sequence=0, transactional=True
    )
    written = ProduceRequest(name, -1, 5000, (ProduceTopic(TRANSACTED, (ProducePartition(0, batch),)),))
    requests = [
        transactions.find(name),
        transactions.init(name, version=0),
        transactions.init(name, producer=first),
        transactions.verify([name, "other"], first, partitions),
        transactions.describe(name, "other"),
        transactions.list_all("Ongoing", "Empty"),
        *(Request(ApiKey.PRODUCE, version, written) for version in (3, 7)),
        *(transactions.add(name, first, partitions, version) for version in (0, 3)),
        *(transactions.add_offsets(name, first, "g", version) for version in (0, 3)),
        *(transactions.commit_offsets(name, first, "g", partitions, version) for version in (0, 3)),
        *(transactions.end(name, first, commit=commit, version=3 * commit) for commit in (False, True)),
        *(transactions.write_markers([first], partitions, version=version) for version in (0, 1)),
    ]
    return [
        join(
            [
                RequestHeader(int(request.key), request.version, 1, "transactional").encode(),
                *APIS[request.key].encode_request(request.version, request.body),
            ]
        )
        for request in requests
    ]


def _classic() -> list[bytes]:
    fetch = classic.Fetch(STEADY, 0, 0, 1 << 20)
    requests: list[classic.Request] = [
        fetch,
        classic.MultiFetch((fetch,) * 3),
        classic.Offsets(STEADY, 0, -1, 10),
        classic.Produce("classic", 0, b"\0" * 40),
        classic.MultiProduce((classic.Produce("classic", 0, b""), classic.Produce("other", -1, b"x" * 30))),
    ]
    return [join(classic.encode_request(request)) for request in requests]


TRANSACTIONAL = _transactional()
KAFKAS = _recorded() + _flexible() + TRANSACTIONAL
CLASSIC = _classic()


def made(seed: int, number: int, *, transactional: bool = False) -> Input:
    """Return input ``number`` of a seed; with ``transactional`` made of requests of transactions alone."""
    chance = random.Random(f"{seed}:{number}")
    damaged = _damaged_transactional if transactional else _damaged
    while _is_too_effective((found := damaged(chance)).data):
        pass
    return found


def _is_too_effective(data: bytes) -> bool:
    """Return True for a valid request that creates too many partitions for the test's time, that writes
    markers between the messages of the well-behaved client, or that comes from a controller: the broker would
    execute its orders, such as to lead no partition.
    """
    try:
        header, body = RequestHeader.decode(data[4:])
        request = APIS[ApiKey(header.api_key)].decode_request(header.api_version, body)
    except (RemoteWireError, ValueError, KeyError):
        return False
    if ApiKey(header.api_key) in _OF_CONTROLLERS:
        return True
    if isinstance(request, CreateTopicsRequest):
        return any(topic.num_partitions > MANY or len(topic.assignments) > MANY for topic in request.topics)
    if isinstance(request, CreatePartitionsRequest):
        return any(topic.count > MANY for topic in request.topics)
    if ApiKey(header.api_key) in {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS}:
        return STEADY in repr(request)
    return False


def _damaged(chance: random.Random) -> Input:
    to_classic = chance.random() < 0.25
    # Sometimes a request for the other listener.
    seeds = CLASSIC if to_classic != (chance.random() < 0.05) else KAFKAS
    return Input(_framed(_damaged_body(chance, seeds), chance), to_classic)


def _damaged_transactional(chance: random.Random) -> Input:
    """Some are random bytes behind a valid header."""
    body = _damaged_body(chance, TRANSACTIONAL)
    if chance.random() < 0.1:
        body = chance.choice(TRANSACTIONAL)[:24] + chance.randbytes(chance.randint(0, 200))
    return Input(_framed(body, chance), to_classic=False)


def _damaged_body(chance: random.Random, seeds: list[bytes]) -> bytes:
    body = bytearray(chance.choice(seeds))
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3, 8])):
        chance.choice(_DAMAGES)(body, chance, seeds)
    return bytes(body)


def _framed(body: bytes, chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.85:
        return join(encode_frame([body]))
    if kind < 0.9:
        # Announces more than comes, or less: then the rest begins the next frame.
        return struct.pack(">i", max(0, len(body) + chance.choice([-9, -1, 1, 1000, 100_000]))) + body
    if kind < 0.95:
        return struct.pack(">i", chance.choice(_EXTREMES[4])) + body
    return body  # no length at all


def _flip(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    if body:
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)


def _extreme(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    size = chance.choice(list(_FORMS))
    if len(body) > size:
        struct.pack_into(
            _FORMS[size], body, chance.randrange(len(body) - size), chance.choice(_EXTREMES[size])
        )


def _cut(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    del body[chance.randint(0, len(body)) :]


def _remove(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    start = chance.randint(0, len(body))
    del body[start : start + chance.randint(1, 8)]


def _insert(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    at = chance.randint(0, len(body))
    body[at:at] = chance.randbytes(chance.randint(1, 16))


def _repeat(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    start = chance.randint(0, len(body))
    piece = body[start : start + chance.randint(1, 64)]
    body[start:start] = piece * chance.choice([1, 2, 100])


def _splice(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    other = chance.choice(seeds)
    body[chance.randint(0, len(body)) :] = other[chance.randint(0, len(other)) :]


def _other_version(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    if len(body) >= 4:
        body[2:4] = struct.pack(">h", chance.randrange(-1, VERSIONS))


def _other_api(body: bytearray, chance: random.Random, seeds: list[bytes]) -> None:
    if len(body) >= 2:
        body[:2] = struct.pack(">h", chance.randrange(-1, KEYS))


_DAMAGES = [
    _flip,
    _extreme,
    _extreme,
    _extreme,
    _cut,
    _remove,
    _insert,
    _repeat,
    _splice,
    _other_version,
    _other_api,
]
