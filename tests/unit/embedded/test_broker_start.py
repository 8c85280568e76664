"""How long a broker that starts is waited for: as long as it says that it gets on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.embedded import broker as broker_module
from minikafka.embedded.broker import BrokerFailed, BrokerProcess, Ready, progress_text
from minikafka.embedded.process import ProcessFailed


@pytest.fixture(autouse=True)
def say_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "PROGRESS_EVERY_S", 0.0)


def opening(opened: int) -> dict[str, object]:
    return {"type": "opening", "opened": opened, "of": 9, "checked_bytes": 5 << 20}


REFUSED: dict[str, object] = {"type": "refused", "host": "127.0.0.1"}


class SlowChild:
    """Reports how far it is at each look, and after ``looks`` of them says that it is ready."""

    exit_code: int | None = None

    def __init__(self, log: Path, looks: int, reports: Callable[[int], dict[str, object]]) -> None:
        self.log = str(log)
        self._looks = looks
        self._reports = reports
        self.report: dict[str, object] | None = None
        self.asked = 0

    def last_report(self, kind: str) -> dict[str, object] | None:
        return self.report if self.report and self.report["type"] == kind else None

    def failure(self, what: str) -> ProcessFailed:
        return ProcessFailed(what)

    def wait_for_report(self, kind: str, timeout_s: float) -> dict[str, object]:
        self.asked += 1
        if self.asked > self._looks:
            return {"type": kind, "address": "localhost:1", "cluster_id": "abc"}
        self.report = self._reports(self.asked)
        raise ProcessFailed("not yet")


def broker_of(child: SlowChild) -> BrokerProcess:
    broker = BrokerProcess.__new__(BrokerProcess)
    broker.broker_id, broker._child = 0, child  # type: ignore[assignment]
    broker._zookeeper = "localhost:2"
    return broker


def test_a_broker_that_gets_on_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    broker = broker_of(SlowChild(tmp_path / "log", 5, opening))
    assert broker.wait_ready(0, said.append) == Ready("localhost:1", "abc")
    assert said == [f"broker 0: opening logs: {number} of 9, 5 MiB checked" for number in range(1, 6)]


def test_a_broker_that_does_not_get_on_is_given_up_and_what_it_did_is_named(tmp_path: Path) -> None:
    child = SlowChild(tmp_path / "log", 5, lambda _: opening(1))
    with pytest.raises(BrokerFailed, match="within 0 s of its last report: opening logs: 1 of 9"):
        broker_of(child).wait_ready(0)
    assert child.asked == 2


def test_a_broker_that_compiles_kernels_on_a_busy_machine_is_waited_for(tmp_path: Path) -> None:
    """A single kernel may take longer than anything else that a start does."""
    said: list[str] = []
    child = SlowChild(tmp_path / "log", 3, lambda _: {"type": "compiling", "done": 5, "of": 17})
    assert broker_of(child).wait_ready(0, said.append) == Ready("localhost:1", "abc")
    assert said == ["broker 0: compiling its kernels, once for this machine: 5 of 17"]


def test_rules_that_keep_a_broker_from_starting_are_told_at_once_and_in_the_end(tmp_path: Path) -> None:
    child, said = SlowChild(tmp_path / "log", 5, lambda _: REFUSED), list[str]()
    with pytest.raises(BrokerFailed) as told:
        broker_of(child).wait_ready(0, said.append)
    rule = "minikafka acl add --cluster --operation ClusterAction --allow-principal User:ANONYMOUS"
    (line,) = said
    assert line == (
        "broker 0: waits, as access rules refuse its controller ClusterAction; permit it: "
        f"`{rule} --allow-host 127.0.0.1 --zookeeper localhost:2`"
    )
    assert f"start without the authorizer, permit it by `{rule} --allow-host 127.0.0.1" in str(told.value)


@pytest.mark.parametrize(
    "report", [None, {"type": "phase", "phase": "starting"}, {"type": "opening"}, {"type": 1}]
)
def test_what_takes_no_time_is_not_told(report: dict[str, object] | None) -> None:
    assert progress_text(report) is None
