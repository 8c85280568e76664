"""DescribeConfigs 3 and 4: the types of settings, and their documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.config.types import ConfigType
from minikafka.registry.entity_configs import LEADER_RATE
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.support.requests import Request
from tests.support.simulation import Simulation

RECORDED = Path(__file__).parents[3] / "data" / "wire" / "configs-3.9.1.jsonl"
OWN_TYPES = {"zookeeper.set.acl": ConfigType.STRING}
"""Settings whose values are not only those of Kafka."""


@pytest.fixture
def world() -> Simulation:
    return Simulation.serving("t", properties={"our.own.plugin": "x"})


def described(
    world: Simulation, kind: ConfigResourceType, *, documented: bool = False, version: int = 4
) -> dict[str, Any]:
    name = "t" if kind is ConfigResourceType.TOPIC else "0"
    body = DescribeConfigsRequest((DescribeConfigsResource(kind, name, None),), True, documented)
    (found,) = world.call(Request(ApiKey.DESCRIBE_CONFIGS, version, body)).results
    assert found.error_code == 0
    return {row.name: row for row in found.configs}


@pytest.mark.parametrize("kind", [ConfigResourceType.TOPIC, ConfigResourceType.BROKER])
def test_settings_have_the_types_of_3_9_1(world: Simulation, kind: ConfigResourceType) -> None:
    recorded = {
        row["name"]: ConfigType[row["type"]]
        for row in map(json.loads, RECORDED.read_text().splitlines())
        if row["resource"] == kind.name.lower()
    } | OWN_TYPES
    found = {name: ConfigType(row.config_type) for name, row in described(world, kind).items()}
    known = recorded.keys() & found.keys()
    assert len(known) > 20
    assert {name: found[name] for name in known} == {name: recorded[name] for name in known}


def test_documentation_is_given_when_it_is_asked_for(world: Simulation) -> None:
    for kind in (ConfigResourceType.TOPIC, ConfigResourceType.BROKER):
        assert {row.documentation for row in described(world, kind).values()} == {None}
        rows = described(world, kind, documented=True, version=3)
        assert {name for name, row in rows.items() if not row.documentation} <= {"our.own.plugin"}


def test_an_unknown_property_has_no_type_and_a_rate_is_a_long(world: Simulation) -> None:
    rows = described(world, ConfigResourceType.BROKER)
    assert (rows["our.own.plugin"].config_type, rows["our.own.plugin"].is_sensitive) == (0, True)
    assert rows[LEADER_RATE].config_type == ConfigType.LONG
