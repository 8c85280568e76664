"""The configuration of fetches."""

from __future__ import annotations

from dataclasses import dataclass

from minikafka.base.config.config_def import setting
from minikafka.base.config.types import choice, int32

_SELECTORS = "org.apache.kafka.common.replica"


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """The configuration of fetches, of followers and consumers."""

    session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        int32(0),
        1_000,
        "The most fetch sessions, in which only changes are sent (KIP-227). 0: none.",
    )
    max_bytes: int = setting(
        "fetch.max.bytes",
        int32(1024),
        57_671_680,
        "The most bytes of a response, whatever a client asks for.",
    )
    selects_by_rack: bool = setting(
        "replica.selector.class",
        choice(
            {
                f"{_SELECTORS}.RackAwareReplicaSelector": True,
                f"{_SELECTORS}.LeaderSelector": False,
                "": False,
            },
            f"{_SELECTORS}.RackAwareReplicaSelector, {_SELECTORS}.LeaderSelector or empty",
            exact=True,
        ),
        "",
        "Which replica consumers read from (KIP-392): one in their `client.rack`, or the leader.",
    )
