"""The main program of a broker: what it does after the start."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ConfigError
from minikafka.server.__main__ import watch


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
