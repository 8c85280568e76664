"""``consume`` in groups of both kinds, on a broker and its ZooKeeper."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minikafka.embedded.cluster import Cluster
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = {"offsets.topic.num.partitions": "1"}
    with Cluster(1, tmp_path_factory.mktemp("groups") / "d", config) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A group, or a topic."""
    return re.sub(r"\W", "-", request.node.name)


@pytest.fixture
def command(cluster: Cluster, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rows]:
    """Runs a command, which must succeed; what it printed."""
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", cluster.bootstrap_servers)

    def run_it(*arguments: str, given: bytes = b"") -> Rows:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert cli.run(*arguments, "--format", "json") == 0, cli.err
        return cli.rows

    return run_it


def test_topics_that_a_pattern_chooses_are_read(
    cluster: Cluster, command: Callable[..., Rows], name: str, cli: CommandLine
) -> None:
    for number in range(2):
        command("topic", "create", f"{name}-{number}")
        command("produce", f"{name}-{number}", given=b"a\nb\n")
    at = ("--zookeeper", cluster.zookeeper_connect)
    reading = ("consume", "--whitelist", f"{name}-0,{name}-[1-9]", "--group", name)
    for place in ((), at):
        got = [*command(*reading, "--max", "3", *place), *command(*reading, "--max", "1", *place)]
        assert sorted((row["topic"], row["offset"]) for row in got) == [
            (f"{name}-{number}", offset) for number in range(2) for offset in range(2)
        ]
    found = command("group", "describe", name, *at)
    assert {(row["offset_zookeeper"], row["offset_kafka"], row["lag"]) for row in found} == {(2, 2, 0)}
    assert cli.run("consume", "no-such", "--group", name, *at) == 1
    assert "there is no topic 'no-such'" in cli.err


def test_a_groups_offsets_move_to_the_brokers_and_back(
    cluster: Cluster, command: Callable[..., Rows], name: str
) -> None:
    command("topic", "create", name)
    command("produce", name, given=b"".join(b"%d\n" % number for number in range(10)))
    at = ("--zookeeper", cluster.zookeeper_connect)

    def reads_two(storage: str, *, dual: bool) -> tuple[int | None, int | None]:
        """By one consumer with these settings; then the offsets in ZooKeeper and at the brokers."""
        given = [f"offsets.storage={storage}", f"dual.commit.enabled={str(dual).lower()}"]
        properties = [word for setting in given for word in ("--property", setting)]
        seen.extend(command("consume", name, "--group", name, "--max", "2", *properties, *at))
        (row,) = command("group", "describe", name, *at)
        return row["offset_zookeeper"], row["offset_kafka"]

    seen: Rows = []
    assert reads_two("zookeeper", dual=False) == (2, None)
    assert reads_two("kafka", dual=True) == (4, 4)
    assert reads_two("kafka", dual=False) == (4, 6)
    assert reads_two("zookeeper", dual=True) == (8, 8)
    assert reads_two("zookeeper", dual=False) == (10, 8)
    assert [row["offset"] for row in seen] == list(range(10))
