"""``minikafka consume`` without a group, on brokers in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    brokers = BrokerHarness(2, {"t": 2, "u": 1})
    headers = (("trace", b"1"), ("raw", b"\xff"), ("none", None))
    for at, second in enumerate((0, 1, 2)):
        brokers.produce(T0, build_batch([Record(b"k%d" % at, b"a%d" % at, 1_000 * second, headers)]))
    brokers.produce(T1, build_batch([Record(None, b"b0", 1_500)]))
    brokers.produce(U0, build_batch([Record(b"\xfe", None, 2_500)]))
    return serve(brokers)


@pytest.fixture
def consume(brokers: BrokerHarness, cli: CommandLine) -> Callable[..., str]:
    """Runs consume to the end of its range; what it printed."""

    def run(*arguments: str) -> str:
        assert cli.run("consume", *arguments) == 0, cli.err
        return cli.out

    return run


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (("-e",), "t-0@0 t-0@1 t-0@2 t-1@0 "),
        (("-o", ":end"), "t-0@0 t-0@1 t-0@2 t-1@0 "),
        (("-o", "-1", "--exit"), "t-0@2 t-1@0 "),
        (("-o", "+1", "-e"), "t-0@1 t-0@2 "),
        (("-o", "1:2"), "t-0@1 "),
        (("-o", "@0000001001:end"), ""),
        (("-o", "@1970-01-01T00:00:01Z:1970-01-01T00:00:02Z"), "t-0@1 t-1@0 "),
        (("-p", "0", "-n", "2"), "t-0@0 t-0@1 "),
        (("-p", "0,1", "--num", "4"), "t-0@0 t-0@1 t-0@2 t-1@0 "),
        (("--partition", "1", "--from", "0", "--max", "1"), "t-1@0 "),
        (("-o", "end", "-e"), ""),
    ],
)
def test_the_range_is_as_in_rpk(consume: Callable[..., str], options: tuple[str, ...], printed: str) -> None:
    assert consume("t", *options, "-f", "%t-%p@%o ") == printed


def test_attributes_are_those_of_the_batch(consume: Callable[..., str]) -> None:
    form = "%o %a{compression} %a{timestamp-type} %a{transactional-bit;bool} %e %x\\n"
    assert consume("t", "-p", "1", "-e", "-f", form) == "0 none 0 false 0 -1\n"


def test_several_topics_are_printed_with_their_names(consume: Callable[..., str]) -> None:
    assert consume("u", "t", "u", "-e", "-f", "%t:%v\\n") == "u:\nt:a0\nt:a1\nt:a2\nt:b0\n"
    assert consume("t", "u", "-e").splitlines()[-1].split() == [
        *["u", "0", "0", "1970-01-01T00:00:02.500Z"],
        *["\\xfe", "null"],
    ]


def test_json_has_headers_where_there_are_some(consume: Callable[..., str]) -> None:
    first, *_, last = map(json.loads, consume("t", "-e", "--format", "json").splitlines())
    assert first["headers"] == [
        {"key": "trace", "value": "1"},
        {"key": "raw", "value_base64": "/w=="},
        {"key": "none", "value": None},
    ]
    assert last == {"topic": "t", "partition": 1, "offset": 0, "timestamp": 1_500, "key": None, "value": "b0"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("t", "-o", "x"), "--offset='x': must be start, end, 47"),
        (("t", "-o", "7", "--from", "end"), "--offset='7': conflicts with --from end"),
        (("t", "-o", "stored"), "--offset='stored': requires --group G"),
        (("t", "-p", "x"), "--partition='x': must be numbers of partitions"),
        (("t", "-p", ""), "--partition='': must be numbers of partitions"),
        (("t", "-g", "g", "-p", "1,0"), "--partition='0,1': conflicts with --group g"),
        (
            ("t", "-g", "g", "--print-control-records"),
            "--print-control-records='yes': conflicts with --group",
        ),
        (("t", "-g", "g", "-o", "-3"), "--offset='-3': with --group must be beginning or end"),
        (("t", "-g", "g", "-o", "1:2"), "--offset='1:2': with --group must be"),
        (("t", "-f", "%q"), "--record-format='%q': at character 1"),
        (("t", "-g", "g", "-f", "%x"), "--record-format='%x': %a, %e, %x and %y conflict with --group"),
        (("t", "-f", "%v", "--format", "json"), "--record-format='%v': conflicts with --format json"),
        (("t", "u", "-g", "g", "--zookeeper", "h:1"), "TOPIC='t u': with --zookeeper use --whitelist 't|u'"),
        (("t", "-e", "-g", "g", "--zookeeper", "h:1"), "--exit='yes': conflicts with --zookeeper"),
        (("t", "--read-committed", "-g", "g", "--zookeeper", "h:1"), "--isolation-level='read_committed'"),
        ((), "TOPIC: required; set exactly one of TOPIC, --whitelist"),
        (("t", "--whitelist", "x"), "--whitelist='x': conflicts with TOPIC='t'"),
    ],
)
def test_options_that_conflict_are_told(arguments: tuple[str, ...], message: str, cli: CommandLine) -> None:
    assert cli.run("consume", *arguments) == 2
    assert message in cli.err
    assert cli.err.count("\n") == 1


def test_a_member_of_a_group_ends_at_the_end_of_its_partitions(consume: Callable[..., str]) -> None:
    assert sorted(consume("t", "u", "-g", "g", "-o", "stored", "-e", "-f", "%t%p%o ").split()) == [
        *["t00", "t01", "t02", "t10"],
        "u00",
    ]
    assert consume("t", "u", "-g", "g", "-e") == ""


def test_yaml_and_csv_have_the_same_rows(consume: Callable[..., str], cli: CommandLine) -> None:
    assert consume("t", "-p", "1", "-e", "--format", "yaml") == (
        "- topic: t\n  partition: 1\n  offset: 0\n  timestamp: 1500\n  key: null\n  value: b0\n"
    )
    for _ in range(2):  # a header for each command
        assert consume("t", "u", "-o", "-1", "-e", "--format", "csv").split("\r\n") == [
            "topic,partition,offset,timestamp,key,value,headers,control",
            't,0,2,2000,k2,a2,"[[""trace"", ""1""], [""raw"", ""base64:/w==""], [""none"", null]]",',
            "t,1,0,1500,,b0,,",
            "u,0,0,2500,base64:/g==,,,",
            "",
        ]
    assert cli.run("topic", "list", "--format", "csv") == 0
    assert cli.lines[0] == "topic,partitions,internal,topic_id"
    assert cli.run("topic", "list", "--format", "yaml") == 0
    assert cli.lines[:2] == ["- topic: t", "  partitions: 2"]
    assert cli.run("cluster", "describe", "--format", "csv") == 0
    assert cli.lines[0] == "broker,host,port,rack,controller,leads,replicas"


def test_a_rack_in_the_properties_is_that_of_the_reader(
    brokers: BrokerHarness, consume: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.rack=b\n")
    consume("u", "-e")
    assert {request.rack_id for request in brokers.asked(ApiKey.FETCH)} == {""}
    for group in ((), ("-g", "near")):
        before = len(brokers.asked(ApiKey.FETCH))
        consume("u", "-e", *group, "--command-config", str(file))
        assert brokers.asked(ApiKey.FETCH)[before].rack_id == "b"
