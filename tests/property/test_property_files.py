"""Property files: all values are read back as they were written."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from minikafka.base.config.property_files import parse_properties, properties_text

# Mostly what the format gives a meaning to.
TEXTS = st.text(st.one_of(st.sampled_from(" \t\f\n\r\\=:#!uxn"), st.characters(codec="utf-8")), max_size=12)


@given(st.dictionaries(TEXTS, TEXTS, max_size=4))
@example({"k": "x ", "next": "1"})
@example({"k": "\tx", "next": "1"})
@example({"k": "x\\ ", "next": "1"})
@example({"k": " ", "next": "1"})
@example({"#k": "1", " a=b": ":"})
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(properties_text(properties), "f") == properties
