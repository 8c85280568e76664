"""The commands of ``minikafka`` on real Kafka: 0.10.1.1, 3.9.1 and 4."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.records.format.message_set import Codec
from tests.interop.releases import KAFKA_0_10, KAFKA_4, RELEASES
from tests.support.kafka_broker import KafkaBroker, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

Rows = list[dict[str, Any]]
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=[*RELEASES, KAFKA_4], ids=str)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running(request.param, tmp_path_factory.mktemp("real-kafka")) as broker:
        yield broker


@pytest.fixture
def command(kafka: KafkaBroker) -> Callable[..., Rows]:
    """Runs a command, which must succeed; what it printed."""

    def run(*arguments: str, given: str = "") -> Rows:
        done = subprocess.run(
            [sys.executable, "-c", "from minikafka.cli.main import main; main()", *arguments],
            env=os.environ | {"MINIKAFKA_BOOTSTRAP": kafka.bootstrap},
            input=given,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()] if "json" in arguments else []

    return run


@pytest.fixture
def topic(command: Callable[..., Rows]) -> str:
    name = f"commands-{next(_NUMBERS)}"
    command("topic", "create", name, "--partitions", "2", "--config", "retention.ms=-1")
    return name


JSON = ("--format", "json")


def needs_2_0(kafka: KafkaBroker, what: str) -> None:
    if kafka.release is KAFKA_0_10:
        pytest.skip(f"0.10.1 has no request {what}")


def test_what_produce_sends_in_each_codec_consume_prints(
    kafka: KafkaBroker, command: Callable[..., Rows], topic: str
) -> None:
    codecs = [codec for codec in Codec if codec is not Codec.ZSTD or 2 in kafka.release.magics]
    for codec in codecs:
        lines = "".join(f"{codec.name}-{number}:v\n" for number in range(20))
        command("produce", topic, "--key-separator", ":", "--codec", codec.name.lower(), given=lines)
    found = command("consume", topic, "--max", str(20 * len(codecs)), *JSON)
    assert sorted(row["key"] for row in found) == sorted(
        f"{codec.name}-{number}" for codec in codecs for number in range(20)
    )


def test_a_topic_goes_there_and_back_by_offsets_and_is_trimmed(
    kafka: KafkaBroker, command: Callable[..., Rows], topic: str
) -> None:
    has_headers = 2 in kafka.release.magics
    headers = ("-H", "trace=1") if has_headers else ()
    command("produce", topic, "-p", "1", "-k", "k", *headers, given="a\nb\nc\n")
    found = command("consume", topic, "-o", "1:end", *JSON)
    assert [(row["partition"], row["key"], row["value"]) for row in found] == [(1, "k", "b"), (1, "k", "c")]
    assert [row.get("headers") for row in found] == [
        [{"key": "trace", "value": "1"}] if has_headers else None
    ] * 2
    copied = "".join(json.dumps(row) + "\n" for row in found)
    command("produce", topic, "--input", "json", given=copied)
    again = command("consume", topic, "-o", "-2", "-e", *JSON)
    assert [row | {"offset": 0} for row in again] == [row | {"offset": 0} for row in found]
    command("consume", topic, "-g", f"{topic}-g", "-e")
    command("group", "seek", f"{topic}-g", "--to", "start", *JSON)
    (summary,) = command("group", "describe", f"{topic}-g", "--summary", *JSON)
    assert (summary["state"], summary["total_lag"]) == ("Empty", 5)
    (described,) = command("cluster", "metadata", topic, *JSON)
    assert [row["partition"] for row in described["topics"][0]["partitions"]] == [0, 1]
    if kafka.release is KAFKA_0_10:
        return  # it has no request to delete records
    trimmed = command("topic", "trim", topic, "-o", "-1", "-p", "1", "--execute", *JSON)
    assert [(row["partition"], row["new_start_offset"]) for row in trimmed] == [(1, 4)]
    assert len(command("consume", topic, "-e", *JSON)) == 1


def test_a_group_reads_on_and_is_listed_described_reset_and_deleted(
    kafka: KafkaBroker, command: Callable[..., Rows], topic: str
) -> None:
    needs_2_0(kafka, "to delete a group")
    command("produce", topic, given="".join(f"{number}\n" for number in range(30)))
    group = f"readers-of-{topic}"
    first = command("consume", topic, "--group", group, "--max", "10", *JSON)
    rest = command("consume", topic, "--group", group, "--max", "20", *JSON)
    assert sorted(int(row["value"]) for row in first + rest) == list(range(30))

    assert group in [row["group"] for row in command("group", "list", *JSON)]
    assert sum(row["lag"] for row in command("group", "describe", group, *JSON)) == 0
    command("group", "reset", group, "--to-earliest", "--execute")
    assert sum(row["lag"] for row in command("group", "describe", group, *JSON)) == 30
    command("group", "delete", group)
    assert group not in [row["group"] for row in command("group", "list", *JSON)]


def test_a_topic_is_listed_described_altered_and_deleted(
    kafka: KafkaBroker, command: Callable[..., Rows], topic: str
) -> None:
    assert topic in [row["topic"] for row in command("topic", "list", *JSON)]
    assert [row["leader"] for row in command("topic", "describe", topic, *JSON)] == [0, 0]
    if kafka.release is not KAFKA_0_10:
        command("topic", "alter", topic, "--partitions", "3")
        assert len(command("topic", "describe", topic, *JSON)) == 3
    command("topic", "delete", topic)
    assert topic not in [row["topic"] for row in command("topic", "list", *JSON)]


def test_topic_without_numbers_has_those_of_the_broker(
    kafka: KafkaBroker, command: Callable[..., Rows]
) -> None:
    (made,) = command("topic", "create", f"commands-{next(_NUMBERS)}", *JSON)
    assert (made["partitions"], made["replicas"]) == (1, 1)
    assert (made["topic_id"] is None) is (kafka.release is KAFKA_0_10)


def test_settings_are_set_and_told(kafka: KafkaBroker, command: Callable[..., Rows], topic: str) -> None:
    needs_2_0(kafka, "about settings")
    command("config", "set", "topic", topic, "retention.ms=120000", "cleanup.policy=compact")
    rows = {row["setting"]: row["value"] for row in command("config", "get", "topic", topic, *JSON)}
    assert (rows["retention.ms"], rows["cleanup.policy"]) == ("120000", "compact")


def test_the_cluster_is_described(kafka: KafkaBroker, command: Callable[..., Rows]) -> None:
    (described,) = command("cluster", "describe", *JSON)
    (broker,) = described["brokers"]
    assert (broker["broker"], broker["port"], broker["controller"]) == (0, kafka.port, True)


def test_speed_is_measured(command: Callable[..., Rows], topic: str) -> None:
    assert command("perf", "produce", topic, "--records", "20000", *JSON)[-1]["records"] == 20000
    assert command("perf", "consume", topic, "--records", "20000", *JSON)[-1]["records"] == 20000
    assert command("perf", "latency", topic, "--records", "50", *JSON)[-1]["records"] == 50
