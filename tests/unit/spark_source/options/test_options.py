"""Options of source and sink: what is taken, what is refused, and how it is said."""

from __future__ import annotations

import os

import pytest

from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.base.ids import TopicPartition
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.records.format.compression import Codec
from pyspark_minikafka.options.bounds import ALL_EARLIEST, ALL_LATEST, OffsetBound
from pyspark_minikafka.options.group_options import GroupOptions, Storage
from pyspark_minikafka.options.options import Mode, SinkOptions, SourceOptions, sink_options, source_options
from pyspark_minikafka.strategy import Assign, Subscribe, SubscribePattern


def source(mode: Mode = Mode.BATCH, /, **given: str) -> SourceOptions:
    options = {name.replace("__", "."): value for name, value in given.items()}
    return source_options({"subscribe": "t", **options}, mode, working_directory=os.sep + "here")


def refusal_of(given: dict[str, str], mode: Mode = Mode.BATCH) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        source_options(given, mode)
    return refusal.value


def sink(**given: str) -> SinkOptions:
    return sink_options({name.replace("__", "."): value for name, value in given.items()})


def test_topics_are_split_trimmed_and_named_once() -> None:
    assert source(subscribe=" b, a ,,b").strategy == Subscribe(("a", "b"))


def test_assigned_partitions_are_read_from_json() -> None:
    options = source_options({"assign": '{"t":[1,0,1]}'}, Mode.BATCH)
    assert options.strategy == Assign((TopicPartition("t", 0), TopicPartition("t", 1)))


def test_a_pattern_matches_whole_topic_names() -> None:
    strategy = source_options({"subscribePattern": "a.*|b"}, Mode.BATCH).strategy
    assert isinstance(strategy, SubscribePattern)
    assert strategy.among(["a", "ax", "b", "bx", "xa"]) == ["a", "ax", "b"]


def test_keys_are_taken_in_any_case() -> None:
    given = {
        "SUBSCRIBE": "t",
        "StartingOffsets": "earliest",
        "FAILONDATALOSS": "FALSE",
        "Kafka.Client.Id": "x",
    }
    options = source_options(given, Mode.STREAM)
    assert options.starting == ALL_EARLIEST
    assert options.fail_on_data_loss is False
    assert options.connection.client_id == "x"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "subscribe"),
        ({"subscribe": " , "}, "subscribe"),
        ({"subscribe": "a/b"}, "subscribe"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "subscribe"),
        ({"subscribe": "t", "subscribePattern": "t"}, "subscribePattern"),
        ({"subscribePattern": " "}, "subscribePattern"),
        ({"subscribePattern": "("}, "subscribePattern"),
        ({"assign": "t"}, "assign"),
        ({"assign": "{}"}, "assign"),
        ({"assign": '{"t":[]}'}, "assign"),
        ({"assign": '{"t":[-1]}'}, "assign"),
        ({"assign": '{"t":0}'}, "assign"),
        ({"assign": '{"t":["0"]}'}, "assign"),
        ({"assign": '{"t":[0],"t":[1]}'}, "assign"),
    ],
)
def test_exactly_one_sensible_choice_of_what_to_read_is_needed(given: dict[str, str], name: str) -> None:
    assert refusal_of(given).name == name


