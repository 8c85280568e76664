from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.cli.config import EntityType
from minikafka.cli.config_entities import Owner
from minikafka.cli.options import Format


@pytest.mark.parametrize("choice", [Format.JSON, EntityType.TOPIC])
def test_parsed_choices_have_their_value_as_text(choice: Format | EntityType) -> None:
    # Typer 0.12 converts the result of a parser again, by its text.
    assert str(choice) == choice.value


def test_every_invalid_setting_of_a_client_is_named() -> None:
    changes = {"consumer_byte_rate": "fast", "foo": "1", "bar": None, "producer_byte_rate": "slow"}
    with pytest.raises(ConfigErrors) as refused:
        Owner("clients", "a").check_changes(changes)
    assert [fault.name for fault in refused.value.faults] == [
        "consumer_byte_rate",
        "foo",
        "producer_byte_rate",
    ]
