"""The states of a connection: which may follow which, and what a selector reports in each."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest

from minikafka.net import channel as module
from minikafka.net.channel import (
    AWAITING_PART,
    CLOSED,
    DELAYED,
    HANDSHAKE,
    HELD,
    IN_SERVICE,
    LINGERING,
    READ,
    READING,
    SENDING,
    THROTTLED,
    WRITE,
    Channel,
    ConnectionState,
)
from minikafka.net.interfaces import Endpoint


@pytest.fixture
def channel() -> Iterator[Channel]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, ("127.0.0.1", 1), Endpoint("PLAINTEXT", "", 0), 1000, 0)


def documented() -> dict[str, list[str]]:
    """Return the table of the module's docstring."""
    text = (module.__doc__ or "").split("::\n\n")[1].split("\n\n")[0]
    rows = [re.split(r"\s{2,}", row.strip(), maxsplit=1) for row in text.splitlines()]
    return {row[0]: row[1].split(", ") if len(row) > 1 else [] for row in rows}


def test_states_follow_each_other_as_documented(channel: Channel) -> None:
    table = documented()
    assert list(table) == [state.name for state in ConnectionState if state is not CLOSED]
    for before in ConnectionState:
        for after in ConnectionState:
            channel.state = before
            allowed = after.name in table.get(before.name, ()) or (after is CLOSED) > (before is CLOSED)
            if allowed:
                channel.become(after)
                assert channel.state is after
            else:
                with pytest.raises(AssertionError, match=f"127.0.0.1:1: {before.name} to {after.name}"):
                    channel.become(after)


def test_selector_reports_what_the_state_waits_for(channel: Channel) -> None:
    found = {READING: channel.interest, HANDSHAKE: READ}
    before_sending = (HELD, READING, IN_SERVICE, DELAYED)
    for state in (*before_sending, SENDING, AWAITING_PART, SENDING, THROTTLED, LINGERING, CLOSED):
        channel.become(state)
        found[state] = channel.interest
    reading = dict.fromkeys(
        (HANDSHAKE, READING, IN_SERVICE, DELAYED, AWAITING_PART, THROTTLED, LINGERING), READ
    )
    assert found == reading | {SENDING: WRITE, HELD: 0, CLOSED: 0}


def test_peer_that_sends_ahead_is_watched_again_when_it_is_read(channel: Channel) -> None:
    channel.become(IN_SERVICE)
    channel.mute()
    assert channel.interest == 0
    channel.become(SENDING)
    assert channel.interest == WRITE
    channel.become(READING)
    assert channel.interest == READ
