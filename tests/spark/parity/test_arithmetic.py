"""Our arithmetic beside the peer's own, which the session's JVM has: random cases, the same results."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.offsets import to_json
from pyspark_minikafka.options.bounds import parse_bound
from pyspark_minikafka.planning.ranges import OffsetRange
from pyspark_minikafka.planning.rate import LONG_MAX, limited
from pyspark_minikafka.planning.splits import split
from pyspark_minikafka.strategy import Assign, strategy
from tests.spark import peer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop

SEED = 20160413
CASES = 150
SIZES = (0, 1, 3, 10, 97, 1_000, 12_345)


class Peer:
    """The peer's classes, and Scala's collections."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        self.classes = self.jvm.org.apache.spark.sql.kafka010
        self._convert = self.jvm.scala.jdk.javaapi.CollectionConverters

    def module(self, name: str) -> Any:
        """A Scala object."""
        return getattr(getattr(self.classes, f"{name}$"), "MODULE$")

    def partition(self, tp: TopicPartition) -> Any:
        return self.jvm.org.apache.kafka.common.TopicPartition(tp.topic, tp.partition)

    def offsets(self, given: dict[TopicPartition, int]) -> Any:
        """A Scala map of longs. Made of JSON, as numbers that go by py4j become ints."""
        return self.module("JsonUtils").partitionOffsets(json.dumps(to_json(given)))

    def back(self, offsets: Any) -> dict[TopicPartition, int]:
        found = self._convert.asJava(offsets)
        return {TopicPartition(tp.topic(), tp.partition()): found.get(tp) for tp in found.keySet()}

    def sequence(self, items: list[Any]) -> Any:
        found = self.jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._convert.asScala(found).toSeq()

    def options(self, **given: object) -> Any:
        found = self.jvm.java.util.HashMap()
        for name, value in given.items():
            found.put(name, str(value))
        return self.jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(found)


@pytest.fixture(scope="module")
def their(spark: SparkSession) -> Peer:
    if why := peer.missing():
        pytest.skip(why)
    return Peer(spark)


