"""The JSON object in a znode: read with errors that name the znode, written as Kafka writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from minikafka.base.errors import CoordinationError
from minikafka.base.ids import TopicPartition
from minikafka.base.secrets import redact_text

_NUMBER = re.compile(r"-?[0-9]{1,19}")


def dump(fields: Mapping[str, object]) -> bytes:
    """Return the data for a znode."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def number_in(text: str | bytes) -> int | None:
    """Return the number of up to 64 bits that the whole text is; None if it is not one.

    ``str.isdigit`` accepts more characters than ``int`` reads.
    """
    text = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return int(text) if _NUMBER.fullmatch(text) else None


def id_in(text: str | bytes) -> int | None:
    """Return the number that the text is if it is a non-negative int32 (id, epoch, partition), else None."""
    number = number_in(text)
    return number if _is_int32(number) and number >= 0 else None


def _shown(data: bytes) -> str:
    """Return the beginning of a znode's data for a message.

    Secrets are redacted: znodes also hold settings. That comes before ``repr``, which doubles backslashes.
    """
    return repr(redact_text(data.decode("latin-1")).encode("latin-1"))[:200]


class InvalidNode(CoordinationError):
    """The data of a znode is invalid. ``problem`` is the reason without the path and the data."""

    def __init__(self, path: str, problem: str, data: bytes | None = None) -> None:
        shown = "" if data is None else f": {_shown(data)}"
        super().__init__(f"{path}: {problem}{shown}")
        self.problem = problem


def invalid(path: str, problem: str, data: bytes) -> InvalidNode:
    """Return the error for a znode whose ``data`` is invalid."""
    return InvalidNode(path, problem, data)


_REQUIRED = object()


class Node:
    """The JSON object in a znode; every error names the znode."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._path = path
        try:
            fields = json.loads(data)
            if rb"\ud" in data.lower() or b"\xed" in data:
                dump(fields)  # refuses half of a surrogate pair: it cannot be written, nor be part of a path
        except (ValueError, RecursionError) as error:
            raise invalid(path, f"invalid JSON ({error})", data) from None
        if not isinstance(fields, dict):
            raise invalid(path, "expected a JSON object", data)
        self._fields: dict[str, Any] = fields

    def error(self, key: str, expected: str) -> CoordinationError:
        """Return the error for the field ``key``, which is not as ``expected``."""
        return invalid(self._path, f"'{key}' must be {expected}", self._data)

    def value(self, key: str) -> Any:
        return self._fields.get(key)

    def integer(self, key: str, default: object = _REQUIRED) -> int:
        value = self._fields.get(key, default)
        if not _is_int32(value):
            raise self.error(key, "a 32-bit integer")
        return value

    def number_as_text(self, key: str, default: object = _REQUIRED) -> int:
        value = self._fields.get(key, default)
        number = number_in(value) if isinstance(value, str) else value
        if type(number) is not int:
            raise self.error(key, "an integer in a string")
        return number

    def text(self, key: str) -> str:
        value = self._fields.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(key, "a non-empty string")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self._fields.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._fields.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "a list of strings")
        return tuple(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._fields.get(key)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return value

    def broker_ids(self, key: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(_is_int32(item) and item >= 0 for item in value):
            raise self.error(
                key, "an object of lists of broker ids" if key == "partitions" else "a list of broker ids"
            )
        return tuple(value)

    def replicas(self, key: str, value: Any, whose: str) -> tuple[int, ...]:
        """Return ``broker_ids`` of one or more distinct brokers, the replicas of the partition ``whose``."""
        found = self.broker_ids(key, value)
        if not found or len(set(found)) < len(found):
            raise InvalidNode(
                self._path,
                f"invalid replicas {list(found)} for {whose}: expected one or more distinct brokers",
            )
        return found

    def objects(self, key: str) -> list[dict[str, Any]]:
        value = self._fields.get(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, "a list of objects")
        return value

    def topic_partition(self, key: str, fields: Mapping[str, Any]) -> TopicPartition:
        """Return the partition that an object of the list ``key`` names."""
        topic, partition = fields.get("topic"), fields.get("partition")
        if not isinstance(topic, str) or not topic or not _is_int32(partition) or partition < 0:
            raise self.error(key, "a list of objects with topic and partition")
        return TopicPartition(topic, partition)


def _is_int32(value: object) -> TypeGuard[int]:
    # bool is an int in Python but not in JSON.
    return type(value) is int and -(1 << 31) <= value < 1 << 31
