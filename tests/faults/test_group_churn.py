"""Short histories of a group whose consumers come, go, restart and fail.

What must hold, and what can happen, is in ``group_churn``. `MINIKAFKA_SEEDS` asks for more seeds; ``-rP``
shows what happened how often.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from minikafka.clients.group.assignors import ASSIGNORS
from minikafka.clients.group.consumer import GroupConsumer
from minikafka.clients.group.member import GroupMember
from minikafka.clients.group.member_subscriptions import Assignments, Subscriptions
from minikafka.groups.group import Group
from tests.faults.group_churn import GroupChurn
from tests.support.seeds import seeds

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = seeds(16)
WITHIN = 60
"""Seeds in which each mistake must be found."""


@pytest.mark.timeout(0)
def test_partitions_have_one_owner_and_no_record_is_lost() -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        churn = GroupChurn(seed)
        try:
            churn.run()
        except BaseException:
            sys.stdout.write(f"seed {seed}\n")
            raise
        happened += churn.happened
    for what, count in sorted(happened.items()):
        sys.stdout.write(f"{count:8} {what}\n")


def gives_away_at_once(patch: pytest.MonkeyPatch) -> None:
    """The leader does not look at what members own."""
    assign = ASSIGNORS["cooperative-sticky"]

    def careless(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignments:
        return assign({name: replace(row, owned=()) for name, row in subscriptions.items()}, partitions)

    patch.setitem(ASSIGNORS, "cooperative-sticky", careless)


def commits_nothing_at_a_rebalance(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupConsumer, "_auto_commit_sync", lambda self: None)


def leaves_though_it_is_static(patch: pytest.MonkeyPatch) -> None:
    leave = GroupMember._leave

    def says_so(self: Any, effect: Any) -> None:
        config, self._config = self._config, replace(self._config, group_instance_id=None)
        leave(self, effect)
        self._config = config

    patch.setattr(GroupMember, "_leave", says_so)


def forgets_the_assignment_of_a_static_member(patch: pytest.MonkeyPatch) -> None:
    replace_member = Group._replace

    def forgetful(self: Any, member: Any, event: Any, now_ms: int) -> None:
        self.members.assign(member, b"")
        replace_member(self, member, event, now_ms)

    patch.setattr(Group, "_replace", forgetful)


@pytest.mark.parametrize(
    "mistake",
    [
        gives_away_at_once,
        commits_nothing_at_a_rebalance,
        leaves_though_it_is_static,
        forgets_the_assignment_of_a_static_member,
    ],
)
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(1, WITHIN):
        try:
            GroupChurn(seed).run()
        except AssertionError:
            return
    raise AssertionError(f"not found in {WITHIN} seeds")
