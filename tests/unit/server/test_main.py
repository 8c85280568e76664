"""The main program of a broker: the parts before and after the start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.errors import ConfigError, DirectoryLocked, NetworkError
from minikafka.base.files import RealFiles
from minikafka.log.layout import LOCK_FILE
from minikafka.server.__main__ import listen, watch


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            ModuleNotFoundError("No module named 'requests'"),
            "ModuleNotFoundError: No module named 'requests'",
        ),
        (
            ConfigError("ssl.keystore.location", "a", "no such file"),
            "ssl.keystore.location='a': no such file",
        ),
    ],
)
def test_metrics_that_do_not_start_stop_the_broker(error: Exception, reason: str) -> None:
    class Failing:
        def watch(self, *_: object) -> None:
            raise error

    told: list[tuple[str, int]] = []
    broken: Any = Failing()
    unused: Any = None
    assert not watch(broken, unused, unused, lambda *found: told.append(found))
    assert told == [(f"failed to start the metrics: {reason}", 2)]


def test_a_directory_in_use_is_named_before_the_port_of_metrics(tmp_path: Path) -> None:
    class Taken:
        def listen(self, *_: object) -> None:
            raise NetworkError("port 9308 is in use")

    taken: Any = Taken()
    config: Any = SimpleNamespace(log_dirs=(str(tmp_path / "absent"), str(tmp_path)))
    with pytest.raises(NetworkError, match="9308"):
        listen(taken, config)
    assert not list(tmp_path.iterdir())
    held = RealFiles().lock(str(tmp_path / LOCK_FILE))
    try:
        with pytest.raises(DirectoryLocked, match=f"{tmp_path} is in use: process"):
            listen(taken, config)
    finally:
        held.release()
    with pytest.raises(NetworkError, match="9308"):
        listen(taken, config)