def test_a_batch_reads_all_that_is_there_and_a_stream_what_comes() -> None:
    batch, stream = source(Mode.BATCH), source(Mode.STREAM)
    assert (batch.starting, batch.ending) == (ALL_EARLIEST, ALL_LATEST)
    assert stream.starting == ALL_LATEST


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":-1}}'},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"t":{"0":-2}}'},
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
        {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":9,"1":9}}'},
        {"startingOffsets": '{"t":"latest"}'},
        {"endingOffsets": '{"t":"earliest"}'},
        {"startingTimestamp": "5", "endingTimestamp": "4"},
        {"startingTimestamp": "5", "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
        {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
        {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"1":9}}'},
    ],
)
def test_a_batch_query_must_go_forward(given: dict[str, str]) -> None:
    wrong = ("startingOffsets", "endingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    assert refusal_of({"subscribe": "t", **given}).name in wrong


def test_a_time_wins_over_offsets_that_a_batch_could_not_have() -> None:
    assert not isinstance(source(startingOffsets="latest", startingTimestamp="1").starting, OffsetBound)


def test_a_smallest_batch_is_not_larger_than_the_largest() -> None:
    trigger = source(Mode.STREAM, minOffsetsPerTrigger="3", maxOffsetsPerTrigger="3", maxTriggerDelay="90s")
    assert (trigger.trigger.min_offsets, trigger.trigger.max_delay_ms) == (3, 90_000)
    given = {"subscribe": "t", "minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "3"}
    for mode in Mode:
        assert refusal_of(given, mode).name == "minOffsetsPerTrigger"


def test_a_stream_may_start_at_latest() -> None:
    assert source(Mode.STREAM, startingOffsets='{"t":{"0":-1}}').starting.moves


def test_load_refuses_only_options_invalid_for_every_query() -> None:
    assert source(Mode.LOAD, startingOffsets="latest").starting == ALL_LATEST
    assert refusal_of({"subscribe": "t", "startingOffsets": "now"}, Mode.LOAD).name == "startingOffsets"


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    refusal = refusal_of({"subscribe": "t", name: "latest"}, Mode.STREAM)
    assert refusal.name == name
    assert "a stream has no end" in refusal.allowed


def test_what_comes_later_is_refused_and_not_ignored() -> None:
    refusal = refusal_of({"subscribe": "t", "kafka.partitioner.class": "x"})
    assert refusal.name == "kafka.partitioner.class"
    assert "not supported yet" in refusal.allowed


def test_transactional_id_is_refused_with_the_options_of_delivery() -> None:
    refusal = refusal_of({"subscribe": "t", "kafka.transactional.id": "x"})
    assert refusal.name == "kafka.transactional.id"
    assert "to write in transactions set minikafka.delivery=exactly-once" in refusal.allowed
    assert "minikafka.sink.id=NAME" in refusal.allowed


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.password",
        "kafka.ssl.truststore.password",
        "minikafka.password",
        "minikafka.sasl.pasword",
    ],
)
def test_a_refusal_never_has_a_secret_in_it(name: str, read: bool) -> None:
    stores = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.truststore.type": "PEM"}  # they have no password
    given = {"kafka.security.protocol": "SASL_SSL", "kafka.bootstrap.servers": "h:1", **stores, name: "tiger"}
    with pytest.raises(ConfigError) as refused:
        source_options({"subscribe": "t", **given}, Mode.BATCH) if read else sink_options(given)
    error = refused.value
    assert f"{name}='***'" in str(error)
    assert "tiger" not in f"{error} {error!r} {vars(error)}"


def test_the_defaults_of_later_features_may_be_written_out() -> None:
    options = source(
        includeHeaders="false",
        kafka__security__protocol="PLAINTEXT",
        kafka__isolation__level="read_uncommitted",
    )
    assert options.warnings == ()


@pytest.mark.parametrize(
    "key",
    [
        "auto.offset.reset",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
    ],
)
def test_client_properties_that_the_source_needs_itself_are_rejected(key: str) -> None:
    assert refusal_of({"subscribe": "t", f"kafka.{key}": "x"}).name == f"kafka.{key}"
    with pytest.raises(ConfigError):
        sink_options({f"kafka.{key}": "x"})


def test_client_properties_without_effect_are_named_in_one_warning() -> None:
    options = source(kafka__max__poll__records="5", kafka__acks="1")
    assert options.warnings == ("these options have no effect: kafka.acks, kafka.max.poll.records",)


def test_a_group_id_is_taken_with_the_warning_that_nothing_joins_it() -> None:
    (warning,) = source(kafka__group__id="g", groupIdPrefix="p").warnings
    assert warning.startswith("kafka.group.id has no effect")
    assert "groupIdPrefix is ignored" in warning
    (warning,) = source(groupIdPrefix="p").warnings
    assert warning.startswith("groupIdPrefix has no effect")


