"""The Spark source on the secured listeners of Apache Kafka 3.9.1 and 4.3.1: each mechanism, each mistake."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.interop.compatibility import SPARK_SOURCE, record_ours
from tests.interop.releases import KAFKA_3_9, KAFKA_4
from tests.support.secured_kafka import (
    ACCESSES,
    LIMIT_S,
    MISTAKES,
    PASSWORD,
    SecuredKafka,
    as_options,
    client_of,
    connect_by,
    create_topic,
    secured_kafka,
    wrong_ones,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.interop]


@pytest.fixture(scope="module", params=[KAFKA_3_9, KAFKA_4], ids=str)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(request.param, tmp_path_factory.mktemp("secured") / "kafka") as broker:
        yield broker


@pytest.mark.parametrize(("listener", "mechanism"), ACCESSES)
def test_rows_are_written_and_read_on_each_listener(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    kafka: SecuredKafka,
    listener: str,
    mechanism: str | None,
) -> None:
    record_ours(request, SPARK_SOURCE, kafka.release, connect_by(listener, mechanism))
    properties = kafka.client(listener, mechanism)
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
    options = as_options(properties)
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    rows.write.format("minikafka").mode("append").options(**options).option("topic", topic).save()
    found = spark.read.format("minikafka").options(**options).option("subscribe", topic).load()
    assert sorted(int(row[0]) for row in found.selectExpr("cast(value as string)").collect()) == [*range(100)]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_load_names_each_mistake(
    request: pytest.FixtureRequest, spark: SparkSession, kafka: SecuredKafka, mistake: str
) -> None:
    from pyspark.errors import AnalysisException

    record_ours(request, SPARK_SOURCE, kafka.release, f"name the mistake: {mistake}")
    properties, words = wrong_ones(kafka)[mistake]
    read = spark.read.format("minikafka").options(**as_options(properties)).option("subscribe", "t")
    began = time.monotonic()
    with pytest.raises(AnalysisException) as refused:
        read.load()
    assert time.monotonic() - began < LIMIT_S
    said = str(refused.value)
    assert re.sub(r"\bkafka\.(?=s(ecurity|asl|sl)\.)", "", said).count(words) == 1
    assert PASSWORD not in said
