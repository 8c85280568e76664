"""Kafka's own Java consumers and group tools, of 0.10.1.1 and 3.9.1, as groups of our broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.embedded.cluster import Cluster
from tests.interop.releases import KAFKA_0_10, KAFKA_3_9, Release
from tests.interop.test_python_groups import EVERYTHING, PARTITIONS, PER_PARTITION, fill

CONSUMERS = {
    KAFKA_0_10: "kafka.tools.ConsoleConsumer",
    KAFKA_3_9: "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
TOOLS = {
    KAFKA_0_10: "kafka.admin.ConsumerGroupCommand",
    KAFKA_3_9: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
ONLY_0_10 = {KAFKA_0_10: ["--new-consumer"], KAFKA_3_9: []}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker with a full topic ``t``."""
    with Cluster(data_dir=tmp_path / "cluster") as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        fill(cluster.bootstrap_servers, "t")
        yield cluster.bootstrap_servers


def consume(release: Release, servers: str, group: str, count: int, settings: Path) -> list[int]:
    """The numbers that a console consumer of ``group`` reads."""
    settings.write_text(f"group.id={group}\nenable.auto.commit=true\n")
    printed = release.run(
        CONSUMERS[release],
        *("--bootstrap-server", servers, "--topic", "t", "--from-beginning", "--max-messages", str(count)),
        *("--consumer.config", str(settings), *ONLY_0_10[release]),
    )
    return sorted(int(line) for line in printed.out.split() if line.isdigit())


def tool(release: Release, servers: str, *arguments: str) -> str:
    """Run the group tool and return its output."""
    return release.run(TOOLS[release], "--bootstrap-server", servers, *arguments, *ONLY_0_10[release]).out


def offsets(described: str) -> dict[int, int]:
    """Partition -> committed offset, as the tool shows them."""
    rows = re.findall(r"^\S+ +t +(\d+) +(\d+) ", described, re.MULTILINE)
    return {int(partition): int(offset) for partition, offset in rows}


@pytest.mark.parametrize("release", CONSUMERS, ids=str)
def test_a_java_consumer_goes_on_where_its_group_has_committed(
    servers: str, tmp_path: Path, release: Release
) -> None:
    group, settings = f"java-{release}", tmp_path / "settings"
    assert consume(release, servers, group, len(EVERYTHING), settings) == list(range(len(EVERYTHING)))
    fill(servers, "t", rounds=1)
    assert consume(release, servers, group, PARTITIONS, settings) == list(range(PARTITIONS))
    assert group in tool(release, servers, "--list").split()


def test_the_group_tool_describes_resets_and_deletes(servers: str, tmp_path: Path) -> None:
    group = "administered"
    consume(KAFKA_3_9, servers, group, len(EVERYTHING), tmp_path / "settings")

    def shown() -> dict[int, int]:
        return offsets(tool(KAFKA_3_9, servers, "--describe", "--group", group) + " ")

    assert shown() == dict.fromkeys(range(PARTITIONS), PER_PARTITION)
    state = tool(KAFKA_3_9, servers, "--describe", "--group", group, "--state")
    assert re.search(rf"^{group} .* Empty +0", state, re.MULTILINE)
    reset = ("--reset-offsets", "--group", group, "--execute", "--topic")
    tool(KAFKA_3_9, servers, *reset, "t", "--to-earliest")
    tool(KAFKA_3_9, servers, *reset, "t:1", "--shift-by", "7")
    assert shown() == {**dict.fromkeys(range(PARTITIONS), 0), 1: 7}
    assert "successful" in tool(KAFKA_3_9, servers, "--delete", "--group", group)
    assert group not in tool(KAFKA_3_9, servers, "--list").split()


def test_the_tool_lists_by_state_and_deletes_offsets(servers: str, tmp_path: Path) -> None:
    group = "selected"
    consume(KAFKA_3_9, servers, group, len(EVERYTHING), tmp_path / "settings")
    assert group in tool(KAFKA_3_9, servers, "--list", "--state", "empty")
    assert group not in tool(KAFKA_3_9, servers, "--list", "--state", "stable")
    deletion = tool(KAFKA_3_9, servers, "--delete-offsets", "--group", group, "--topic", "t:0")
    assert re.search(r" t +0 +Successful", deletion)
    left = offsets(tool(KAFKA_3_9, servers, "--describe", "--group", group) + " ")
    assert left == dict.fromkeys(range(1, PARTITIONS), PER_PARTITION)


def test_the_release_reads_what_we_have_written_of_a_group(servers: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    consume(KAFKA_0_10, servers, "written", len(EVERYTHING), settings)
    # Whoever reads this topic must not commit: it would never come to an end.
    settings.write_text("exclude.internal.topics=false\nenable.auto.commit=false\n")
    printed = [
        KAFKA_0_10.run(
            CONSUMERS[KAFKA_0_10],
            *("--bootstrap-server", servers, "--topic", "__consumer_offsets", "--from-beginning"),
            *("--formatter", f"kafka.coordinator.GroupMetadataManager${formatter}", "--new-consumer"),
            *("--timeout-ms", "4000", "--consumer.config", str(settings)),
        ).out
        for formatter in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
    ]
    committed = re.findall(r"\[written,t,(\d)\]::\[OffsetMetadata\[50,NO_METADATA\],CommitTime ", printed[0])
    assert {int(partition) for partition in committed} == set(range(PARTITIONS))
    assert "written::[written,Some(consumer),Stable,Map(consumer-1-" in printed[1]
    assert "written::[written,None,Empty,Map()]" in printed[1]
