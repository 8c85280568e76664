"""``base.config.property_reader``: Kafka's properties as 0.10.1 reads them, every fault named at once."""

from __future__ import annotations

import logging
import pickle

import pytest

from minikafka.base.config.property_reader import PropertyReader
from minikafka.base.errors import ConfigError, ConfigErrors


def test_values_may_be_text_or_pythons_own() -> None:
    read = PropertyReader({"a": " 5 ", "b": 6, "c": "true", "d": False, "e": None, "f": "-1"})
    assert (read.integer("a", 1), read.integer("b", 1), read.integer("e", 7), read.integer("f", 1)) == (
        5,
        6,
        7,
        -1,
    )
    assert (read.boolean("c", False), read.boolean("d", True), read.boolean("e", True)) == (True, False, True)
    assert (read.text("a", ""), read.optional("e"), read.optional("nothing")) == ("5", None, None)
    read.finish()


def test_every_fault_is_in_one_error() -> None:
    read = PropertyReader({"a": "x", "b": "True", "c": "three", "d": "5"})
    assert read.integer("a", 3) == 3
    assert read.boolean("b", False) is False
    assert read.choice("c", "one", ("one", "two")) == "one"
    assert read.integer("d", 1, 0, 4) == 1
    assert read.required("e", "a name") is None
    with pytest.raises(ConfigErrors) as refusal:
        read.finish()
    assert [fault.name for fault in refusal.value.faults] == ["a", "b", "c", "d", "e"]
    assert str(refusal.value).split("; ")[1:3] == [
        "b='True': must be true or false",
        "c='three': must be one of one, two",
    ]
    assert isinstance(refusal.value, ConfigError)
    assert refusal.value.name == "a"


@pytest.mark.parametrize(
    "text", ["", "1.0", "1_0", "0x1", "2147483648", "-2147483649", "9" * 5000, "٣", "true"]
)
def test_a_whole_number_has_32_bits_and_digits_of_ascii(text: str) -> None:
    read = PropertyReader({"a": text})
    read.integer("a", 1)
    with pytest.raises(ConfigErrors, match="a whole number from -2147483648 to 2147483647"):
        read.finish()


def test_unknown_name_warns_and_suggests_the_nearest_known_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read = PropertyReader(
        {"auto.commit.enabel": "true", "zzz": 1, "external.x": 1, "auto.commit.enable": True}
    )
    read.boolean("auto.commit.enable", True)
    with caplog.at_level(logging.WARNING):
        read.finish()
    assert [record.getMessage() for record in caplog.records] == [
        "property auto.commit.enabel is not valid; did you mean auto.commit.enable?",
        "property zzz is not valid",
    ]


def test_missing_setting_names_a_similar_given_one() -> None:
    read = PropertyReader({"zookeper.connect": "h:2181", "group.id": None, "zzz": 1})
    read.required("zookeeper.connect", "HOST:PORT")
    read.required("group.id", "a name")
    with pytest.raises(ConfigErrors) as refusal:
        read.finish()
    assert str(refusal.value).split("; ") == [
        (
            "zookeeper.connect: must be given: HOST:PORT "
            "(found zookeper.connect, did you mean zookeeper.connect?)"
        ),
        "group.id: must be given: a name",
    ]


def test_unknown_names_are_reported_beside_the_faults(caplog: pytest.LogCaptureFixture) -> None:
    read = PropertyReader({"auto.commit.enabel": "true", "a": "x"})
    read.boolean("auto.commit.enable", True)
    read.integer("a", 1)
    with caplog.at_level(logging.WARNING), pytest.raises(ConfigErrors):
        read.finish()
    assert caplog.messages == ["property auto.commit.enabel is not valid; did you mean auto.commit.enable?"]


def test_config_errors_survive_pickling() -> None:
    error = ConfigErrors([ConfigError("a", 1, "more"), ConfigError("b", 2, "less")])
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ConfigErrors)
    assert str(again) == str(error) == "a=1: more; b=2: less"
