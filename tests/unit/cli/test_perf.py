"""``perf produce``: where its messages go, and what it prints when it is interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import LATEST, Admin
from minikafka.clients.network.cluster import ClusterClient as Client
from minikafka.embedded.cluster import Cluster
from minikafka.embedded.process import wait_until
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.process

PATIENCE_S = 30
# Also where the tests run as a shell's background job, which passes over Ctrl-C.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from minikafka.cli.main import main
main()
"""


def test_it_prints_the_totals_so_far(minikafka_cluster: Cluster, minikafka_topic: str) -> None:
    address, partition = minikafka_cluster.bootstrap_servers, TopicPartition(minikafka_topic, 0)
    command = [sys.executable, "-c", COMMAND, "perf", "produce", minikafka_topic, "--bootstrap", address]
    options = ["--records", "1000000000", "--format", "json"]
    with (
        Client(address) as client,
        subprocess.Popen(
            [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert wait_until(
                lambda: (Admin(client).offsets({partition: LATEST})[partition] or 0) > 0, PATIENCE_S
            )
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        assert process.returncode == 130, err
        written = Admin(client).offsets({partition: LATEST})[partition] or 0
    assert 0 < json.loads(out)["records"] <= written


def test_few_messages_are_sent_to_all_partitions(
    minikafka_cluster: Cluster, minikafka_topic: str, cli: CommandLine
) -> None:
    address = minikafka_cluster.bootstrap_servers
    with Client(address) as client:
        Admin(client).create_partitions(minikafka_topic, 4)
        partitions = {TopicPartition(minikafka_topic, number): LATEST for number in range(4)}
        command = ["perf", "produce", minikafka_topic, "--records", "1000", "--acks", "all"]
        assert cli.run(*command, "--bootstrap", address) == 0, cli.err
        assert list(Admin(client).offsets(partitions).values()) == [250] * 4
