"""The loads of a broker that the benchmarks of metrics and of the console share.

5,000 partitions in 50 topics, with 500 groups that committed ten of them each, and a producer at full speed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.group.coordinator_client import CoordinatorClient
from minikafka.clients.group.offsets import STANDALONE_COMMITTER, Committed, checked_offsets, commit
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.cluster import Cluster

TOPICS, PARTITIONS, GROUPS, PARTITIONS_OF_GROUP = 50, 100, 500, 10


def create_many_partitions(client: ClusterClient) -> None:
    """Create the topics, and commit the offsets of the groups."""
    topics = [NewTopic(f"topic-{number}", PARTITIONS) for number in range(TOPICS)]
    Admin(client).create_topics(topics, timeout_ms=300_000)
    for group in range(GROUPS):
        topic = f"topic-{group % TOPICS}"
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS_OF_GROUP)]
        offsets = checked_offsets(dict.fromkeys(partitions, Committed(0)))
        coordinator = CoordinatorClient(client, f"group-{group}")
        commit(coordinator, STANDALONE_COMMITTER, offsets, client.deadline(30_000))


def produced_per_s(cluster: Cluster, messages: int, message_bytes: int) -> float:
    """Return the messages a second that a producer in a process of its own sends to the topic "load"."""
    command = [sys.executable, "-m", "minikafka.cli.main", "perf", "produce", "load", "--format", "json"]
    command += ["--bootstrap", cluster.bootstrap_servers, "--records", str(messages)]
    command += ["--size", str(message_bytes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["records_per_s"])


def read_ms(opener: urllib.request.OpenerDirector, address: str) -> tuple[float, int]:
    """Return the time of a response by HTTP, and its bytes."""
    began = time.perf_counter()
    with opener.open(address) as response:
        size = len(response.read())
    return (time.perf_counter() - began) * 1000, size
