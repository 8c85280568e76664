"""Kafka Connect with its own defaults: standalone, and distributed with topics of its own and REST."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.embedded.process import ChildProcess
from minikafka.net.ports import free_port
from minikafka.wire.apis.describe_configs import ConfigResourceType
from tests.interop.frameworks import brokers, create, of_release, properties, read, started, until, values
from tests.interop.releases import KAFKA_3_9, KAFKA_4, Release

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(420)]

TEXT = "org.apache.kafka.connect.storage.StringConverter"
FILE_STREAM = "org.apache.kafka.connect.file.FileStream"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three brokers, as the topics of distributed workers have three replicas by default."""
    with brokers(tmp_path_factory.mktemp("connect"), 3) as addresses:
        yield addresses


def test_connect_carries_a_file_through_a_topic_exactly(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path
) -> None:
    """Carry a file through a topic by a standalone worker."""
    of_release(request, "Kafka Connect", KAFKA_3_9)
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", "connected"
    create(bootstrap, topic, 1)  # of several, each worker's producer would take one by chance
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": TEXT,
        "value.converter": TEXT,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    reading = {
        "name": "reading",
        "connector.class": f"{FILE_STREAM}SourceConnector",
        "file": source,
        "topic": topic,
    }
    writing = {
        "name": "writing",
        "connector.class": f"{FILE_STREAM}SinkConnector",
        "file": sink,
        "topics": topic,
    }
    files = [
        properties(tmp_path / f"{name}.properties", settings)
        for name, settings in (("worker", worker), ("reading", reading), ("writing", writing))
    ]
    lines = [f"line {number}" for number in range(1_000)]
    for begin in (0, 500):
        # The second worker goes on where the first one stopped.
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[begin : begin + 500])
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        with started(KAFKA_3_9, tmp_path, main, *files, name="connect") as process:
            wanted = begin + 500
            until(process, lambda: written(sink) >= wanted, f"{wanted} lines in {sink}")  # noqa: B023
    assert sorted(sink.read_text().splitlines()) == sorted(lines)
    sent = [(value or b"").decode() for _, value, _ in read(bootstrap, topic)]
    assert sent == lines


def written(path: Path) -> int:
    """Lines in the file, if there is one."""
    return path.read_text().count("\n") if path.exists() else 0


class Worker:
    """A distributed worker, used by its REST interface."""

    def __init__(self, port: int, process: ChildProcess) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self.process = process

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return what it answers, decoded; None while it cannot yet."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=100) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409, 500, 503}:
                raise AssertionError(error.read().decode()) from error
            return None
        except OSError:
            return None

    def do(self, method: str, path: str, body: object = None) -> None:
        """Ask until it is done: a worker refuses while its group rebalances."""
        until(self.process, lambda: self.ask(method, path, body) is not None, f"{method} {path}")

    def places(self, connector: str) -> list[str]:
        """Workers of the connector's tasks that run."""
        told = self.ask("GET", f"/connectors/{connector}/status") or {"tasks": []}
        return sorted(task["worker_id"] for task in told["tasks"] if task["state"] == "RUNNING")

    def state(self, connector: str) -> str:
        """The state of the connector itself."""
        told = self.ask("GET", f"/connectors/{connector}/status")
        return "" if told is None else str(told["connector"]["state"])


@contextlib.contextmanager
def distributed(release: Release, bootstrap: str, directory: Path, name: str) -> Iterator[Worker]:
    """A worker of the release's group, once it answers."""
    port, own = free_port(), release.number
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"connect-{own}",
        "key.converter": TEXT,
        "value.converter": TEXT,
        **{
            f"{kind}.storage.topic": f"connect-{own}-{topic}"
            for kind, topic in (("config", "configs"), ("offset", "offsets"), ("status", "status"))
        },
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{port}",
    }
    file = properties(directory / f"{name}.properties", settings)
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with started(release, directory, main, file, name=name) as process:
        worker = Worker(port, process)
        until(process, lambda: worker.ask("GET", "/connectors") is not None, "answer")
        yield worker


@pytest.mark.parametrize("release", [KAFKA_3_9, KAFKA_4], ids=str)
def test_distributed_workers_share_connectors_and_their_offsets(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path, release: Release
) -> None:
    """Share connectors between distributed workers, and move their offsets by REST."""
    of_release(request, "Kafka Connect", release)
    own = release.number
    reads, writes = f"reading-{own}", f"writing-{own}"
    source, sink, topic = tmp_path / "source.txt", tmp_path / "sink.txt", f"distributed-{own}"
    reading = {
        "connector.class": f"{FILE_STREAM}SourceConnector",
        "file": str(source),
        "topic": topic,
        "topic.creation.default.partitions": "-1",
        "topic.creation.default.replication.factor": "-1",
    }
    writing = {
        "connector.class": f"{FILE_STREAM}SinkConnector",
        "file": str(sink),
        "topics": topic,
        "tasks.max": "2",
    }
    lines = [f"line {number}" for number in range(600)]

    def append(some: list[str]) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in some)

    append(lines[:300])
    with distributed(release, bootstrap, tmp_path, "first") as first:
        first.do("PUT", f"/connectors/{reads}/config", reading)
        until(first.process, lambda: len(read(bootstrap, topic)) == 300, "read the file")
        first.do("PUT", f"/connectors/{writes}/config", writing)
        until(first.process, lambda: written(sink) == 300, "write the file")
        with distributed(release, bootstrap, tmp_path, "second"):
            # Each has one of three tasks at least.
            until(
                first.process,
                lambda: (
                    len(first.places(writes)) == 2 and len({*first.places(writes), *first.places(reads)}) == 2
                ),
                "share the tasks",
            )
            append(lines[300:])
            until(first.process, lambda: written(sink) >= 600, "write the rest")
            assert set(sink.read_text().splitlines()) == set(lines)
            first.do("PUT", f"/connectors/{writes}/stop")
            until(first.process, lambda: first.state(writes) == "STOPPED", "stop a connector")
            told = first.ask("GET", f"/connectors/{writes}/offsets")["offsets"]
            assert sum(row["offset"]["kafka_offset"] for row in told) == 600
            sink.unlink()
            first.do("DELETE", f"/connectors/{writes}/offsets")
            first.do("PUT", f"/connectors/{writes}/resume")
            until(first.process, lambda: written(sink) >= 600, "write all of it again")
            assert sorted(sink.read_text().splitlines()) == sorted(lines)
    assert values(bootstrap, topic) == sorted(lines)
    assert internal_topics(bootstrap, f"connect-{own}-") == {
        f"connect-{own}-configs": (1, 3, "compact"),
        f"connect-{own}-offsets": (25, 3, "compact"),
        f"connect-{own}-status": (5, 3, "compact"),
    }


def internal_topics(bootstrap: str, prefix: str) -> dict[str, tuple[int, int, str | None]]:
    """Partitions, replicas and cleanup policy of each topic of that prefix."""
    found = {}
    with ClusterClient(bootstrap) as client:
        admin = Admin(client)
        names = [name for name in admin.list_topics() if name.startswith(prefix)]
        for name, topic in admin.describe_topics(names).items():
            assert not isinstance(topic, Exception)
            settings = admin.describe_configs(ConfigResourceType.TOPIC, name)
            policy = next(config.value for config in settings if config.name == "cleanup.policy")
            found[name] = len(topic.partitions), len(topic.partitions[0].replicas), policy
    return found
