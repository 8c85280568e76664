"""Compiles a writer's and a reader's schema to the program that reads the writer's values into the reader's
columns, by the rules of Avro's schema resolution.

All that the two schemas decide is decided here: which fields are skipped, in which column each value goes,
which number becomes which, and where a default is taken. A default is Avro binary among the constants of the
program, which is read as any value is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from minikafka.records.arrow.nested_columns import Column, ColumnNumbers, TooManyColumns
from minikafka.records.avro.columns import arrow_type, merged_number
from minikafka.records.avro.types import (
    NULL,
    Array,
    AvroError,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    least_bytes,
    without_null,
)
from minikafka.records.kernels import avro_ops as op
from minikafka.records.kernels.arrays import as_int64

_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
_BITS = {"int": 32}
_MILLIS = ("timestamp-millis", "local-timestamp-millis")
_SIZES = {"boolean": 1, "float": 4, "double": 8}
_OPS_MAX = 1_000_000


class UnresolvedSchema(AvroError):
    """A reader's schema to which values of the writer's schema cannot be resolved."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program that reads values, with its columns.

    ops, table, constants   see ``kernels.avro_ops``
    null_program            the number of the instruction that begins the program of a null row
    root                    the column that it fills
    counters                the number of counters
    depth                   the most levels of arrays and defaults
    paths                   of each instruction, the field that it is about
    """

    ops: NDArray[np.int64]
    table: NDArray[np.int64]
    constants: bytes
    null_program: int
    root: Column
    counters: int
    depth: int
    paths: tuple[str, ...]


@dataclass(slots=True)
class Assembler:
    """The instructions of a program that is being compiled."""

    ops: list[list[int]] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    constants: bytearray = field(default_factory=bytearray)
    paths: list[str] = field(default_factory=list)
    path: str = ""
    depth: int = 0
    deepest: int = 0

    @property
    def here(self) -> int:
        """The number of the next instruction."""
        return len(self.ops)

    def emit(self, code: int, column: Column | None = None, a: int = 0, b: int = 0, c: int = 0) -> int:
        """Add an instruction. Return its number."""
        if self.here >= _OPS_MAX:
            raise AvroError(f"the schema needs more than {_OPS_MAX} instructions")
        place, domain, counter = (
            (0, 0, -1) if column is None else (column.place, column.domain, column.counter)
        )
        self.ops.append([code, place, domain, counter, a, b, c, 0])
        self.paths.append(self.path)
        return self.here - 1

    def set_a(self, number: int) -> None:
        """Let ``A`` of an instruction be the number of the next one."""
        self.ops[number][op.A] = self.here

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Add a name to the path, for the time of the block."""
        outer = self.path
        self.path = f"{outer}.{name}" if outer else name
        yield
        self.path = outer

    def constant(self, data: bytes) -> int:
        """Add constants. Return their position."""
        self.constants += data
        return len(self.constants) - len(data)

    def enter(self) -> None:
        """Enter a level of the stack."""
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)

    def leave(self) -> None:
        """Leave a level of the stack."""
        self.depth -= 1

    def attempt(self, compile_one: Callable[[], None]) -> UnresolvedSchema | None:
        """Compile; if the schemas do not resolve, take back what was added and return the error."""
        before = (len(self.ops), len(self.table), len(self.constants), self.path, self.depth)
        try:
            compile_one()
        except UnresolvedSchema as problem:
            ops, table, constants, self.path, self.depth = before
            del self.ops[ops:], self.paths[ops:], self.table[table:], self.constants[constants:]
            return problem
        return None


