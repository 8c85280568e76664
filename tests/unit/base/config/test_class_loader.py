"""``base/config/class_loader``: settings that name a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minikafka.base.config.class_loader import create_instance, import_name, plugin
from minikafka.base.errors import ConfigError


class Plain:
    def work(self) -> None:
        pass


class Configured(Plain):
    def __init__(self, properties: Mapping[str, Any] | None = None) -> None:
        self.properties = properties


class KeywordsOnly(Plain):
    def __init__(self, *, size: int = 1) -> None:
        self.size = size


def found(value: object) -> Any:
    return plugin({"kafka.Plain": Plain}, "work").parse("some.class", value)


def test_setting_may_be_a_class_an_object_or_a_name() -> None:
    one = Configured()
    assert found(Configured) is Configured
    assert found(one) is one
    assert found(" kafka.Plain ") is Plain
    assert found(f"{__name__}.Configured") is Configured


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("Plain", "'Plain' is not a dotted name"),
        ("", "'' is not a dotted name"),
        ("no.such.Class", "must be a class, an object, or a dotted name of one: No module named 'no'"),
        ("minikafka.base.config.class_loader.nothing", "no attribute 'nothing'"),
        ("kafka.serializer.Other", "Kafka's class kafka.serializer.Other has no counterpart in minikafka"),
        (5, "some.class=5: must be a class or an object with work: it has no work"),
        (str, "it has no work"),
    ],
)
def test_setting_that_names_no_class_is_a_fault(value: object, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        found(value)


def test_an_instance_gets_the_properties_if_it_takes_an_argument() -> None:
    assert create_instance(Configured, {"a": 1}).properties == {"a": 1}
    assert type(create_instance(Plain, {"a": 1})) is Plain
    assert create_instance(KeywordsOnly, {"a": 1}).size == 1
    one = Configured()
    assert create_instance(one, {"a": 1}) is one
    assert one.properties is None


def test_names_are_looked_up_in_modules() -> None:
    assert import_name("collections.abc.Mapping") is Mapping