def test_what_is_read_of_transactions_can_be_chosen() -> None:
    assert source().fetch.isolation is IsolationLevel.READ_UNCOMMITTED
    given = source(kafka__isolation__level=" READ_COMMITTED")
    assert given.fetch.isolation is IsolationLevel.READ_COMMITTED
    refused = {"subscribe": "t", "kafka.isolation.level": "serializable"}
    assert refusal_of(refused).name == "kafka.isolation.level"


def test_a_slip_in_an_options_name_is_mentioned() -> None:
    (warning,) = source(failOnDataLos="false").warnings
    assert warning == "these options have no effect: failondatalos (did you mean failOnDataLoss?)"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOfsets", "startingOffsets"),
        ("startingOffset", "startingOffsets"),
        ("starting.offsets", "startingOffsets"),
        ("kafka.startingOffsets", "startingOffsets"),
        ("auto.offset.reset", "startingOffsets"),
        ("endingOffset", "endingOffsets"),
        ("startingTimestap", "startingTimestamp"),
        ("startingOffsetByTimestamp", "startingOffsetsByTimestamp"),
        ("subscribePatern", "subscribePattern"),
    ],
)
def test_a_slip_that_would_read_from_another_place_is_refused(name: str, meant: str) -> None:
    refusal = refusal_of({"subscribe": "t", name: "earliest"})
    assert str(refusal) == f"{name.lower()}='earliest': unknown option; did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("kafka.compresion.type", "kafka.compression.type"),
        ("kafka.linger.msec", "kafka.linger.ms"),
        ("compression.type", "kafka.compression.type"),
        ("kafka.max.request.sise", "kafka.max.request.size"),
    ],
)
def test_a_slip_in_a_client_property_is_mentioned(name: str, meant: str) -> None:
    (warning,) = sink(**{name: "1"}).warnings
    assert name in warning
    assert f"did you mean {meant}?" in warning


@pytest.mark.parametrize("given", [{"topicc": "t"}, {"topics": "t"}, {"topicc": "t", "topic": "u"}])
def test_a_slip_that_would_write_to_another_place_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"topic[cs]='t': unknown option; did you mean topic\?"):
        sink_options(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"subscrib": "t"},
            (
                "subscribe: exactly one of the options assign, subscribe and subscribePattern is required; "
                "subscrib='t': unknown option; did you mean subscribe?"
            ),
        ),
        (
            {"topic": "t"},
            (
                "subscribe: exactly one of the options assign, subscribe and subscribePattern is required "
                "(topic is for writes)"
            ),
        ),
    ],
)
def test_a_read_that_names_no_topic_says_what_it_takes(given: dict[str, str], said: str) -> None:
    assert str(refusal_of(given)) == said


def test_rack_of_the_executors_is_taken_as_it_is() -> None:
    assert source().fetch.rack == ""
    given = source(kafka__client__rack="zone b")
    assert (given.fetch.rack, given.warnings) == ("zone b", ())


def test_rack_of_a_write_has_no_effect() -> None:
    assert sink(kafka__client__rack="b").warnings == ("these options have no effect: kafka.client.rack",)


def test_a_slip_in_how_brokers_are_reached_is_mentioned() -> None:
    (warning,) = source(kafka__securty__protocol="SASL_SSL").warnings
    assert warning == (
        "these options have no effect: kafka.securty.protocol (did you mean kafka.security.protocol?)"
    )


@pytest.mark.parametrize("name", ["bootstrap.servers", "kafka.bootstrap.server"])
def test_a_slip_in_the_servers_is_refused(name: str) -> None:
    refusal = refusal_of({"subscribe": "t", name: "h:1"})
    assert str(refusal).startswith(f"{name}='h:1': unknown option; did you mean kafka.bootstrap.servers?")


@pytest.mark.parametrize("name", ["value.format", "columns", "bad.values", "schema.registry.url"])
def test_an_option_of_ours_without_its_prefix_is_mentioned(name: str) -> None:
    (warning,) = source(**{name.replace(".", "__"): "value"}).warnings
    assert warning == f"these options have no effect: {name} (did you mean minikafka.{name}?)"


