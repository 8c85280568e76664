"""Data directories that Apache Kafka's brokers and ours write in turns, and what each finds there.

Each pair of tests is one handover: a broker was stopped or killed, and the other kind starts on the same
directory and the same ZooKeeper. What it serves is read before it appends, which it does as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from tests.interop.relay import OURS, THEIRS, Leg, Relay, Row, Seen, middle, times_of
from tests.interop.releases import RELEASES, Release

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

RELAYS = {
    # By who makes the directory and the topics.
    OURS: [Leg(OURS, "stop"), Leg(THEIRS, "stop"), Leg(OURS, "kill"), Leg(THEIRS, "kill"), Leg(OURS, "stop")],
    THEIRS: [Leg(THEIRS, "kill"), Leg(OURS, "stop"), Leg(THEIRS, "stop"), Leg(OURS, "stop")],
}
ENDED = {"stop": "stopped", "kill": "killed"}

Handover = tuple[Release, str, int]


def handovers() -> Iterator[object]:
    for release in RELEASES:
        for founder, legs in RELAYS.items():
            for number in range(1, len(legs)):
                before, after = legs[number - 1], legs[number]
                name = f"{release}-of-{founder}-{ENDED[before.end]}-{before.runner}-to-{after.runner}"
                yield pytest.param((release, founder, number), id=name)


every_handover = pytest.mark.parametrize("handover", list(handovers()))


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Release, str], Relay]]:
    """The relay of a release and a founder. No two brokers run at a time."""
    directory = tmp_path_factory.mktemp("relays")
    with EmbeddedZooKeeper(str(directory)) as zookeeper:

        @cache
        def of(release: Release, founder: str) -> Relay:
            name = f"{release}-{founder}"
            return Relay(release, RELAYS[founder], directory / name, f"{zookeeper.connect}/{name}")

        yield of


@pytest.fixture
def seen(relay: Callable[[Release, str], Relay], handover: Handover) -> Seen:
    """Return the state that the second broker found."""
    release, founder, number = handover
    release.libs()
    return relay(release, founder).seen(number)


def runner_of(handover: Handover) -> str:
    _, founder, number = handover
    return RELAYS[founder][number].runner


@every_handover
def test_the_successor_serves_every_record(handover: Handover, seen: Seen) -> None:
    for topic, served in seen.served.items():
        assert served == seen.wanted[topic], topic


@every_handover
def test_the_successor_finds_records_by_offset_and_by_time(handover: Handover, seen: Seen) -> None:
    for topic, served in seen.served_from_the_middle.items():
        wanted = seen.wanted[topic]
        assert [row.offset for row in served] == [row.offset for row in wanted[middle(wanted) :]], topic
        assert seen.bounds[topic] == (0, len(wanted)), topic
        for at in times_of(wanted) if topic.magic else []:
            assert seen.found_by_time[topic, at] == first_at_or_after(wanted, at), (topic, at)


def first_at_or_after(rows: list[Row], time_ms: int) -> int:
    return next((row.offset for row in rows if row.timestamp_ms >= time_ms), -1)


@every_handover
def test_the_files_hold_every_record_whoever_wrote_it(handover: Handover, seen: Seen) -> None:
    for topic, found in seen.in_files.items():
        assert found == seen.wanted[topic], topic


@every_handover
def test_the_successor_finds_nothing_damaged(handover: Handover, seen: Seen) -> None:
    _, founder, number = handover
    complaints = [line for line in seen.said if "/magic" in line]
    if RELAYS[founder][number - 1].end == "kill":
        # Which is what an index that was not written yet is no sign of.
        complaints = [line for line in complaints if "Could not find" not in line]
    assert complaints == []
