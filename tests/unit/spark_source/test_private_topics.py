"""Names of the sink's own topics."""

from __future__ import annotations

from minikafka.base.ids import check_topic_name
from pyspark_minikafka.private_topics import is_private, write_began_ms
from pyspark_minikafka.writing import staging_area


def test_all_topics_of_sinks_are_private() -> None:
    for area in (staging_area.of_stream("s"), staging_area.of_write()):
        for name in (area.topic, area.token.topic):
            check_topic_name(name)
            assert is_private(name)
    assert not is_private("orders")


def test_the_topic_of_a_write_says_when_it_began() -> None:
    assert write_began_ms("__minikafka-write-1700000000000-0123abcd") == 1_700_000_000_000
    assert write_began_ms(staging_area.of_write().topic) is not None
    assert write_began_ms(staging_area.of_stream("write-1-a").topic) is None
