"""Opening what a produced set holds compressed: within a budget, or one step at a time.

A set of a few kilobytes may hold gigabytes. Whoever validates one where many connections are served gives a
``ContentBudget``, which ends the work once it takes more than a few milliseconds. Without a budget the work
is done in steps, and before each one its memory is named.
"""

from __future__ import annotations

from minikafka.records.batch import ATTRIBUTES_AT, BATCH_HEADER_BYTES, BatchHeader, records_of, size_of
from minikafka.records.compression import ContentBudget, content_bound
from minikafka.records.message_set import CODEC_MASK, Codec, Content, open_wrapper, wrapper_value
from minikafka.records.produced import Limits

REWRITE_COST = 16
"""What it takes to compress a byte, in bytes that are decompressed."""
REWRITE_MEMORY = 3
"""Times the content: what was opened, what is made of it, and that compressed."""
_CODEC_AT = ATTRIBUTES_AT + 1
"""The attributes are an int16, whose second byte holds the codec."""


class ContentOpener:
    """Opens the batches and wrappers of one set, and counts their content."""

    __slots__ = ("budget", "content_bytes")

    def __init__(self, budget: ContentBudget | None) -> None:
        self.budget = budget
        self.content_bytes = 0

    def batch(self, view: memoryview, position: int, header: BatchHeader, limits: Limits) -> memoryview:
        """The records of a batch."""
        content = records_of(view, position, header, limits.max_content_bytes, self.budget)
        self.content_bytes += len(content)
        return content

    def wrapper(self, view: memoryview, position: int, limits: Limits) -> Content:
        """A wrapper with its content."""
        content = open_wrapper(view, position, limits.max_content_bytes, self.budget)
        self.content_bytes += len(content.data)
        return content

    def memory_for_batch(self, view: memoryview, position: int, limits: Limits) -> int:
        """What the content of a batch takes at most. Only the batch's size is known to be right."""
        codec = view[position + _CODEC_AT] & CODEC_MASK
        if codec > Codec.ZSTD:
            return 0
        stored = view[position + BATCH_HEADER_BYTES : position + size_of(view, position)]
        return content_bound(Codec(codec), stored, limits.max_content_bytes)

    def memory_for_wrapper(self, view: memoryview, position: int, limits: Limits) -> int:
        """As ``memory_for_batch``, of a wrapper whose lengths are known to be right."""
        codec, value = wrapper_value(view, position)
        return 0 if value is None else content_bound(codec, value, limits.max_content_bytes)

    def before_rewriting(self, view: memoryview) -> int:
        """Count that ``view``, which was opened, is written anew; the memory that this needs."""
        size_bytes = max(self.content_bytes, len(view))
        if self.budget is not None:
            self.budget.take(REWRITE_COST * size_bytes)
        return REWRITE_MEMORY * size_bytes
