"""The states of a group, and their valid predecessors: ``GroupMetadata`` of Kafka.

    Empty ─────────▶ PreparingRebalance ◀──────────── Stable
      ▲                │    ▲     │ all have joined,     ▲
      └────────────────┘    │     ▼ or the time is up    │ the leader's assignment is stored
        no member joined    └─ CompletingRebalance ──────┘

Every state changes to Dead when the group is deleted or its partition of ``__consumer_offsets`` moves.
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The state of a group. The values are those in DescribeGroups."""

    EMPTY = "Empty"
    """No members: all have left, or the group only commits offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are requested to join again; their joins wait for each other."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined; they wait for the leader's assignment (``AwaitingSync`` in 0.10.1)."""
    STABLE = "Stable"
    """Every member can get its assignment."""
    DEAD = "Dead"
    """Deleted, or moved to another broker: nothing is accepted any more."""


VALID_PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
