"""Random Avro schemas, values and evolutions, for comparisons with fastavro."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (local timestamps have no zone)
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
)
TEXTS = ("", "a", "plain text", "é€😀", "x" * 70)
SYMBOLS = ("RED", "GREEN", "BLUE")


class AvroCases:
    """Makes cases from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"T{self._names}"

    def schema(self, depth: int = 3) -> Any:
        """A schema, as JSON."""
        kind = self.random.randrange(12 if depth else 6)
        if kind < 4:
            return self.random.choice(PRIMITIVES)
        if kind == 4:
            return dict(self.random.choice(LOGICAL))
        if kind == 5:
            return self._named()
        if kind == 6:
            return {"type": "array", "items": self.schema(depth - 1)}
        if kind == 7:
            return {"type": "map", "values": self.schema(depth - 1)}
        if kind < 10:
            return self.record(depth - 1)
        return self._union(depth - 1)

    def _named(self) -> Any:
        if self.random.random() < 0.5:
            return {"type": "enum", "name": self._name(), "symbols": list(SYMBOLS)}
        size = self.random.choice((1, 9))
        decimals = {"logicalType": "decimal", "precision": 18, "scale": 2} if size == 9 else {}
        return {"type": "fixed", "name": self._name(), "size": size, **decimals}

    def record(self, depth: int = 3) -> Any:
        """A record."""
        fields = [{"name": f"f{i}", "type": self.schema(depth)} for i in range(self.random.randrange(0, 5))]
        return {"type": "record", "name": self._name(), "fields": fields}

    def _union(self, depth: int) -> Any:
        """A union that fastavro tells apart: null, and types without a common Python type."""
        some = [
            self.random.choice(("int", "long", "boolean")),
            self.random.choice(("string", "bytes")),  # fastavro resolves either to what comes first
            {"type": "array", "items": self.schema(0)},
            self.record(0),
        ]
        branches = self.random.sample(some, self.random.choice((1, 1, 2, 3)))
        if self.random.random() < 0.7:
            branches.insert(self.random.choice((0, len(branches))), "null")
        return branches

    def value(self, schema: Any) -> Any:
        """A value of ``schema``, as fastavro takes it."""
        if isinstance(schema, list):
            return self.value(self.random.choice(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(schema, dict) and "logicalType" in schema:
            return self._logical(schema)
        if kind == "record":
            return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in range(self.random.choice((0, 1, 1, 3)))]
        if kind == "map":
            return {f"k{i}": self.value(schema["values"]) for i in range(self.random.choice((0, 1, 2)))}
        if kind == "enum":
            return self.random.choice(schema["symbols"])
        if kind == "fixed":
            return self.random.randbytes(schema["size"])
        return self._primitive(kind)

    def _primitive(self, kind: str) -> Any:
        if kind == "boolean":
            return self.random.random() < 0.5
        if kind in ("int", "long"):
            bits = self.random.randrange(1, 32 if kind == "int" else 64)
            return self.random.randrange(-(1 << bits), 1 << bits)
        if kind in ("float", "double"):
            return self.random.choice((0.0, -1.5, 2.0**40, float("inf")))
        if kind == "bytes":
            return self.random.randbytes(self.random.choice((0, 1, 20)))
        return self.random.choice(TEXTS) if kind == "string" else None

    def _logical(self, schema: Any) -> Any:
        logical = schema["logicalType"]
        if logical == "decimal":
            digits = self.random.randrange(1, schema["precision"] + 1)
            number = self.random.randrange(-(10**digits) + 1, 10**digits)
            return decimal.Decimal(number).scaleb(-schema["scale"], decimal.Context(prec=40))
        if logical == "date":
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=self.random.randrange(-9999, 99999))
        ms = self.random.randrange(-(10**12), 10**13)
        moment = EPOCH + datetime.timedelta(milliseconds=ms)
        return moment if logical.startswith("local-") else moment.replace(tzinfo=UTC)

    def evolved(self, schema: Any) -> Any:
        """A reader's schema for values of ``schema``: with fields left out, added, moved and widened."""
        if isinstance(schema, list):
            return [self.evolved(branch) for branch in schema]
        if schema in ("int", "long", "float") and self.random.random() < 0.4:
            wider = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
            return self.random.choice(wider[schema])
        if not isinstance(schema, dict):
            return schema
        if schema["type"] == "array":
            return {**schema, "items": self.evolved(schema["items"])}
        if schema["type"] == "map":
            return {**schema, "values": self.evolved(schema["values"])}
        if schema["type"] != "record":
            return schema
        fields = [
            {**one, "type": self.evolved(one["type"])}
            for one in schema["fields"]
            if self.random.random() < 0.8
        ]
        if self.random.random() < 0.5:
            fields.append(self._added())
        self.random.shuffle(fields)
        return {**schema, "fields": fields}

    def _added(self) -> Any:
        return self.random.choice(
            (
                {"name": "added", "type": "string", "default": "new"},
                {"name": "added", "type": ["null", "long"], "default": None},
                {"name": "added", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
                {"name": "added", "type": {"type": "map", "values": "double"}, "default": {"a": 1.5}},
            )
        )

    def damaged(self, data: bytes) -> bytes:
        """``data`` with a few changes."""
        out = bytearray(data)
        for _ in range(self.random.randrange(1, 4)):
            at = self.random.randrange(len(out) + 1)
            kind = self.random.randrange(4)
            if kind == 0 and at < len(out):
                out[at] = self.random.choice((0, 1, 2, 127, 128, 255, out[at] ^ 64))
            elif kind == 1:
                del out[at : at + self.random.randrange(1, 5)]
            elif kind == 2:
                out[at:at] = self.random.choice((b"\xff" * 9 + b"\x01", b"\x01", self.random.randbytes(3)))
            else:
                del out[at:]
        return bytes(out)
