from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError
from minikafka.clients.admin.zookeeper import topics
from minikafka.registry import paths
from tests.support.zookeeper_with_topics import cluster


def test_a_topic_is_marked_once_where_the_controller_looks() -> None:
    store = cluster({"t": {0: (0,)}})
    assert topics.mark_for_deletion(store, "t")
    assert not topics.mark_for_deletion(store, "t")
    assert store.children(paths.DELETE_TOPICS) == ["t"]


def test_nothing_is_marked_that_is_not_there() -> None:
    store = cluster({"topic": {0: (0,)}})
    with pytest.raises(BrokerError, match="there is no topic 'topik'; there is 'topic'"):
        topics.mark_for_deletion(store, "topik")
    assert store.children(paths.DELETE_TOPICS) == []
