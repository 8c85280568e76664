"""Requests that are large, or cheap to send, to a broker of a cluster with 20,000 partitions: see
``attack``, whose bounds hold here too.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from minikafka.wire.api import ApiKey
from minikafka.wire.apis.create_topics import CreatableTopic
from minikafka.wire.apis.metadata import metadata_request
from tests.faults.attack import (
    HOST,
    PATIENCE_S,
    AttackedBroker,
    Others,
    frame_of,
    read_exactly,
    reads_proc,
    wait_until,
)
from tests.support import requests
from tests.support.requests import Request

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300), reads_proc]

TOPICS = tuple(f"big-{number}" for number in range(4))
PARTITIONS = 5_000
"""The partitions of each topic."""


@pytest.fixture(scope="module")
def large_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedBroker]:
    directory = tmp_path_factory.mktemp("large") / "data"
    with AttackedBroker(directory, *(f"{name}={PARTITIONS}" for name in TOPICS)) as broker:
        broker.create_topic("steady", 1, retention_ms="-1")
        yield broker


def ask(broker: AttackedBroker, connections: int, requests: Sequence[Request]) -> list[int]:
    """Send ``requests`` one after the other on each of so many connections; the sizes of the answers."""
    frames = [frame_of(request) for request in requests]

    def run(_: int) -> list[int]:
        sizes = []
        with contextlib.closing(socket.create_connection((HOST, broker.port))) as sock:
            sock.settimeout(2 * PATIENCE_S)
            for frame in frames:
                sock.sendall(frame)
                (size,) = struct.unpack(">i", read_exactly(sock, 4))
                read_exactly(sock, size)
                sizes.append(size)
        return sizes

    with ThreadPoolExecutor(connections) as threads:
        return [size for sizes in threads.map(run, range(connections)) for size in sizes]


def test_clients_that_ask_for_all_topics_again_and_again_stop_nobody(large_cluster: AttackedBroker) -> None:
    request = Request(ApiKey.METADATA, 1, metadata_request(None, False))
    with Others(large_cluster):
        sizes = ask(large_cluster, 20, [request] * 5)
    assert min(sizes) > len(TOPICS) * PARTITIONS * 20


@pytest.mark.parametrize("partitions", [1, 60_000])
def test_requests_for_very_many_new_partitions_stop_nobody(
    large_cluster: AttackedBroker, partitions: int
) -> None:
    count = 20_000 if partitions == 1 else 300
    topics = tuple(CreatableTopic(f"new-{number}", partitions, 1) for number in range(count))
    request = requests.create_topics(*topics, timeout_ms=1_000, validate_only=True)
    with Others(large_cluster):
        ask(large_cluster, 3, [request])


def find_group(broker: AttackedBroker) -> None:
    wait_until(lambda: broker.call(requests.find_coordinator()).error_code == 0)


def test_commits_of_very_many_partitions_stop_nobody(large_cluster: AttackedBroker) -> None:
    find_group(large_cluster)
    request = requests.commit_offsets(*TOPICS * 5, offsets=dict.fromkeys(range(PARTITIONS), 5))
    with Others(large_cluster):
        ask(large_cluster, 3, [request])


def test_questions_for_all_offsets_of_a_large_group_stop_nobody(large_cluster: AttackedBroker) -> None:
    find_group(large_cluster)
    for name in TOPICS:
        commit = requests.commit_offsets(name, offsets=dict.fromkeys(range(PARTITIONS), 5))
        answer = large_cluster.call(commit)
        assert {part.error_code for part in answer.topics[0].partitions} == {0}
    with Others(large_cluster):
        sizes = ask(large_cluster, 10, [requests.fetch_offsets()] * 3)
    assert min(sizes) > len(TOPICS) * PARTITIONS * 16


def test_members_that_bring_much_and_go_leave_little(large_cluster: AttackedBroker) -> None:
    find_group(large_cluster)
    protocols = {"p": bytes(900_000)}
    groups = [f"made-up-{number}" for number in range(500)]
    frames = [
        frame_of(requests.join_group(name, protocols, session_ms=300_000, rebalance_ms=300_000))
        for name in groups
    ]
    with Others(large_cluster):
        for frame in frames:
            with socket.create_connection((HOST, large_cluster.port)) as sock:
                sock.sendall(frame)


def test_answers_that_nobody_takes_leave_the_others_their_room(large_cluster: AttackedBroker) -> None:
    # Each in a version of its own: what is the same for all is sent from the same memory.
    frames = [
        frame_of(Request(ApiKey.METADATA, version, metadata_request(None, True))) for version in range(8)
    ]
    names = (f"{'no' * 100}-{number}" for number in range(50_000))
    frames.append(frame_of(requests.describe_configs(*names, include_synonyms=True)))
    with Others(large_cluster), contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection((HOST, large_cluster.port))) for _ in range(100)
        ]
        for number, sock in enumerate(socks):
            sock.settimeout(PATIENCE_S)
            with contextlib.suppress(OSError):  # it is cut off while it sends
                sock.sendall(frames[number % len(frames)])
