from __future__ import annotations

import subprocess
import sys

import pytest

from minikafka.base.ids import check_topic_name
from minikafka.embedded.pytest_plugin import unique_topic_name

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("test_name", ["test_a", "test_a[x/y z]", "", "ž", "x" * 300])
def test_a_topic_name_is_legal_and_never_the_same_again(test_name: str) -> None:
    one, other = unique_topic_name(test_name), unique_topic_name(test_name)
    check_topic_name(one)
    assert one != other


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import minikafka.embedded.pytest_plugin; "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('minikafka')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout in {"[]\n", "['uuid']\n"}


def test_the_fixtures_give_a_cluster_and_a_topic_of_ones_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from minikafka import ClusterClient

        seen = []

        def partitions(cluster, topic):
            with ClusterClient(cluster.bootstrap_servers) as client:
                return len(client.metadata(None).topics[topic].partitions)

        def test_first(minikafka_cluster, minikafka_topic):
            assert partitions(minikafka_cluster, minikafka_topic) == 1
            seen.append((minikafka_cluster.bootstrap_servers, minikafka_topic))

        def test_second(minikafka_cluster, minikafka_topic):
            seen.append((minikafka_cluster.bootstrap_servers, minikafka_topic))
            (one, topic), (other, other_topic) = seen
            assert one == other
            assert topic != other_topic
            with ClusterClient(one) as client:
                assert topic not in client.metadata(None).topics
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
