"""Waiting for a broker to start: as long as it reports progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.embedded import broker as broker_module
from minikafka.embedded.broker import BrokerFailed, BrokerProcess, Ready, progress_text
from minikafka.embedded.process import ProcessFailed


@pytest.fixture(autouse=True)
def report_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "PROGRESS_EVERY_S", 0.0)


def opening(opened: int) -> dict[str, object]:
    return {"type": "opening", "opened": opened, "of": 9, "checked_bytes": 5 << 20}


REFUSED: dict[str, object] = {"type": "refused", "principal": "User:ANONYMOUS", "host": "127.0.0.1"}


class SlowChild:
    """A child that reports progress at each of ``polls`` polls, and then that it is ready."""

    exit_code: int | None = None

    def __init__(self, log: Path, polls: int, reports: Callable[[int], dict[str, object]]) -> None:
        self.log = str(log)
        self._polls = polls
        self._reports = reports
        self.report: dict[str, object] | None = None
        self.polled = 0

    def last_report(self, kind: str) -> dict[str, object] | None:
        return self.report if self.report and self.report["type"] == kind else None

    def failure(self, what: str) -> ProcessFailed:
        return ProcessFailed(what)

    def wait_for_report(self, kind: str, timeout_s: float) -> dict[str, object]:
        self.polled += 1
        if self.polled > self._polls:
            return {"type": kind, "address": "localhost:1", "cluster_id": "abc"}
        self.report = self._reports(self.polled)
        raise ProcessFailed("not yet")


def broker_of(child: SlowChild) -> BrokerProcess:
    broker = BrokerProcess.__new__(BrokerProcess)
    broker.broker_id, broker._child = 0, child  # type: ignore[assignment]
    broker._zookeeper = "localhost:2"
    return broker


def test_broker_with_progress_is_waited_for(tmp_path: Path) -> None:
    messages: list[str] = []
    broker = broker_of(SlowChild(tmp_path / "log", 5, opening))
    assert broker.wait_ready(0, messages.append) == Ready("localhost:1", "abc")
    assert messages == [f"broker 0: opening logs: {number} of 9, 5 MiB checked" for number in range(1, 6)]


def test_broker_without_progress_fails_with_its_last_report(tmp_path: Path) -> None:
    child = SlowChild(tmp_path / "log", 5, lambda _: opening(1))
    with pytest.raises(BrokerFailed, match="within 0 s of its last report: opening logs: 1 of 9"):
        broker_of(child).wait_ready(0)
    assert child.polled == 2


@pytest.mark.parametrize("polls", [0, 1])
def test_broker_whose_login_is_refused_fails_also_when_it_is_ready(tmp_path: Path, polls: int) -> None:
    child = SlowChild(tmp_path / "log", polls, lambda _: child.report or {})
    child.report = {"type": "login_refused", "message": "its own listener refuses the login"}
    with pytest.raises(BrokerFailed, match=r"^broker 0: its own listener refuses the login \(see .*log\)$"):
        broker_of(child).wait_ready()
    assert child.polled == 1


def test_broker_that_compiles_kernels_is_waited_for_longer(tmp_path: Path) -> None:
    """A single kernel may take longer than anything else that a start does."""
    messages: list[str] = []
    child = SlowChild(tmp_path / "log", 3, lambda _: {"type": "compiling", "done": 5, "of": 17})
    assert broker_of(child).wait_ready(0, messages.append) == Ready("localhost:1", "abc")
    assert messages == ["broker 0: compiling kernels, once for this machine: 5 of 17"]


def test_acls_that_block_the_start_are_reported_at_once_and_at_last(tmp_path: Path) -> None:
    child, messages = SlowChild(tmp_path / "log", 5, lambda _: REFUSED), list[str]()
    with pytest.raises(BrokerFailed) as failure:
        broker_of(child).wait_ready(0, messages.append)
    rule = "minikafka acl add --cluster --operation ClusterAction --allow-principal User:ANONYMOUS"
    (line,) = messages
    assert line == (
        "broker 0: waiting: ACLs deny ClusterAction to its controller; to allow it, run "
        f"`{rule} --allow-host 127.0.0.1 --zookeeper localhost:2`"
    )
    assert f"start without the authorizer, run `{rule} --allow-host 127.0.0.1" in str(failure.value)


@pytest.mark.parametrize(
    "report", [None, {"type": "phase", "phase": "starting"}, {"type": "opening"}, {"type": 1}]
)
def test_short_steps_have_no_progress_text(report: dict[str, object] | None) -> None:
    assert progress_text(report) is None
