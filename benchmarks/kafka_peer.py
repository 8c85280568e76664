"""Apache Kafka as the other side of a benchmark."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from minikafka.base.errors import MinikafkaError
from minikafka.clients.admin.admin import Admin
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.java import find_java
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import free_port


@contextlib.contextmanager
def apache_kafka(
    jars: str, directory: Path, settings: Mapping[str, str] | None = None, listener: str = ""
) -> Iterator[str]:
    """An Apache Kafka broker on a ZooKeeper of its own; its address.

    listener: a second one, after a comma.
    """
    zookeeper = EmbeddedZooKeeper(str(directory / "peer"))
    connect = zookeeper.start()
    port = free_port()
    properties = directory / "server.properties"
    properties.write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}{listener}\nlog.dirs={directory / 'kafka'}\n"
        f"zookeeper.connect={connect}\noffsets.topic.replication.factor=1\n"
        + "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
    )
    output = (directory / "kafka.txt").open("w")
    command = [find_java().path, "-Xmx1g", "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
    process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with Client(f"127.0.0.1:{port}", request_timeout_ms=1_000) as client:
                    Admin(client).list_topics()
                break
            except MinikafkaError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit((directory / "kafka.txt").read_text()[-2_000:]) from None
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        zookeeper.stop()
        output.close()
