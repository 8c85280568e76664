"""``base/config/property_files``: property files as Java reads and writes them, and KEY=VALUE arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.config.property_files import (
    key_values,
    parse_properties,
    properties_text,
    read_properties,
    write_properties,
)
from minikafka.base.errors import ConfigError


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = "# a comment\n! another\n\nbroker.id=3\nlog.dirs : one,\\\n    two\nempty=\n"
    assert parse_properties(text, "f") == {"broker.id": "3", "log.dirs": "one,two", "empty": ""}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (r"k=C:\\logs", "C:\\logs"),
        (r"k=ends with one\\", "ends with one\\"),
        (r"k=a\=b\:c\#d", "a=b:c#d"),
        (r"k=\u00e9\n\t.", "\u00e9\n\t."),
        (r"k=\ leading", " leading"),
        ("k=a\u2028b\x85c", "a\u2028b\x85c"),
        ("k=one\\\r\n   two", "onetwo"),
        ("k=b\\ ", "b "),
        ("k=b\\ \t", "b "),
        (r"k=b\\ ", "b\\"),
        (" \tk \t= \\\tb\t ", "\tb"),
        ("k=a\\\n\\ b ", "a b"),
    ],
)
def test_escapes_are_those_of_java(line: str, value: str) -> None:
    assert parse_properties(f"{line}\nnext=1\n", "f") == {"k": value, "next": "1"}


def test_an_escaped_separator_is_part_of_the_key() -> None:
    assert parse_properties(r"a\:b=c:d", "f") == {"a:b": "c:d"}


def test_a_line_that_is_no_property_is_named_by_its_number() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties("broker.id=1\nnonsense\n", "server.properties")


def test_a_line_that_is_no_property_is_named_by_its_number_alone() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_properties("sasl.jaas.config=a\ntiger\n", "server.properties")
    assert "tiger" not in str(refused.value)
    assert "server.properties='line 2'" in str(refused.value)


def test_written_properties_are_read_back_as_they_were() -> None:
    properties = {
        "log.dirs": "/a b/c=d",
        "zookeeper.connect": "h:1/chroot",
        "x": "",
        "metrics": "back\\slash\\n and ends with one\\",
        "lines": " first\nsecond\r\u2028third",
        "no.continuation": "\\\\",
    }
    assert parse_properties(properties_text(properties), "f") == properties


def test_properties_are_written_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.properties"
    path.write_text("from before")
    path.chmod(0o644)
    write_properties(str(path), {"ssl.key.password": "tiger"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "ssl.key.password=tiger\n"


def test_file_that_cannot_be_read_is_refused_under_its_argument(tmp_path: Path) -> None:
    latin = tmp_path / "latin.properties"
    latin.write_bytes(b"a=\xe9")
    with pytest.raises(ConfigError, match=r"FILE=.*latin\.properties'.*byte 2, 0xe9, is not UTF-8"):
        read_properties(str(latin), "FILE")
    with pytest.raises(ConfigError, match=r"FILE=.*cannot be read: No such file"):
        read_properties(str(tmp_path / "none"), "FILE")


def test_pairs_are_split_at_the_first_equals_sign_and_the_later_one_wins() -> None:
    assert key_values("--set", ["a=1", "b = x=y ", "a=2"]) == {"a": "2", "b": "x=y"}


def test_nothing_given_is_nothing() -> None:
    assert key_values("--set", None) == {}


@pytest.mark.parametrize("text", ["novalue", "=1", " =1"])
def test_a_pair_without_a_key_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be KEY=VALUE"):
        key_values("--config", [text])
