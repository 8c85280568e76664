"""Tables of the catalog, whose options do not arrive."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from pyspark_minikafka.catalog import refuse_new_table, refuse_without_options


def test_a_new_table_of_the_catalog_is_refused_with_what_to_use_instead() -> None:
    options = {"provider": "minikafka", "subscribe": "t", "option.subscribe": "t", "owner": "ann"}
    with pytest.raises(ConfigError, match=r"CREATE TEMPORARY VIEW .*shim_path\(\)"):
        refuse_new_table(options)


def test_a_view_is_no_table() -> None:
    refuse_new_table({"subscribe": "t"})


@pytest.mark.parametrize("options", [{}, {"checkpointLocation": "c", "path": "p"}])
def test_a_read_or_write_without_options_may_be_a_tables_and_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"options: none are set.*CREATE TEMPORARY VIEW"):
        refuse_without_options(options)


def test_one_option_is_enough() -> None:
    refuse_without_options({"topic": "t"})
