"""Nanoseconds a message of the record kernels on one core, with the messages of the project's goals.

    python benchmarks/records_bench.py [--messages N] [--runs N] [--json]

A message of magic 1 with an 8-byte key and a 100-byte value has 142 bytes in the log; the sets have 1 MiB.
Figures are processor time of the one thread, so that a busy machine disturbs them less, with the wall time
beside it: the median of the runs, and the best; the runs of all cases alternate. What was decoded is compared
with what was encoded before anything is timed. The goals: decode to Arrow with CRC 150 ns, encode 200 ns.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa

from minikafka.records.append.produced import Limits
from minikafka.records.append.validation import assign, validate
from minikafka.records.columns import EncodedRecords, decode, encode, partitions_by_key
from minikafka.records.format.message_set import CLASSIC_CODECS, Codec, TimestampType
from minikafka.records.scan.scan import scan

SET_BYTES = 1 << 20
EVER = 1 << 62
NO_LIMITS = Limits(max_message_bytes=1 << 30)
NEWEST = Limits(max_message_bytes=1 << 30, max_magic=2)
APPEND_TIME = Limits(max_message_bytes=1 << 30, timestamp_type=TimestampType.LOG_APPEND_TIME)
GOALS_NS = {"decode to Arrow, CRC checked": 150, "encode from Arrow": 200}


def columns(messages: int) -> tuple[pa.Array, pa.Array, np.ndarray[Any, np.dtype[np.int64]]]:
    """Keys of 8 bytes, values of 100, timestamps."""
    source = np.random.default_rng(1)
    keys = pa.array([b"%08d" % i for i in range(messages)], pa.binary())
    values = pa.array([source.bytes(100) for _ in range(messages)], pa.binary())
    return keys, values, np.arange(messages, dtype=np.int64) + 1_700_000_000_000


def used(items: Iterator[object]) -> None:
    """Take the items one after the other and keep none, as a consumer or a sender does."""
    for _ in items:
        pass


def cases(messages: int) -> dict[str, Callable[[], object]]:
    """Return the timed functions; each call handles all messages once."""
    keys, values, timestamps = columns(messages)
    rows = np.arange(messages, dtype=np.int64)

    def encoded(codec: Codec = Codec.NONE, magic: int = 1) -> Iterator[EncodedRecords]:
        return encode(keys, values, timestamps, rows, magic=magic, codec=codec, max_bytes=SET_BYTES)

    def decoded(data: list[bytes], check_crc: bool = True) -> Iterator[pa.RecordBatch]:
        for batch in data:
            yield decode(batch, 0, EVER, check_crc=check_crc).record_batch("topic", 0)

    stored = [bytes(batch.data) for batch in encoded()]
    compressed = {codec: [bytes(batch.data) for batch in encoded(codec)] for codec in CLASSIC_CODECS[1:]}
    batches = [bytes(batch.data) for batch in encoded(magic=2)]
    for data in (stored, *compressed.values(), batches):
        found = pa.Table.from_batches(decoded(data))
        assert found["key"].combine_chunks().equals(keys)
        assert found["value"].combine_chunks().equals(values)
    valid = [validate(bytearray(batch), NO_LIMITS, 0) for batch in stored]
    whole = b"".join(bytes(assign(records, 0).data) for records in valid)
    assert len(whole) == 142 * messages
    result: dict[str, Callable[[], object]] = {
        "decode to Arrow, CRC checked": lambda: used(decoded(stored)),
        "decode to Arrow, CRC not checked": lambda: used(decoded(stored, check_crc=False)),
        "encode from Arrow": lambda: used(encoded()),
        "validate": lambda: [validate(batch, NO_LIMITS, 0) for batch in stored],
        "validate and write append times": lambda: [validate(batch, APPEND_TIME, 0) for batch in stored],
        "assign offsets": lambda: [assign(records, 1) for records in valid],
        "scan (recovery)": lambda: [scan(batch, base_offset=0) for batch in stored],
        "partitions by murmur2 of the key": lambda: partitions_by_key(keys, 12),
    }
    result |= {
        "magic 2: decode to Arrow": lambda: used(decoded(batches)),
        "magic 2: encode from Arrow": lambda: used(encoded(magic=2)),
        "magic 2: validate": lambda: [validate(batch, NEWEST, 0) for batch in batches],
        "magic 2: scan (recovery)": lambda: [scan(batch, base_offset=0, max_magic=2) for batch in batches],
    }
    for codec, data in compressed.items():
        result[f"decode to Arrow, {codec.name.lower()}"] = lambda data=data: used(decoded(data))  # type: ignore[misc]
    return result


def measure(messages: int, runs: int) -> dict[str, tuple[float, float, float]]:
    """Case to ns a message: median and best of processor time, median of wall time."""
    calls = cases(messages)
    times: dict[str, list[float]] = {name: [] for name in calls}
    walls: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            wall, start = time.perf_counter_ns(), time.thread_time_ns()
            call()
            times[name].append((time.thread_time_ns() - start) / messages)
            walls[name].append((time.perf_counter_ns() - wall) / messages)
    return {
        name: (statistics.median(found), min(found), statistics.median(walls[name]))
        for name, found in times.items()
    }


def machine() -> dict[str, str]:
    """Describe the machine that the figures depend on."""
    processor = platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    return {
        "processor": processor,
        "system": platform.platform(),
        "python": platform.python_version(),
        "numba": version("numba"),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "cramjam": cramjam.__version__,
    }


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    figures = measure(options.messages, options.runs)
    if options.json:
        names = ("median_ns", "best_ns", "wall_median_ns")
        named = {case: dict(zip(names, found, strict=True)) for case, found in figures.items()}
        print(json.dumps({"machine": machine(), "messages": options.messages, "figures": named}, indent=1))
        return 0
    for name, value in machine().items():
        print(f"{name:10} {value}")
    print(f"{options.messages} messages of 142 bytes, {options.runs} runs; ns a message: median, best, wall")
    for name, (median, best, wall) in figures.items():
        goal = GOALS_NS.get(name)
        verdict = "" if goal is None else f"   goal {goal}: {'met' if median <= goal else 'missed'}"
        print(f"  {name:36}{median:8.1f}{best:8.1f}{wall:8.1f}{verdict}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