def compile_reader(writer: Type, reader: Type) -> Program:
    """Return the program. Raise UnresolvedSchema, which names the field and both types."""
    numbers = ColumnNumbers()
    try:
        root = numbers.column(arrow_type(reader), True)
    except TooManyColumns as problem:
        raise AvroError(str(problem)) from None
    code = Assembler()
    resolution = _Resolution(code)
    resolution.read(writer, reader, root)
    code.emit(op.END)
    null_program = code.here
    resolution.null(root)
    code.emit(op.END)
    return Program(
        ops=np.array(code.ops, dtype=np.int64).reshape(-1),
        table=np.array(code.table, dtype=np.int64),
        constants=bytes(code.constants),
        null_program=null_program,
        root=root,
        counters=numbers.counters,
        depth=code.deepest,
        paths=tuple(code.paths),
    )


class _Resolution:
    """Compiles types, each pair to the instructions that read one value of it."""

    def __init__(self, code: Assembler) -> None:
        self._code = code

    def read(self, writer: Type, reader: Type, column: Column) -> None:
        """Compile the reading of a value into a column."""
        if isinstance(writer, Union):
            self._from_union(writer, reader, column)
        elif isinstance(reader, Union):
            self._to_union(writer, reader, column)
        elif isinstance(writer, Record) and isinstance(reader, Record):
            self._record(writer, reader, column)
        elif isinstance(writer, Enum) and isinstance(reader, Enum):
            self._enum(writer, reader, column)
        elif isinstance(writer, Array) and isinstance(reader, Array):
            self._array(column, least_bytes(writer.items), [(writer.items, reader.items)])
        elif isinstance(writer, Map) and isinstance(reader, Map):
            key = Primitive("string")
            self._array(column, 1 + least_bytes(writer.values), [(key, key), (writer.values, reader.values)])
        elif isinstance(writer, Fixed) and isinstance(reader, Fixed):
            self._fixed(writer, reader, column)
        elif isinstance(writer, Primitive) and isinstance(reader, Primitive):
            self._primitive(writer, reader, column)
        else:
            raise self._unresolved(writer, reader)

    def null(self, column: Column) -> None:
        """Compile the writing of a null."""
        if column.has_ends:
            self._code.emit(op.NULL_ENDS, column)
            return
        if column.nullable or column.width:
            self._code.emit(op.NULL, column, column.width)
        for child in column.children:
            self.null(child)

    def skip(self, writer: Type) -> None:
        """Compile the skipping of a value."""
        code = self._code
        if isinstance(writer, Union):
            self._branches([partial(self.skip, branch) for branch in writer.branches])
        elif isinstance(writer, Record):
            for record_field in writer.fields:
                self.skip(record_field.type)
        elif isinstance(writer, Fixed):
            code.emit(op.SKIP_FIXED, a=writer.size)
        elif isinstance(writer, Array):
            self._items(None, least_bytes(writer.items), lambda: self.skip(writer.items))
        elif isinstance(writer, Map):
            self._items(None, 1 + least_bytes(writer.values), lambda: self._skip_entry(writer))
        elif isinstance(writer, Enum):
            code.emit(op.SKIP_NUMBER, b=32)
        elif writer.name in ("bytes", "string"):
            code.emit(op.SKIP_BYTES, b=64)
        elif writer.name in ("int", "long"):
            code.emit(op.SKIP_NUMBER, b=_BITS.get(writer.name, 64))
        elif writer != NULL:
            code.emit(op.SKIP_FIXED, a=_SIZES[writer.name])

    def _skip_entry(self, writer: Map) -> None:
        self._code.emit(op.SKIP_BYTES, b=64)
        self.skip(writer.values)

    def _unresolved(self, writer: object, reader: object, why: str = "") -> UnresolvedSchema:
        return UnresolvedSchema(
            f"{self._code.path or 'the value'}: the writer's type {writer} cannot be read as the reader's "
            f"type {reader}{why}"
        )

    # Unions.

    def _from_union(self, writer: Union, reader: Type, column: Column) -> None:
        code = self._code
        problems = []

        def read(branch: Type) -> None:
            problem = code.attempt(partial(self.read, branch, reader, column))
            if problem is not None:
                problems.append(problem)
                code.emit(op.UNRESOLVABLE)

        self._branches([partial(read, branch) for branch in writer.branches])
        if problems and len(problems) == len(writer.branches):
            raise problems[0] if len(problems) == 1 else self._unresolved(writer, reader)

    def _branches(self, branches: list[Callable[[], None]]) -> None:
        """Compile the reading of a branch's number, and what each branch does."""
        code = self._code
        table = len(code.table)
        code.table += [0] * len(branches)
        code.emit(op.BRANCH, a=len(branches), b=32, c=table)
        jumps = []
        for i, compile_branch in enumerate(branches):
            code.table[table + i] = code.here
            compile_branch()
            jumps.append(code.emit(op.JUMP))
        for jump in jumps:
            code.set_a(jump)

    def _to_union(self, writer: Type, reader: Union, column: Column) -> None:
        """Compile the reading into the first branch of the same type, else the first that can be read."""
        problems = []
        for branch in sorted(reader.branches, key=lambda branch: _difference(writer, branch)):
            number = reader.branches.index(branch)
            problem = self._code.attempt(partial(self._to_branch, writer, reader, number, column))
            if problem is None:
                return
            problems.append((_difference(writer, branch), problem))
        # A difference inside a record of this name says more than that no branch is right.
        if problems and problems[0][0] == 0:
            raise problems[0][1]
        raise self._unresolved(writer, reader)

    def _to_branch(self, writer: Type, reader: Union, branch: int, column: Column) -> None:
        """Compile the reading of a value into the column of a union."""
        kind = reader.branches[branch]
        if kind == NULL:
            if writer != NULL:
                raise self._unresolved(writer, kind)
            self.null(column)
            return
        others = without_null(reader)
        if len(others) == 1 or merged_number(others) is not None:
            self.read(writer, kind, column)
            return
        self._code.emit(op.VALID, column)
        member = sum(other != NULL for other in reader.branches[:branch])
        for i, child in enumerate(column.children):
            if i == member:
                self.read(writer, kind, child)
            else:
                self.null(child)

    # Named types, arrays and maps.

    def _record(self, writer: Record, reader: Record, column: Column) -> None:
        code = self._code
        if column.nullable:
            code.emit(op.VALID, column)
        by_name = {reader_field.name: i for i, reader_field in enumerate(reader.fields)}
        for i, reader_field in enumerate(reader.fields):
            for alias in reader_field.aliases:
                by_name.setdefault(alias, i)
        missing = set(range(len(reader.fields)))
        for writer_field in writer.fields:
            i = by_name.get(writer_field.name, -1)
            with code.within(writer_field.name):
                if i in missing:
                    missing.remove(i)
                    self.read(writer_field.type, reader.fields[i].type, column.children[i])
                else:
                    self.skip(writer_field.type)
        for i in sorted(missing):
            with code.within(reader.fields[i].name):
                self._default(writer, reader.fields[i], column.children[i])

    def _default(self, writer: Record, reader: Field, column: Column) -> None:
        code = self._code
        if reader.default is None:
            raise self._unresolved(f"of {writer} (no such field)", reader.type, ", which has no default")
        start = code.constant(reader.default)
        code.enter()
        code.emit(op.DEFAULT, a=start, b=start + len(reader.default))
        self.read(reader.type, reader.type, column)
        code.emit(op.DEFAULT_END)
        code.leave()

    def _enum(self, writer: Enum, reader: Enum, column: Column) -> None:
        if not _same_name(writer, reader):
            raise self._unresolved(writer, reader)
        code = self._code
        symbols = []
        for symbol in writer.symbols:
            taken = symbol if symbol in reader.symbols else reader.default
            data = b"" if taken is None else taken.encode()
            symbols += [code.constant(data), -1 if taken is None else len(data)]
        code.emit(op.ENUM, column, len(writer.symbols), 32, len(code.table))
        code.table += symbols

    def _fixed(self, writer: Fixed, reader: Fixed, column: Column) -> None:
        if not _same_name(writer, reader) or writer.size != reader.size:
            raise self._unresolved(writer, reader)
        if pa.types.is_decimal(column.type):
            limit = self._decimal_limit(writer, reader)
            self._code.emit(op.FIXED_TO_DECIMAL, column, writer.size, 0, limit)
        else:
            self._code.emit(op.TO_FIXED, column, writer.size)

    def _array(self, column: Column, least: int, pairs: list[tuple[Type, Type]]) -> None:
        names = ("element",) if len(pairs) == 1 else ("key", "value")

        def read_item() -> None:
            for name, (writer, reader), child in zip(names, pairs, column.children, strict=True):
                with self._code.within(name):
                    self.read(writer, reader, child)

        self._items(column, least, read_item)

    def _items(self, column: Column | None, least: int, compile_item: Callable[[], None]) -> None:
        code = self._code
        code.enter()
        array = code.emit(op.ARRAY)
        first = code.here
        compile_item()
        code.set_a(array)
        code.emit(op.ITEM, column, least, first)
        code.leave()

    # Primitive types.

    def _primitive(self, writer: Primitive, reader: Primitive, column: Column) -> None:
        if reader.name not in _PROMOTIONS.get(writer.name, (writer.name,)):
            raise self._unresolved(writer, reader)
        code = self._code
        if writer.name in ("int", "long"):
            self._number(writer, reader, column)
        elif writer.name == "float":
            code.emit(op.COPY_4 if pa.types.is_float32(column.type) else op.FLOAT_TO_DOUBLE, column, 4)
        elif writer.name == "double":
            code.emit(op.COPY_8, column, 8)
        elif writer.name == "boolean":
            code.emit(op.TO_BOOLEAN, column, 1)
        elif pa.types.is_decimal(column.type):
            code.emit(op.TO_DECIMAL, column, b=64, c=self._decimal_limit(writer, reader))
        elif writer != NULL:
            code.emit(op.TO_STRING if reader.name == "string" else op.TO_BYTES, column, b=64)

    def _number(self, writer: Primitive, reader: Primitive, column: Column) -> None:
        bits = _BITS.get(writer.name, 64)
        kind = column.type
        if pa.types.is_floating(kind):
            self._code.emit(op.TO_F32 if pa.types.is_float32(kind) else op.TO_F64, column, b=bits)
        elif column.width == 4:
            self._code.emit(op.TO_I32, column, b=bits)
        else:
            # A value has the unit of those who wrote it, if they named one.
            logical = reader.logical if writer.logical is None else writer.logical
            millis = pa.types.is_timestamp(kind) and logical in _MILLIS
            self._code.emit(op.TO_I64, column, 1000 if millis else 1, bits)

    def _decimal_limit(self, writer: Primitive | Fixed, reader: Primitive | Fixed) -> int:
        """Add the first number with too many digits to the table. Return its place."""
        decimal = reader.logical
        assert isinstance(decimal, Decimal)
        if isinstance(writer.logical, Decimal) and writer.logical.scale != decimal.scale:
            raise self._unresolved(writer, reader, ": their scales differ")
        limit = 10**decimal.precision
        self._code.table += [limit >> 64, as_int64(limit)]
        return len(self._code.table) - 2


def _same_name(writer: Enum | Fixed | Record, reader: Enum | Fixed | Record) -> bool:
    """Compare names without their namespaces, as the specification does; aliases are the reader's."""
    names = {name.rpartition(".")[2] for name in (reader.name, *reader.aliases)}
    return writer.name.rpartition(".")[2] in names


def _difference(writer: Type, reader: Type) -> int:
    """Return 0 if the types are equal by their names, 1 if they are of one kind, 2 if not."""
    if isinstance(writer, (Enum, Fixed, Record)) and isinstance(reader, (Enum, Fixed, Record)):
        return 2 if type(writer) is not type(reader) else int(not _same_name(writer, reader))
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return 0 if writer.name == reader.name else 2
    return 0 if type(writer) is type(reader) else 2
