"""The check for a rolled back ZooKeeper, without ZooKeeper."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.registry.zookeeper_rollback import RollbackWatch


def test_failed_rollback_check_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()
    client = SimpleNamespace(last_zxid=9, _session_id=None, _session_passwd=b"")
    reached = SimpleNamespace(get=lambda timeout: None)
    probe = SimpleNamespace(last_zxid=3, exists_async=lambda path: reached)
    tries = []

    def connect() -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("can't start new thread")
        return probe

    def disconnect(probe: Any) -> None:
        over.set()

    watch = RollbackWatch(
        client,
        "h:2181",
        over,
        connect=connect,
        disconnect=disconnect,
        end_session=lambda ticket: None,
        check_interval_s=lambda: 0.001,
    )
    watch.lost()
    assert over.wait(30)
    assert len(tries) == 2
    assert "h:2181" in caplog.text
