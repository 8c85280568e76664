"""How long a broker that starts is waited for: as long as it says that it gets on."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.embedded.broker import BrokerFailed, BrokerProcess, Ready, opening_state, refused_host
from minikafka.embedded.process import ProcessFailed

LINE = "2026-01-01 00:00:00,000 INFO opening logs: {} of 9, 5 MiB checked (minikafka.log.manager)\n"

REFUSED = (
    "2026-01-01 00:00:00,000 INFO User:ANONYMOUS at 127.0.0.1 may not do ClusterAction to "
    "Cluster:kafka-cluster (minikafka.server.permissions)\n"
)


class SlowChild:
    """Says how far it is at each look, and after ``looks`` of them that it is ready."""

    exit_code: int | None = None
    line = LINE

    def __init__(self, log: Path, looks: int, *, gets_on: bool = True) -> None:
        self.log = str(log)
        self._path = log
        self._looks = looks
        self._gets_on = gets_on
        self.asked = 0

    def failure(self, what: str) -> ProcessFailed:
        return ProcessFailed(what)

    def wait_for_line(self, timeout_s: float) -> str:
        self.asked += 1
        if self.asked > self._looks:
            return "ready localhost:1 zookeeper localhost:2 cluster abc"
        with self._path.open("a") as file:
            file.write(self.line.format(self.asked if self._gets_on else 1))
        raise ProcessFailed("not yet")


def broker_of(child: SlowChild) -> BrokerProcess:
    broker = BrokerProcess.__new__(BrokerProcess)
    broker.broker_id, broker._child = 0, child  # type: ignore[assignment]
    broker._zookeeper, broker._log_start = "localhost:2", 0
    return broker


def test_a_broker_that_gets_on_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    broker = broker_of(SlowChild(tmp_path / "log", 5))
    assert broker.wait_ready(0, said.append) == Ready("localhost:1", "abc")
    assert said == [f"opening logs: {number} of 9, 5 MiB checked" for number in range(1, 6)]


def test_a_broker_that_does_not_get_on_is_given_up(tmp_path: Path) -> None:
    child = SlowChild(tmp_path / "log", 5, gets_on=False)
    with pytest.raises(BrokerFailed, match="within 0 s"):
        broker_of(child).wait_ready(0)
    assert child.asked == 2


def test_rules_that_keep_a_broker_from_starting_are_told_at_once_and_in_the_end(tmp_path: Path) -> None:
    child, said = SlowChild(tmp_path / "log", 5, gets_on=False), list[str]()
    child.line = REFUSED
    with pytest.raises(BrokerFailed) as told:
        broker_of(child).wait_ready(0, said.append)
    rule = "minikafka acl add --cluster --operation ClusterAction --allow-principal User:ANONYMOUS"
    (line,) = said
    assert line == (
        "broker 0 waits, as access rules refuse its controller ClusterAction; permit it: "
        f"`{rule} --allow-host 127.0.0.1 --zookeeper localhost:2`"
    )
    assert f"start without the authorizer, permit it by `{rule} --allow-host 127.0.0.1" in str(told.value)


def test_what_an_earlier_run_was_refused_is_not_looked_at(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert refused_host(str(log)) is None
    log.write_text(REFUSED)
    assert refused_host(str(log)) == "127.0.0.1"
    assert refused_host(str(log), log.stat().st_size) is None


def test_a_log_that_says_nothing_of_the_kind_has_no_state(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert opening_state(str(log)) is None
    log.write_text("INFO something else (minikafka.server)\n")
    assert opening_state(str(log)) is None
    log.write_text("minikafka: compiling its kernels, once for this machine (about a minute), into /x\n")
    assert opening_state(str(log)) == "compiling its kernels, once for this machine"
    log.write_text(LINE.format(3) + "WARNING a line between (minikafka.log)\n")
    assert opening_state(str(log)) == "opening logs: 3 of 9, 5 MiB checked"
