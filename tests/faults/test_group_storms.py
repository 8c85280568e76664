"""Fifty members of a group that join, leave and vanish all the time. See ``attack`` for who else
is there, and what must hold for them.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.net.connection import connect
from tests.faults.attack import HOST, AttackedBroker, Others, answer_of, reads_proc, wait_until
from tests.support import requests

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180), reads_proc]

GROUP = "storm"
MEMBERS = 50
STORM_S = 10.0
SESSION_MS = 6_000
"""The least that a broker allows by default."""
STABLE_WITHIN_S = 30.0
"""The limit of time until all members have one generation: the vanished ones must time out."""


@dataclass
class Storm:
    """The state that the members share."""

    over: threading.Event = field(default_factory=threading.Event)
    """Set when no member leaves or vanishes any more."""
    ended: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    generations: dict[int, int] = field(default_factory=dict)
    """The current generation of each member; -1: none."""
    leaders: dict[int, set[str]] = field(default_factory=dict)
    """The leaders of each generation."""


class Member(threading.Thread):
    """One client, with a connection of its own, which is a new member after it left or vanished."""

    def __init__(self, broker: AttackedBroker, storm: Storm, number: int) -> None:
        super().__init__(name=f"member {number}")
        self._broker = broker
        self._storm = storm
        self._number = number
        self._chance = random.Random(number)
        self._id = ""
        self._generation = -1

    def run(self) -> None:
        self._connection = connect(HOST, self._broker.port)
        try:
            while not self._storm.ended.is_set():
                if self._join():
                    self._stay()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._storm.errors.append(error)
        finally:
            self._connection.close()

    def _join(self) -> bool:
        """Return True if this member has partitions."""
        self._storm.generations[self._number] = -1
        join = requests.join_group(
            GROUP,
            {"p": b"%d" % self._number},
            member_id=self._id,
            session_ms=SESSION_MS,
            rebalance_ms=SESSION_MS,
        )
        joined = answer_of(self._connection, join.at(2))
        if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
            return False
        assert joined.error_code == ErrorCode.NONE, joined
        self._id, self._generation = joined.member_id, joined.generation_id
        ids = [member.member_id for member in joined.members]
        if joined.leader == self._id:
            self._storm.leaders.setdefault(self._generation, set()).add(self._id)
            assert len(set(ids)) == len(ids)
            assert self._id in ids
        else:
            assert not ids
        shares = {member: self._part_of(member) for member in ids}
        sync = requests.sync_group(GROUP, self._generation, self._id, shares)
        synced = answer_of(self._connection, sync.at(1))
        if synced.error_code in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID}:
            return False
        assert synced.error_code == ErrorCode.NONE, synced
        assert synced.assignment == self._part_of(self._id), "the assignment is another member's"
        self._storm.generations[self._number] = self._generation
        return True

    def _part_of(self, member_id: str) -> bytes:
        return b"%d of %s" % (self._generation, member_id.encode())

    def _stay(self) -> None:
        """Beat until the group is to be balanced anew, or this member has enough."""
        while not self._storm.ended.wait(0.1):
            code = self._beat()
            if code != ErrorCode.NONE:
                assert code in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID}, code
                return
            choice = 1.0 if self._storm.over.is_set() else self._chance.random()
            if choice < 0.02:
                self._leave()
                return
            if choice < 0.0203:  # the group waits for it until its session times out
                self._connection.close()
                self._connection = connect(HOST, self._broker.port)
                self._id = ""
                return

    def _beat(self) -> int:
        beat = requests.heartbeat(GROUP, self._generation, self._id)
        code: int = answer_of(self._connection, beat.at(1)).error_code
        return code

    def _leave(self) -> None:
        left = answer_of(self._connection, requests.leave_group(GROUP, self._id).at(1))
        assert left.error_code in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}, left
        # Whoever left sets no offset back.
        commit = requests.commit_offsets(
            "steady", group=GROUP, offsets={0: 1}, generation=self._generation, member_id=self._id
        )
        done = answer_of(self._connection, commit)
        assert done.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID, done
        self._id = ""


@contextlib.contextmanager
def members(broker: AttackedBroker, storm: Storm) -> Iterator[None]:
    """All members, until the end of the block."""
    threads = [Member(broker, storm, number) for number in range(MEMBERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        storm.ended.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_fifty_members_after_a_storm_share_one_generation(broker: AttackedBroker) -> None:
    storm = Storm()
    wait_until(lambda: broker.call(requests.find_coordinator(GROUP)).error_code == 0)
    with Others(broker), members(broker, storm):
        time.sleep(STORM_S)
        storm.over.set()
        deadline = time.monotonic() + STABLE_WITHIN_S

        def settled() -> bool:
            found = set(storm.generations.values())
            assert time.monotonic() < deadline or storm.errors, f"generations {sorted(found)}"
            return bool(storm.errors) or (len(found) == 1 and found != {-1})

        wait_until(settled)
        assert not storm.errors, storm.errors
        (group,) = broker.call(requests.describe_groups(GROUP)).groups
    assert not storm.errors, storm.errors
    assert (group.group_state, len(group.members)) == ("Stable", MEMBERS)
    assert all(len(leaders) == 1 for leaders in storm.leaders.values())
    sys.stdout.write(f"{len(storm.leaders)} generations\n")
    assert len(storm.leaders) > 5, "there was no storm"