@pytest.mark.parametrize("with_maximum", [False, True], ids=["minPartitions", "maxRecordsPerPartition too"])
def test_ranges_are_split_as_the_peer_splits_them(their: Peer, with_maximum: bool) -> None:
    chance = random.Random(SEED + with_maximum)
    none = getattr(their.jvm.scala, "None$").__getattr__("MODULE$")
    for _ in range(CASES):
        ranges = [
            OffsetRange(
                TopicPartition(f"t{n % 2}", n // 2),
                begin,
                begin + chance.choice([0, 1, 3, 10, 97, 1000, 12345]),
            )
            for n in range(chance.randint(1, 6))
            for begin in [chance.randint(0, 1000)]
        ]
        least = chance.choice([None, 1, 2, 3, 5, 6, 7, 10, 24, 100])
        most = chance.choice([None, 1, 2, 7, 100, 1000]) if with_maximum else None
        if most in (1, 2):
            ranges = [task for task in ranges if task.size < 200]
        given = {"minPartitions": least, "maxRecordsPerPartition": most}
        calculator = their.classes.KafkaOffsetRangeCalculator.apply(
            their.options(**{name: value for name, value in given.items() if value is not None})
        )
        asked = [
            their.classes.KafkaOffsetRange(their.partition(task.topic_partition), task.start, task.end, none)
            for task in ranges
        ]
        found = calculator.getRanges(their.sequence(asked), their.sequence([]))
        theirs = [
            (task.topic(), task.partition(), task.fromOffset(), task.untilOffset())
            for task in (found.apply(number) for number in range(found.size()))
        ]
        ours = [
            (*task.topic_partition, task.start, task.end) for task in split(ranges, least, most) if task.size
        ]
        assert ours == theirs, (ranges, least, most)


def test_a_limit_is_shared_out_as_the_peer_shares_it_out(their: Peer) -> None:
    everything = getattr(their.classes, "EarliestOffsetRangeLimit$").__getattr__("MODULE$")
    stream = their.classes.KafkaMicroBatchStream(
        None, their.jvm.java.util.HashMap(), their.options(), "", everything, True
    )
    lang = their.jvm.java.lang
    immutable_map = lang.Class.forName("scala.collection.immutable.Map")
    kinds = their.jvm.java.lang.reflect.Array.newInstance(lang.Class.forName("java.lang.Class"), 3)
    kinds[0], kinds[1], kinds[2] = lang.Long.TYPE, immutable_map, immutable_map
    share_out = stream.getClass().getDeclaredMethod("rateLimit", kinds)
    share_out.setAccessible(True)
    chance = random.Random(SEED)
    for _ in range(CASES):
        partitions = [TopicPartition(f"t{n % 2}", n // 2) for n in range(chance.randint(1, 6))]
        start = {tp: chance.randint(0, 1000) for tp in partitions}
        end = {tp: start[tp] + chance.choice([-5, 0, 1, 2, 11, 101, 99_999, 2**40]) for tp in partitions}
        limit = chance.choice([1, 2, 3, 10, 100, 12_345, LONG_MAX])
        arguments = their.jvm.java.lang.reflect.Array.newInstance(lang.Class.forName("java.lang.Object"), 3)
        arguments[0] = limit
        arguments[1], arguments[2] = their.offsets(start), their.offsets(end)
        assert limited(limit, start, end) == their.back(share_out.invoke(stream, arguments)), (
            limit,
            start,
            end,
        )


def test_offsets_are_written_as_the_peer_writes_them(their: Peer) -> None:
    chance = random.Random(SEED)
    for _ in range(CASES):
        offsets = {
            TopicPartition(chance.choice(["b", "a-b", "a.b", "B"]), chance.randint(0, 12)): chance.randint(
                0, 2**40
            )
            for _ in range(chance.randint(0, 9))
        }
        theirs = their.module("JsonUtils").partitionOffsets(their.offsets(offsets))
        # The peer's topics are in the order of a hash table.
        assert {name: list(parts.items()) for name, parts in to_json(offsets).items()} == {
            name: list(parts.items()) for name, parts in json.loads(theirs).items()
        }


@pytest.mark.parametrize(
    "text",
    [
        '{"t":{"0":23,"1":-2},"a":{"3":-1}}',
        ' {"t" : {"0" : 0}} ',
        '{"t":{"0":9223372036854775807}}',
        '{"t":{}}',
        "{}",
        '{"t":{"0":"1"}}',
        '{"t":{"x":1}}',
        '{"t":1}',
        '{"t":{"0":1}',
        "[]",
    ],
)
def test_offsets_are_read_as_the_peer_reads_them(their: Peer, text: str) -> None:
    try:
        theirs = their.back(their.module("JsonUtils").partitionOffsets(text))
    except Exception:  # noqa: BLE001  # whatever py4j calls it
        theirs = {}
    try:
        ours = dict(parse_bound("startingOffsets", text).offsets or {})
    except ConfigError:
        ours = {}
    # What names nothing is refused by ours; the peer finds at planning that no partition is named.
    assert ours == theirs


@pytest.mark.parametrize(
    "text", ['{"t":[0,1],"u":[5]}', '{"t":[3,1,3]}', '{"t":[]}', "{}", '{"t":["0"]}', '{"t":0}', "{"]
)
def test_partitions_are_read_as_the_peer_reads_them(their: Peer, text: str) -> None:
    try:
        theirs = {(tp.topic(), tp.partition()) for tp in their.module("JsonUtils").partitions(text)}
    except Exception:  # noqa: BLE001  # whatever py4j calls it
        theirs = set()
    try:
        parsed = strategy({"assign": text})
        assert isinstance(parsed, Assign)
        ours = set(parsed.partitions)
    except ConfigError:
        ours = set()
    assert ours == theirs


def test_a_fraction_is_refused_by_ours_and_cut_off_by_the_peer(their: Peer) -> None:
    utils = their.module("JsonUtils")
    assert their.back(utils.partitionOffsets('{"t":{"0":1.5}}')) == {TopicPartition("t", 0): 1}
    with pytest.raises(ConfigError, match=r"1\.5"):
        parse_bound("startingOffsets", '{"t":{"0":1.5}}')
    assert [tp.partition() for tp in utils.partitions('{"t":[1.5]}')] == [1]
    with pytest.raises(ConfigError, match=r"1\.5"):
        strategy({"assign": '{"t":[1.5]}'})