@pytest.mark.parametrize("name", ["kafka.fetch.max.bytes", "kafka.max.poll.records"])
def test_a_property_of_kafkas_own_is_no_slip(name: str) -> None:
    assert source(**{name: "1"}).warnings == (f"these options have no effect: {name}",)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("kafka.fetch.max.bytes", "abc", "must be a whole number from 0 to 2147483647"),
        ("kafka.max.poll.records", "0", "must be a whole number from 1 to 2147483647"),
        ("kafka.session.timeout.ms", "10s", "must be a whole number from 0 to 2147483647"),
        ("kafka.batch.size", "1_000", "must be a whole number from 0 to 2147483647"),
    ],
)
def test_invalid_value_of_an_unused_property_is_refused(name: str, value: str, allowed: str) -> None:
    assert str(refusal_of({"subscribe": "t", name: value})) == f"{name}={value!r}: {allowed}"
    with pytest.raises(ConfigError) as refused:
        sink_options({"topic": "t", name: value})
    assert refused.value.name == name


def test_a_consumers_property_on_a_write_is_checked_like_on_a_read() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.isolation\.level='serializable'"):
        sink_options({"topic": "t", "kafka.isolation.level": "serializable"})


def test_a_write_without_acknowledgements_is_warned_of() -> None:
    (warning,) = sink(kafka__acks="0").warnings
    assert warning.startswith("kafka.acks=0: ")
    assert "may lose some or all rows" in warning
    assert sink(kafka__acks="1").warnings == ()


@pytest.mark.parametrize("name", ["owner", "provider", "path", "option.serialization", "checkpointlocation"])
def test_what_spark_adds_itself_is_not_mentioned(name: str) -> None:
    assert source_options({"subscribe": "t", name: "x"}, Mode.STREAM).warnings == ()


def test_an_unknown_option_of_ours_is_refused() -> None:
    assert refusal_of({"subscribe": "t", "minikafka.dir": "x"}).name == "minikafka.dir"


def test_a_limit_per_trigger_is_for_streams_and_a_batch_warns() -> None:
    assert source(Mode.STREAM, maxOffsetsPerTrigger="10").trigger.max_offsets == 10
    batch = source(Mode.BATCH, maxOffsetsPerTrigger="10")
    assert batch.trigger.max_offsets is None
    assert batch.warnings == ("maxOffsetsPerTrigger has no effect on a batch query",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "1e3"),
        ("minOffsetsPerTrigger", "0"),
        ("maxRecordsPerPartition", "-1"),
        ("maxTriggerDelay", "soon"),
        ("maxTriggerDelay", "-1s"),
        ("maxTriggerDelay", "9" * 5_000),
        ("maxOffsetsPerTrigger", "9223372036854775808"),
        ("kafkaConsumer.pollTimeoutMs", "-1"),
        ("fetchOffset.numRetries", "x"),
        ("fetchOffset.retryIntervalMs", "-1"),
        ("kafka.request.timeout.ms", "0"),
        ("kafka.fetch.max.wait.ms", "soon"),
    ],
)
def test_numbers_out_of_their_range_are_refused(name: str, value: str) -> None:
    refusal = refusal_of({"subscribe": "t", name: value}, Mode.STREAM)
    assert (refusal.name.lower(), refusal.value) == (name.lower(), value)


def test_what_is_a_long_in_kafka_may_be_one() -> None:
    longest = str(2**63 - 1)
    sink = sink_options(
        {"kafka.max.block.ms": longest, "kafka.linger.ms": longest, "kafka.buffer.memory": longest}
    )
    assert sink.producer.max_block_ms >= 24 * 86_400_000
    given = {"subscribe": "t", "kafkaConsumer.pollTimeoutMs": longest, "fetchOffset.retryIntervalMs": longest}
    assert source_options(given, Mode.BATCH).poll_timeout_ms >= 24 * 86_400_000


def test_a_pause_of_the_producers_has_no_effect_on_a_read() -> None:
    options = source_options({"subscribe": "t", "kafka.retry.backoff.ms": "5"}, Mode.BATCH)
    assert options.warnings == ("these options have no effect: kafka.retry.backoff.ms",)
    assert sink_options({"kafka.retry.backoff.ms": "5"}).producer.retry_backoff_ms == 5


def test_a_largest_long_is_a_limit_like_any_other() -> None:
    assert source(Mode.STREAM, maxOffsetsPerTrigger=str(2**63 - 1)).trigger.max_offsets == 2**63 - 1


