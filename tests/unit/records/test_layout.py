"""The table of the fields of entries, and that nothing else in the product numbers them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import minikafka
from minikafka.records.format.batch import build_batch
from minikafka.records.format.record import Record
from minikafka.records.kernels import layout

PRODUCT = Path(minikafka.__file__).parent
READERS = ("records", "log", "partition", "clients", "server")
"""The packages that look into entries."""
LOOPS = ("batches", "compact", "entries", "keys", "read", "record", "write")
"""The kernels that do."""
OTHER_BYTES = ("cell", "hashed")
"""Functions of these kernels over other bytes: a bitmap of Arrow, and keys."""
FIELDS = {12, 14, 16, 17, 18, 21, 22, 23, 26, 27, 34, 35, 43, 49, 51, 52, 53, 57, 61}
"""Positions and sizes of fields, but for those that are ordinary numbers too."""
BITS = {7, 8, 16, 32, 48, 64}
"""Bits of the attributes."""


def literals(*nodes: ast.expr | None) -> set[int]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and type(node.value) is int}


def numbered(node: ast.AST) -> set[int]:
    """Return the numbers of fields that an expression adds, takes out of bytes, or names."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return literals(node.left, node.right) & FIELDS
    if isinstance(node, ast.Subscript):
        part = node.slice
        return literals(*((part.lower, part.upper) if isinstance(part, ast.Slice) else (part,))) & FIELDS
    if isinstance(node, ast.Assign):
        names = [name.id for name in node.targets if isinstance(name, ast.Name)]
        return literals(node.value) & FIELDS if any(name.endswith("_AT") for name in names) else set()
    return set()


def numbered_in_loop(node: ast.AST) -> set[int]:
    """Return the numbers of fields, bits and slots in an expression of a kernel."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return literals(node.left, node.right) & BITS
    if isinstance(node, ast.Compare):
        return literals(node.left, *node.comparators) & FIELDS
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return {number for number in literals(node.slice) if number >= 0}
    return numbered(node)


def bare_numbers(path: str, source: str) -> Iterator[str]:
    """Yield the place of every number that the table has a name for."""
    package, _, name = path.rpartition("/")
    tree = ast.parse(source)
    if not package.endswith("kernels"):
        places, find = list(ast.walk(tree)), numbered
    elif name.removesuffix(".py") in LOOPS:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        places = [node for one in functions if one.name not in OTHER_BYTES for node in ast.walk(one)]
        find = numbered_in_loop
    else:
        return
    for node in places:
        for number in sorted(find(node)):
            yield f"{path}:{getattr(node, 'lineno', 0)}: {number}"


def test_product_numbers_fields_only_in_the_table() -> None:
    paths = [path for package in READERS for path in sorted((PRODUCT / package).rglob("*.py"))]
    found = [place for path in paths for place in bare_numbers(str(path), path.read_text())]
    assert len(paths) > 100
    assert found == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("records/scan/scan.py", "return view[position + 22]"),
        ("records/scan/scan.py", "return data[8:12]"),
        ("clients/produce/batch.py", "_MAGIC_AT = 16"),
        ("records/kernels/read.py", "return data[position + 16]"),
        ("records/kernels/read.py", "return size < 14"),
        ("records/kernels/read.py", "return attributes & 7"),
        ("records/kernels/read.py", "result[0] = count"),
    ],
)
def test_bare_number_is_found(path: str, line: str) -> None:
    assert len(list(bare_numbers(path, f"def kernel():\n    {line}\n"))) == 1


def test_positions_are_those_of_kafka() -> None:
    assert [layout.MESSAGE_FIELDS.at(name) for name in layout.MESSAGE_FIELDS.codes] == [0, 8, 12, 16, 17, 18]
    positions = [layout.BATCH_FIELDS.at(name) for name in layout.BATCH_FIELDS.codes]
    assert positions == [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57]
    assert (layout.MIN_SIZE, layout.MIN_MESSAGE_BYTES, layout.MESSAGE_OVERHEAD_BYTES) == (14, 26, 34)
    assert (layout.MIN_BATCH_SIZE, layout.BATCH_HEADER_BYTES) == (49, 61)


def test_struct_reads_the_named_fields_and_skips_the_others() -> None:
    data = build_batch([Record(b"k", b"v", 5), Record(b"k", b"v", 7)], base_offset=3, producer_id=9)
    read = layout.BATCH_FIELDS.struct("base_offset", "last_offset_delta", "producer_id")
    assert read.unpack_from(data) == (3, 1, 9)
    assert read.size == layout.PRODUCER_EPOCH_AT
    assert layout.entry_size(data) == len(data)
