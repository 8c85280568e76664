"""The reports of read tasks: their datagrams, and the option that says where they go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import MinikafkaError
from minikafka.base.ids import TopicPartition
from pyspark_minikafka.options.options import Mode, source_options
from pyspark_minikafka.reading.task_reports import RANGES_MAX, ReportAddress, datagrams, new_token, parse

NUMBER = st.integers(0, 2**62)
RANGE = st.tuples(
    st.builds(TopicPartition, st.text(max_size=249), st.integers(0, 2**31 - 1)),
    st.tuples(NUMBER, NUMBER, NUMBER, NUMBER, NUMBER),
)


@given(st.lists(RANGE, min_size=1, max_size=3 * RANGES_MAX))
def test_a_report_arrives_as_it_was_sent(ranges: list[tuple[TopicPartition, tuple[int, ...]]]) -> None:
    token = new_token()
    found = [parse(datagram, token) for datagram in datagrams(token, "a query", ranges)]  # type: ignore[arg-type]
    assert [row for report in found if report for row in report.ranges] == ranges
    assert [report.is_first for report in found if report] == [True] + [False] * (len(found) - 1)


def test_a_datagram_stays_small_with_the_longest_names() -> None:
    row = (TopicPartition("t" * 249, 2**31 - 1), (2**60,) * 5)
    assert max(map(len, datagrams(new_token(), "q" * 36, [row] * 100))) < 16_000


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"another {}",
        b"token",
        b"token {",
        b"token []",
        b'token {"query": "q", "first": true, "ranges": [["t", 0, 1]]}',
        b'token {"query": "q", "first": true, "ranges": [["t", 0, 1, 1, 1, 1, -1]]}',
        b'token {"query": "q", "first": true, "ranges": [["t", 0, 1, 1, 1, 1, true]]}',
        b"token \xff",
    ],
)
def test_other_datagrams_are_passed_over(datagram: bytes) -> None:
    assert parse(datagram, "token") is None


def test_the_option_has_the_address_of_the_listener() -> None:
    def parsed(value: str) -> ReportAddress | None:
        options = {"subscribe": "t", "minikafka.metrics.address": value}
        return source_options(options, Mode.STREAM, working_directory="/").report_address

    for address in (ReportAddress("10.0.0.1", 4040, "ab12"), ReportAddress("::1", 1, "ab12")):
        assert parsed(str(address)) == address
    for wrong in ("", "host", "host:1", "host:0/ab", "host:1/", ":1/ab", "host:x/ab"):
        with pytest.raises(MinikafkaError, match="reader_options"):
            parsed(wrong)
