"""``base/config/config_def``: classes of settings, every fault named at once."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from minikafka.base.config.config_def import REQUIRED, AbstractConfig, definition_of, setting
from minikafka.base.config.types import BOOLEAN, PASSWORD, TEXT, int32
from minikafka.base.errors import ConfigError, ConfigErrors
from minikafka.base.secrets import Password


@dataclass(frozen=True, slots=True)
class Example(AbstractConfig):
    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "ssl.": "not yet",
        "ssl.keystore.type": "not yet",
        "client.rack": "there are no racks",
    }
    PASSED_ON: ClassVar[Collection[str]] = ("class.size",)

    connect: str = setting("zookeeper.connect", TEXT, REQUIRED, "The address.")
    least: int = setting("fetch.min", int32(0), 1, "The least.")
    most: int = setting(
        "fetch.max", int32(1), None, "The most.", alias="old.max", derive=lambda values: values["least"] * 2
    )
    commit: bool = setting("auto.commit.enable", BOOLEAN, True, "Whether to commit.")
    secret: Password | None = setting("login", PASSWORD, None, "A secret.")
    extra: str = field(default="x")

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        if self.least > self.most:
            allowed = f"must be at most fetch.max, which is {self.most}"
            yield "fetch.max", ConfigError("fetch.min", self.least, allowed)


NEEDED = {"zookeeper.connect": "h:1"}


def example(**given: object) -> Example:
    return Example.from_properties({**NEEDED, **{name.replace("_", "."): v for name, v in given.items()}})


def faults(properties: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigErrors) as refusal:
        Example.from_properties(properties)
    return [str(fault) for fault in refusal.value.faults]


def test_values_may_be_text_or_pythons_own() -> None:
    assert example(fetch_min=" 5 ", auto_commit_enable="FALSE") == example(
        fetch_min=5, auto_commit_enable=False
    )
    assert example(fetch_min=None, auto_commit_enable=None) == Example("h:1") == example()


def test_fields_are_parsed_like_properties() -> None:
    texts: dict[str, Any] = {"least": "5", "commit": "false"}
    assert Example("h:1", **texts) == example(fetch_min=5, auto_commit_enable=False)
    assert replace(example(fetch_min=5), least=6) == example(fetch_min=6, fetch_max=10)


def test_default_may_derive_from_another_setting() -> None:
    assert (example(fetch_min=5).most, example(fetch_min=5, fetch_max=7).most) == (10, 7)


def test_every_fault_is_in_one_error() -> None:
    found = faults({"fetch.min": "x", "fetch.max": "0", "auto.commit.enable": "yes"})
    assert found == [
        "zookeeper.connect: must be given: text",
        "fetch.min='x': must be a whole number from 0 to 2147483647",
        "fetch.max='0': must be a whole number from 1 to 2147483647",
        "auto.commit.enable='yes': must be true or false",
    ]


def test_settings_that_conflict_are_a_fault_of_one() -> None:
    assert faults({**NEEDED, "fetch.min": "5", "fetch.max": 4}) == [
        "fetch.min=5: must be at most fetch.max, which is 4"
    ]


def test_default_of_a_setting_at_fault_does_not_conflict() -> None:
    assert faults({**NEEDED, "fetch.min": "5", "fetch.max": "x"}) == [
        "fetch.max='x': must be a whole number from 1 to 2147483647"
    ]


def test_alias_sets_the_same_value_and_must_not_differ() -> None:
    assert example(old_max="7").most == 7
    assert example(old_max="7", fetch_max=7).most == 7
    assert faults({**NEEDED, "old.max": "7", "fetch.max": "8"}) == [
        "old.max='7': is an alias of fetch.max: must be equal to it, or unset"
    ]


def test_unknown_name_warns_with_the_nearest_known_or_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        example(auto_commit_enabel="true", zzz=1, external_x=1, class_size=5, empty=None)
        example(client_rack="a", ssl_keystore_tipe="PEM")
    assert caplog.messages == [
        "property auto.commit.enabel is not valid; did you mean auto.commit.enable?",
        "property zzz is not valid",
        "property client.rack has no effect: there are no racks",
        "property ssl.keystore.tipe has no effect: not yet; did you mean ssl.keystore.type?",
    ]


def test_faults_and_unknown_names_are_in_one_error_in_the_order_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"fetch.max": "0", "auto.commit.enabel": "tiger", **NEEDED, "ssl.x": "tiger", "fetch.min": "x"}
    assert faults(given) == [
        "fetch.max='0': must be a whole number from 1 to 2147483647",
        "auto.commit.enabel: is not valid; did you mean auto.commit.enable?",
        "ssl.x: has no effect: not yet",
        "fetch.min='x': must be a whole number from 0 to 2147483647",
    ]
    assert not caplog.messages


def test_missing_setting_comes_first_and_the_misspelt_name_after_it() -> None:
    assert faults({"zookeper.connect": "h:2181"}) == [
        "zookeeper.connect: must be given: text",
        "zookeper.connect: is not valid; did you mean zookeeper.connect?",
    ]


def test_properties_must_be_a_mapping() -> None:
    with pytest.raises(TypeError, match="expected a mapping of properties"):
        Example.from_properties("h:1")  # type: ignore[arg-type]


def test_what_is_no_mapping_is_not_shown_as_it_may_have_a_secret() -> None:
    with pytest.raises(TypeError, match=r"got list$"):
        Example.from_properties([("the.password", "hidden")])  # type: ignore[arg-type]


def test_text_of_settings_has_no_secret() -> None:
    made = example(login="tiger")
    assert made.secret == Password("tiger")
    assert "tiger" not in repr(made)


def test_each_setting_is_defined_once() -> None:
    key = definition_of(Example).keys["fetch.min"]
    assert (key.field, key.doc, key.default_text) == ("least", "The least.", "1")
    assert definition_of(Example).keys["zookeeper.connect"].default_text is None
    assert list(definition_of(Example).keys) == [
        "zookeeper.connect",
        "fetch.min",
        "fetch.max",
        "auto.commit.enable",
        "login",
    ]


def test_config_errors_survive_pickling() -> None:
    error = ConfigErrors([ConfigError("a", 1, "more"), ConfigError("b", 2, "less")])
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, ConfigErrors)
    assert str(again) == str(error) == "a=1: more; b=2: less"