def test_without_servers_embedded_broker_has_absolute_directory() -> None:
    root = os.sep + "here"
    assert source().location.data_dir == os.path.join(root, "minikafka-data")
    assert source(minikafka__data__dir="a/../b").location.data_dir == os.path.join(root, "b")
    assert source().location.bootstrap_servers is None


@pytest.mark.parametrize(
    "name", ["bootstrap.servers", "kafka.bootstrap.server", "bootstrapServers", "kafka.bootsrap.servers"]
)
def test_servers_under_a_wrong_name_never_turn_into_a_local_cluster(name: str) -> None:
    for given in ({}, {"minikafka.data.dir": "d"}):
        refusal = refusal_of({"subscribe": "t", name: "a:1", **given})
        assert (refusal.name, refusal.value) == (name.lower(), "a:1")
        assert "kafka.bootstrap.servers" in str(refusal)
    with pytest.raises(ConfigError):
        sink_options({"topic": "t", name: "a:1"})


def test_with_servers_there_is_no_directory() -> None:
    location = source(kafka__bootstrap__servers=" a:1 , b:2,").location
    assert (location.bootstrap_servers, location.data_dir) == ("a:1,b:2", None)
    given = {"subscribe": "t", "kafka.bootstrap.servers": "a:1", "minikafka.data.dir": "d"}
    assert refusal_of(given).name == "minikafka.data.dir"


@pytest.mark.parametrize("servers", ["", " , ", "a", "a:", ":9092", "a:0", "a:65536", "a:b", "a:1,b"])
def test_servers_that_cannot_be_addresses_are_refused(servers: str) -> None:
    assert refusal_of({"subscribe": "t", "kafka.bootstrap.servers": servers}).value == servers


def test_a_sink_waits_for_all_replicas_unless_told_otherwise() -> None:
    assert sink().producer.acks == -1
    assert sink(kafka__acks="all").producer.acks == -1
    assert sink(kafka__acks="1").producer.acks == 1


def test_a_sinks_topic_is_trimmed_and_checked() -> None:
    assert sink(topic=" t ").topic == "t"
    assert sink().topic is None
    for topic in ("", "a b", "a:b"):
        with pytest.raises(ConfigError):
            sink(topic=topic)


def test_producer_properties_are_mapped() -> None:
    producer = sink(
        kafka__compression__type="LZ4",
        kafka__linger__ms="5",
        kafka__batch__size="1000",
        kafka__max__request__size="2000",
        kafka__retries="3",
        kafka__max__block__ms="7",
    ).producer
    assert (producer.compression, producer.linger_ms, producer.batch_bytes) == (Codec.LZ4, 5, 1000)
    assert (producer.max_request_bytes, producer.retries, producer.max_block_ms) == (2000, 3, 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [("kafka.acks", "2"), ("kafka.compression.type", "zip"), ("kafka.compression.type", "4")],
)
def test_producer_properties_out_of_range_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        sink_options({name: value})
    assert refusal.value.name == name


STORAGE_KEYS = ("offsets.storage", "kafka.offsets.storage", "minikafka.offsets.storage")
CONNECT_KEYS = ("zookeeper.connect", "kafka.zookeeper.connect", "minikafka.zookeeper.connect")


@pytest.mark.parametrize(("storage", "connect"), list(zip(STORAGE_KEYS, CONNECT_KEYS, strict=True)))
def test_a_groups_storage_is_taken_under_kafkas_name_and_with_prefixes(storage: str, connect: str) -> None:
    given = {storage: "ZooKeeper", connect: "zk1:2181,zk2/kafka", "startingOffsets": "group:g"}
    options = source(Mode.STREAM, minikafka__commit__group=" g ", **given)
    assert options.groups == GroupOptions("g", Storage.ZOOKEEPER, "zk1:2181,zk2/kafka")
    assert options.location.zookeeper_connect == "zk1:2181,zk2/kafka"
    assert options.warnings == ()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"minikafka.commit.group": " "}, "minikafka.commit.group"),
        ({"minikafka.commit.group": "a\tb"}, "minikafka.commit.group"),
        ({"offsets.storage": "redis"}, "offsets.storage"),
        ({"kafka.offsets.storage": "kafka", "offsets.storage": "zookeeper"}, "kafka.offsets.storage"),
        ({"zookeeper.connect": ""}, "zookeeper.connect"),
        ({"kafka.zookeeper.connect": "h:99999"}, "kafka.zookeeper.connect"),
        ({"offsets.storage": "zookeeper", "minikafka.commit.group": "a/b"}, "minikafka.commit.group"),
        ({"offsets.storage": "zookeeper", "startingOffsets": "group:a/b"}, "startingOffsets"),
    ],
)
def test_wrong_options_about_groups_are_refused_by_name(given: dict[str, str], name: str) -> None:
    assert refusal_of({"subscribe": "t", **given}, Mode.STREAM).name == name


