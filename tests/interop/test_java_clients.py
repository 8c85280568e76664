"""Kafka's own Java clients and tools, of 0.10.1.1 and 3.9.1, against our broker and our files."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path

import pytest

from minikafka.clients.cluster import Cluster as Client
from minikafka.clients.producer import Producer
from minikafka.embedded.cluster import Cluster
from tests.interop.conftest import Pair
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, Release

JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
HERE = Path(__file__).parent


def run_java(libs: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*JAVA, "-cp", f"{libs}/*", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def encoded(value: bytes | None) -> str:
    return "-" if value is None else base64.b64encode(value).decode("ascii")


CODECS = ["none", "gzip", "snappy", "lz4"]
EVERYTHING: dict[str, str] = {}
NOT_IDEMPOTENT = {"enable.idempotence": "false"}
COMMITTED = {"isolation.level": "read_committed"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("release", "codec", "settings"),
    [
        *((KAFKA_0_10, codec, EVERYTHING) for codec in CODECS),
        *((KAFKA_3_9, codec, EVERYTHING) for codec in [*CODECS, "zstd"]),
        (KAFKA_3_9, "none", COMMITTED),
        (KAFKA_3_9, "lz4", NOT_IDEMPOTENT),
    ],
)
def test_the_java_clients_get_back_what_they_sent(
    apache_cluster: Cluster,
    tmp_path: Path,
    pairs: list[Pair],
    release: Release,
    codec: str,
    settings: dict[str, str],
) -> None:
    kafka_libs = release.libs()
    topic = f"java-{release}-{codec}-{'-'.join(settings.values())}"
    apache_cluster.create_topic(topic)
    lines = [f"{1000 + i} {encoded(key)} {encoded(value)}" for i, (key, value) in enumerate(pairs)]
    sent = tmp_path / "records"
    sent.write_text("".join(f"{line}\n" for line in lines))
    printed = run_java(
        kafka_libs,
        str(HERE / "java" / "Roundtrip.java"),
        apache_cluster.bootstrap_servers,
        topic,
        codec,
        str(sent),
        *(f"{name}={value}" for name, value in settings.items()),
    )
    received = [line for line in printed.splitlines() if re.match(r"\d+ \d+ ", line)]
    assert received == [f"{number} {line}" for number, line in enumerate(lines)]


@pytest.mark.timeout(180)
def test_the_release_dumps_a_segment_and_an_index_that_we_wrote(
    apache_cluster: Cluster, kafka_libs: Path, pairs: list[Pair]
) -> None:
    apache_cluster.create_topic("dumped", config={"message.format.version": "0.10.1"})
    with Client(apache_cluster.bootstrap_servers) as client, Producer(client) as producer:
        for key, value in pairs:
            producer.send("dumped", value, key=key, timestamp_ms=1000)
    segment = apache_cluster.data_dir / "broker-0" / "dumped-0" / f"{0:020d}.log"
    dumped = run_java(
        kafka_libs,
        "kafka.tools.DumpLogSegments",
        "--files",
        str(segment),
        "--deep-iteration",
        "--print-data-log",
    )
    rows = re.findall(r"^offset: (\d+) .*isvalid: (\w+) ", dumped, flags=re.MULTILINE)
    assert rows == [(str(number), "true") for number in range(len(pairs))]
