"""Compaction in plain Python: the entries of a log as values, and those that a cleaning retains.

As in Kafka 0.10.1 (magic 0 and 1) and 3.9.1 (magic 2); it shares nothing with the project's own code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.oracles import messages
from tests.oracles.batches import number
from tests.oracles.messages import Message

DAY_MS = 86_400_000
HORIZON = 64


@dataclass(frozen=True)
class Entry:
    """A message, a wrapper (``codec``) or a batch, with all that its header says."""

    magic: int
    codec: int
    messages: tuple[Message, ...]
    offset: int
    time: int
    """Of a wrapper or message; the largest of a batch."""
    kind: int = -1
    # Of batches.
    base: int = 0
    base_time: int = 0
    bits: int = 0
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    leader_epoch: int = -1

    @property
    def transactional(self) -> bool:
        return self.magic == 2 and bool(self.bits & 16)

    @property
    def control(self) -> bool:
        return self.magic == 2 and bool(self.bits & 32)

    @property
    def horizon(self) -> int | None:
        return self.base_time if self.magic == 2 and self.bits & HORIZON else None


def entries(data: bytes) -> list[Entry]:
    """Every entry of a log. DamagedError for anything wrong."""
    found = []
    while data:
        raw, data = data[: 12 + number(data[8:12])], data[12 + number(data[8:12]) :]
        inside = tuple(messages.decode_entry(raw))
        if raw[16] == 2:
            bits = number(raw[21:23])
            base = number(raw[:8])
            found.append(
                Entry(
                    magic=2,
                    codec=bits & 7,
                    messages=inside,
                    offset=base + number(raw[23:27]),
                    time=number(raw[35:43]),
                    kind=bits >> 3 & 1,
                    base=base,
                    base_time=number(raw[27:35]),
                    bits=bits & ~7,
                    producer=number(raw[43:51]),
                    epoch=number(raw[51:53]),
                    sequence=number(raw[53:57]),
                    leader_epoch=number(raw[12:16]),
                )
            )
            continue
        offset, time, kind, _, _ = messages.parse(raw)
        found.append(Entry(raw[16], raw[17] & 7, inside, offset, time, kind))
    return found


def control_type(entry: Entry) -> int:
    """Return 0 for a marker that aborts, 1 for one that commits, -1 for anything else."""
    key = entry.messages[0].key if entry.messages else None
    kind = -1 if key is None or len(key) < 4 else number(key[2:4])
    return kind if kind in {0, 1} else -1


def aborted(log: list[Entry], at: int) -> bool | None:
    """Return True if the transaction of a batch was aborted; None if it has not ended."""
    for entry in log[at + 1 :]:
        if entry.control and entry.producer == log[at].producer and control_type(entry) >= 0:
            return control_type(entry) == 0
    return None


def mapped(
    log: list[Entry], start: int, end: int, capacity: int
) -> tuple[dict[bytes, int], int, dict[int, tuple[int, int, int]]]:
    """The largest offset of each key, where the map ends; epoch, offset and time of producers' last batches.

    ``end`` is the offset behind what is looked at.
    """
    last: dict[bytes, int] = {}
    producers: dict[int, tuple[int, int, int]] = {}
    reached = start
    for at, entry in enumerate(log):
        if entry.offset < start:
            continue
        if (entry.base if entry.magic == 2 else entry.messages[0].offset) >= end:
            break
        dropped = entry.control
        if entry.transactional and not entry.control:
            ended = aborted([e for e in log if e.offset < end], at)
            if ended is None:
                break
            dropped = ended
        for message in entry.messages:
            if dropped or message.offset < start:
                continue
            if message.offset >= end:
                return last, reached, producers
            if message.key is not None:
                if message.key not in last and len(last) >= capacity:
                    return last, reached, producers
                last[message.key] = message.offset
            reached = message.offset + 1
        if entry.magic == 2 and entry.producer >= 0:
            known = producers.get(entry.producer)
            if not entry.control or known is None or entry.epoch > known[0]:
                producers[entry.producer] = (entry.epoch, entry.offset, entry.time)
        reached = entry.offset + 1
    return last, reached, producers


def cleaned(
    log: list[Entry],
    *,
    start: int,
    end: int,
    capacity: int = 1 << 30,
    now: int,
    retention: int,
    tombstones_stay: bool = True,
) -> tuple[list[Entry], int]:
    """Return the cleaned log when ``[start, end)`` is its dirty part, and the end of the clean part."""
    last, reached, producers = mapped(log, start, end, capacity)
    left: list[Entry] = []
    met: set[int] = set()
    surveyed = [entry for entry in log if entry.offset < end]
    for at, entry in enumerate(log):
        if entry.magic == 2 and entry.base >= reached:
            left.append(entry)
            continue
        over = gone = False
        if entry.control:
            over = entry.producer not in met
            met.discard(entry.producer)
            gone = over and entry.horizon is not None and entry.horizon <= now
        elif entry.transactional:
            met.add(entry.producer)
            gone = entry.offset >= start and bool(aborted(surveyed, at))
        due = not tombstones_stay if entry.magic < 2 else entry.horizon is not None and entry.horizon <= now
        stay = tuple(
            message
            for message in entry.messages
            if not gone
            and (
                message.offset >= reached
                or entry.control
                or (
                    message.key is not None
                    and message.offset >= last.get(message.key, 0)
                    and not (message.value is None and due)
                )
            )
        )
        if not stay:
            if entry.magic == 2 and needed(entry, producers, now):
                emptied = replace(entry, codec=0, messages=(), base_time=-1, bits=entry.bits & ~HORIZON)
                left.append(emptied if entry.messages else entry)
            continue
        left.append(rest_of(entry, stay, reached, over, now + retention))
    return left, reached


def needed(entry: Entry, producers: dict[int, tuple[int, int, int]], now: int) -> bool:
    """Return True if an empty batch is retained for its producer's sequence."""
    if entry.producer < 0:
        return False
    if entry.producer in producers:
        _, offset, time = producers[entry.producer]
        return time >= now - DAY_MS and entry.offset >= offset
    return entry.time >= now - DAY_MS


def rest_of(entry: Entry, stay: tuple[Message, ...], reached: int, over: bool, horizon: int) -> Entry:
    """Return the entry with only these messages."""
    tombstone = any(message.value is None and message.offset < reached for message in stay)
    new_horizon = entry.magic == 2 and (tombstone or over) and entry.horizon is None
    if stay == entry.messages and not new_horizon:
        return entry
    if entry.magic < 2:
        time = entry.time if entry.kind == 1 else max(message.timestamp for message in stay)
        return replace(entry, messages=stay, offset=stay[-1].offset, time=time)
    base_time = entry.base_time if entry.horizon is not None else stay[0].timestamp
    return replace(
        entry,
        messages=stay,
        bits=entry.bits | HORIZON if new_horizon else entry.bits,
        base_time=horizon if new_horizon else base_time,
        time=max(-1, *(message.timestamp for message in stay)),
    )
