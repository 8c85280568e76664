"""The pytest plugin: ``minikafka_cluster`` and ``minikafka_topic``.

Every pytest run of whoever installs the project loads this module, so it imports nothing but pytest; the
cluster's modules are imported when a test asks for one of the fixtures.
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
"""Of the part that comes from the test's name: topic names end up in directory names."""


@pytest.fixture(scope="session")
def minikafka_cluster() -> Iterator[Cluster]:
    """A cluster of one broker for the whole session, in a temporary directory that goes with it."""
    from minikafka.embedded.cluster import Cluster

    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def minikafka_topic(minikafka_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, made for this test and deleted after it."""
    name = unique_topic_name(request.node.name)
    minikafka_cluster.create_topic(name)
    yield name
    minikafka_cluster.delete_topic(name)


def unique_topic_name(test_name: str) -> str:
    """A legal topic name that starts like the test's and that no other call returns."""
    readable = re.sub(r"[^a-zA-Z0-9-]+", "-", test_name).strip("-")[:_NAME_MAX_LENGTH]
    return f"{readable or 'topic'}-{uuid.uuid4().hex[:12]}"