def test_zookeeper_offsets_need_an_address_unless_embedded() -> None:
    given = {"subscribe": "t", "offsets.storage": "zookeeper", "minikafka.commit.group": "g"}
    assert refusal_of({**given, "kafka.bootstrap.servers": "h:1"}, Mode.STREAM).name == "zookeeper.connect"
    assert source_options(given, Mode.STREAM).groups.storage is Storage.ZOOKEEPER


def test_options_about_groups_that_change_nothing_are_named() -> None:
    (idle,) = source(Mode.STREAM, kafka__offsets__storage="kafka").warnings
    assert idle.startswith("kafka.offsets.storage has no effect")
    (batch,) = source(minikafka__commit__group="g").warnings
    assert batch == "minikafka.commit.group has no effect on a batch query"


def every_fault(given: dict[str, str], mode: Mode | None = Mode.BATCH) -> list[str]:
    with pytest.raises(ConfigErrors) as refused:
        sink_options(given) if mode is None else source_options({"subscribe": "t", **given}, mode)
    return [fault.name.lower() for fault in refused.value.faults]


@pytest.mark.parametrize("mode", [Mode.LOAD, Mode.BATCH])
def test_every_invalid_option_is_named_in_the_order_given(mode: Mode) -> None:
    given = {
        "failOnDataLoss": "maybe",
        "startingOffsets": "now",
        "kafka.fetch.min.bytes": "-1",
        "endingOffsets": "lates",
        "kafka.auto.offset.reset": "latest",
        "minPartitions": "-3",
        "kafka.security.protocol": "TLS",
        "minikafka.foo": "1",
        "kafka.max.poll.records": "0",
        "startingOffset": "latest",
        "minikafka.commit.group": " ",
        "minikafka.zookeeper.connect": "h:x",
        "minikafka.changed.topics": "maybe",
        "maxTriggerDelay": "x",
        "kafka.bootstrap.servers": "h:x",
    }
    assert every_fault(given, mode) == [name.lower() for name in given]


def test_both_ways_to_the_newest_records_are_checked() -> None:
    given = {"minikafka.last.records": "-1", "minikafka.last.duration": "x", "minikafka.foo": "1"}
    assert every_fault(given) == list(given)


def test_start_and_end_that_no_batch_can_have_are_both_named() -> None:
    given = {"startingOffsets": "latest", "endingOffsets": "earliest"}
    assert every_fault(given) == ["startingoffsets", "endingoffsets"]


def test_option_without_effect_is_named_beside_a_fault() -> None:
    with pytest.raises(ConfigErrors) as refused:
        source(kafka__fetch__max__wait="5", minPartitions="x")
    assert [str(fault) for fault in refused.value.faults] == [
        "kafka.fetch.max.wait: has no effect; did you mean kafka.fetch.max.wait.ms?",
        "minPartitions='x': must be a whole number from 1 to 2147483647",
    ]


def test_every_invalid_option_of_a_write_is_named() -> None:
    given = {
        "topic": "a/b",
        "kafka.acks": "2",
        "includeHeaders": "maybe",
        "kafka.linger.ms": "-1",
        "kafka.client.id": " ",
        "kafka.security.protocol": "TLS",
        "minikafka.foo": "1",
        "minikafka.data.dir": " ",
    }
    assert every_fault(given, mode=None) == [name.lower() for name in given]
