"""Every exchange in ``tests/data/wire`` is said to our broker by a test, or stands here with a reason."""

from __future__ import annotations

from tests.scenarios import (
    test_recorded_groups,
    test_recorded_messages,
    test_recorded_replication,
    test_replayed,
)
from tests.scenarios.recordings import names_of

NOT_REPLAYED = {
    "09-OffsetFetch-v2#0": "0.10.1 does not know this version and closes the connection; we serve it",
    "17-SaslHandshake-v0": "there is no authentication yet: it is not served, and not advertised",
}
"""A recording, or all of a file."""


def test_no_recording_of_0_10_1_1_is_forgotten() -> None:
    replays = [
        *test_recorded_groups.REPLAYS.values(),
        *test_recorded_groups.SEVERAL.values(),
        *test_recorded_messages.REPLAYS.values(),
        test_recorded_messages.UNKNOWN,
    ]
    said = {step for replay in replays for step in replay.split() if ":" not in step}
    said |= set(test_recorded_replication.EXCHANGES)
    wanted = {
        name
        for name in names_of("0.10.1.1")
        if name not in NOT_REPLAYED and name.partition("#")[0] not in NOT_REPLAYED
    }
    assert said == wanted


def test_no_recording_of_3_9_1_is_forgotten() -> None:
    replayed = [exchange for key in test_replayed.ORDER for exchange in test_replayed.recorded(key)]
    assert len(replayed) == len(list(names_of("3.9.1")))
