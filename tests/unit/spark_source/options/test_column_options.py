"""Options of the columns of a read."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from pyspark_minikafka.options.options import Mode, SourceOptions, sink_options, source_options
from pyspark_minikafka.schema import SCHEMA_WITH_HEADERS, SOURCE_SCHEMA


def source(mode: Mode = Mode.BATCH, **given: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return source_options({"subscribe": "t", **named}, mode)


def test_by_default_a_read_has_all_columns_and_headers_if_asked_for() -> None:
    assert source().columns == tuple(SOURCE_SCHEMA.names)
    assert source(includeHeaders="true").columns == tuple(SCHEMA_WITH_HEADERS.names)


@pytest.mark.parametrize("mode", Mode)
def test_columns_are_selected_in_their_order(mode: Mode) -> None:
    assert source(mode, minikafka__columns="value, offset").columns == ("value", "offset")


def test_headers_are_selected_by_their_name() -> None:
    options = source(minikafka__columns="headers,value")
    assert (options.columns, options.warnings) == (("headers", "value"), ())
    assert source(minikafka__columns="headers", includeHeaders="true").warnings == ()


@pytest.mark.parametrize(
    ("columns", "headers", "verb"), [("value", "true", "does not name"), ("headers", "false", "names")]
)
def test_a_warning_says_when_the_two_options_disagree(columns: str, headers: str, verb: str) -> None:
    options = source(minikafka__columns=columns, includeHeaders=headers)
    assert options.columns == (columns,)
    assert options.warnings == (f"includeHeaders has no effect: minikafka.columns {verb} headers",)


def test_columns_of_a_format_are_selected_like_others() -> None:
    given = {"minikafka__value__format": "string", "minikafka__bad__values": "permissive"}
    assert source(**given).columns[-1] == "value_error"
    assert source(**given, minikafka__columns="value_error,offset").columns == ("value_error", "offset")


def test_a_wrong_selection_is_named_beside_other_faults() -> None:
    with pytest.raises(ConfigError) as refused:
        source(minikafka__columns="ofset", includeHeaders="perhaps", minPartitions="x")
    faults = [str(fault) for fault in refused.value.faults]
    assert [fault.partition("=")[0] for fault in faults] == ["includeHeaders", "minPartitions"]
    with pytest.raises(ConfigError, match=r"minikafka\.columns='ofset': .*did you mean offset\?"):
        source(minikafka__columns="ofset")


def test_a_column_of_errors_says_which_options_make_it() -> None:
    with pytest.raises(
        ConfigError, match=r"value_error is there only with .*bad\.values=permissive"
    ) as refused:
        source(minikafka__columns="value,VALUE_ERROR")
    assert "did you mean" not in str(refused.value)


def test_a_sink_ignores_the_columns_of_reads() -> None:
    # A table in the catalog passes the same options to reads and writes.
    assert sink_options({"topic": "t", "minikafka.columns": "value"}).warnings == ()
