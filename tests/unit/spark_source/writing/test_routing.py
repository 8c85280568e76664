"""Rows to partitions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from minikafka.records.columns import group_rows
from pyspark_minikafka.schema import BadColumn
from pyspark_minikafka.writing.routing import RoundRobin, fill_unassigned, override


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_rows_without_a_key_are_given_out_evenly() -> None:
    round_robin = RoundRobin(0)
    given = np.concatenate([round_robin.take(7, range(3)) for _ in range(3)])
    assert np.bincount(given).tolist() == [7, 7, 7]


def test_single_rows_go_round() -> None:
    round_robin = RoundRobin(5)
    assert [int(round_robin.take(1, range(3))[0]) for _ in range(4)] == [2, 0, 1, 2]


def test_blocks_differ_by_one_row_and_the_next_ones_go_on_where_they_end() -> None:
    round_robin = RoundRobin(1)
    assert round_robin.blocks(5, range(3)) == [(1, 2), (2, 2), (0, 1)]
    assert round_robin.blocks(2, range(3)) == [(0, 1), (1, 1)]
    assert round_robin.blocks(3, range(3)) == [(2, 1), (0, 1), (1, 1)]


def test_only_partitions_with_a_leader_are_given() -> None:
    assert set(RoundRobin(0).take(10, [1, 3]).tolist()) == {1, 3}


def test_only_undecided_rows_take_a_turn() -> None:
    filled = fill_unassigned(ids(2, -1, 0, -1), RoundRobin(0), range(2))
    assert filled.tolist() == [2, 0, 0, 1]


def test_a_named_partition_wins_and_a_null_leaves_the_choice() -> None:
    column = pa.array([1, None, 0], type=pa.int32())
    assert override(ids(5, -1, 5), column, 3, "t").tolist() == [1, -1, 0]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partition_that_the_topic_does_not_have_is_named(wrong: int) -> None:
    with pytest.raises(BadColumn, match=f"holds {wrong}, but topic t has only 0 to 2"):
        override(ids(0, 0), pa.array([0, wrong], type=pa.int32()), 3, "t")


def test_rows_of_a_partition_keep_their_order() -> None:
    found = [(partition, rows.tolist()) for partition, rows in group_rows(ids(2, 0, 2, 1, 0, 2))]
    assert found == [(0, [1, 4]), (1, [3]), (2, [0, 2, 5])]


def test_rows_of_a_large_batch_keep_their_order_too() -> None:
    many = np.random.default_rng(7).integers(0, 5, 20_000).astype(np.int32)
    found = dict(group_rows(many))
    assert sum(map(len, found.values())) == len(many)
    assert all((np.diff(rows) > 0).all() and (many[rows] == p).all() for p, rows in found.items())


def test_ids_beyond_16_bits_are_told_apart() -> None:
    found = [(partition, rows.tolist()) for partition, rows in group_rows(ids(65_537, 1, 65_536, 0, 65_537))]
    assert found == [(0, [3]), (1, [1]), (65_536, [2]), (65_537, [0, 4])]


def test_no_rows_make_no_groups() -> None:
    assert list(group_rows(ids())) == []
