"""Every exchange in ``tests/data/wire`` is replayed by a test, or listed here with a reason."""

from __future__ import annotations

from tests.scenarios import (
    test_recorded_groups,
    test_recorded_messages,
    test_recorded_replication,
    test_replayed,
)
from tests.scenarios.recordings import names_of

NOT_REPLAYED = {
    "09-OffsetFetch-v2#0": "0.10.1 closes the connection for this version; this broker supports it",
    "17-SaslHandshake-v0": "on a listener without SASL 0.10.1 names GSSAPI; this broker names none",
}
"""A recording, or all recordings of a file -> the reason."""


def test_every_recording_of_0_10_1_1_is_replayed() -> None:
    replays = [
        *test_recorded_groups.REPLAYS.values(),
        *test_recorded_groups.SEVERAL.values(),
        *test_recorded_messages.REPLAYS.values(),
        test_recorded_messages.UNKNOWN,
        test_recorded_messages.EMPTY,
    ]
    sent = {step for replay in replays for step in replay.split() if ":" not in step}
    sent |= set(test_recorded_replication.EXCHANGES)
    wanted = {
        name
        for name in names_of("0.10.1.1")
        if name not in NOT_REPLAYED and name.partition("#")[0] not in NOT_REPLAYED
    }
    assert sent == wanted


def test_every_recording_of_3_9_1_is_replayed() -> None:
    replayed = [exchange for key in test_replayed.ORDER for exchange in test_replayed.recorded(key)]
    assert len(replayed) == len(list(names_of("3.9.1")))
