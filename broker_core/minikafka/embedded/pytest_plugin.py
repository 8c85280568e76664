"""The pytest plugin: ``minikafka_cluster`` and ``minikafka_topic``.

Every pytest run of every user loads this module, so it imports only pytest. The cluster's modules are
imported when a test uses one of the fixtures.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from minikafka.embedded.cluster import Cluster

_NAME_MAX_LENGTH = 60
"""The longest part of a topic name that comes from the test's name: topic names become directory names."""


@pytest.fixture(scope="session")
def minikafka_cluster() -> Iterator[Cluster]:
    """A cluster of one broker for the whole session, in a temporary directory that is removed at the end."""
    from minikafka.embedded.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def minikafka_topic(minikafka_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, created for this test and deleted after it."""
    name = unique_topic_name(request.node.name)
    minikafka_cluster.create_topic(name)
    yield name
    minikafka_cluster.delete_topic(name)


def unique_topic_name(test_name: str) -> str:
    """Return a legal topic name that starts with the test's name and that no other call returns."""
    readable = re.sub(r"[^a-zA-Z0-9-]+", "-", test_name).strip("-")[:_NAME_MAX_LENGTH]
    return f"{readable or 'topic'}-{uuid.uuid4().hex[:12]}"
