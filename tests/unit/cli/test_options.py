from __future__ import annotations

import pytest

from minikafka.cli.config import EntityType
from minikafka.cli.options import Format


@pytest.mark.parametrize("choice", [Format.JSON, EntityType.TOPIC])
def test_parsed_choices_have_their_value_as_text(choice: Format | EntityType) -> None:
    # Typer 0.12 converts the result of a parser again, by its text.
    assert str(choice) == choice.value
