"""What AlterConfigs makes of the settings that it is sent."""

from __future__ import annotations

import pytest

from minikafka.base.errors import BrokerError
from minikafka.server.settings import replacement
from minikafka.wire.apis.alter_configs import AlterableConfig


def test_of_a_setting_that_is_given_twice_the_last_value_counts() -> None:
    described = AlterableConfig("retention.ms", "1"), AlterableConfig("segment.bytes", "100")
    wanted = AlterableConfig("retention.ms", "2")
    assert replacement([*described, wanted])({}) == {"retention.ms": "2", "segment.bytes": "100"}


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(BrokerError, match=r"retention\.ms has no value"):
        replacement([AlterableConfig("retention.ms", None)])({})
