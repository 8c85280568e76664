"""Decompression of produced sets: within a budget, or one step at a time.

A set of a few kilobytes may decompress to gigabytes. A thread that serves many connections validates with a
``ContentBudget``, which ends the work once it takes more than a few milliseconds. Without a budget the work
is done in steps, each of which first yields the memory that it needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from minikafka.records.append.conversion import REWRITE_MEMORY
from minikafka.records.append.produced import Limits
from minikafka.records.append.wrappers import open_group
from minikafka.records.format.batch import BatchHeader, records_of
from minikafka.records.format.compression import ContentBudget, content_bound
from minikafka.records.format.message_set import Codec
from minikafka.records.kernels.layout import BATCH_FLAGS_AT, BATCH_HEADER_BYTES, CODEC_MASK, entry_size

REWRITE_COST = 16
"""The cost of compressing a byte, in decompressed bytes."""


class ContentOpener:
    """Decompresses the batches and wrappers of one set, and counts their content."""

    __slots__ = ("budget", "content_bytes")

    def __init__(self, budget: ContentBudget | None) -> None:
        self.budget = budget
        self.content_bytes = 0

    def batch(self, view: memoryview, position: int, header: BatchHeader, limits: Limits) -> memoryview:
        """Return the records of a batch."""
        content = records_of(view, position, header, limits.max_content_bytes, self.budget)
        self.content_bytes += len(content)
        return content

    def group(
        self, view: memoryview, rows: NDArray[np.int64], limits: Limits
    ) -> tuple[memoryview, NDArray[np.int64]]:
        """Decompress the first of these wrappers, as ``open_group`` does."""
        content, ends = open_group(view, rows, limits.max_content_bytes, self.budget)
        self.content_bytes += len(content)
        return content, ends

    def memory_for_batch(self, view: memoryview, position: int, limits: Limits) -> int:
        """Return the maximum size of a batch's content. Only the batch's size field is verified."""
        codec = view[position + BATCH_FLAGS_AT] & CODEC_MASK
        if codec > Codec.ZSTD:
            return 0
        stored = view[position + BATCH_HEADER_BYTES : position + entry_size(view, position)]
        return content_bound(Codec(codec), stored, limits.max_content_bytes)

    def before_rewriting(self, view: memoryview) -> int:
        """Count the cost of rewriting ``view``, which was decompressed. Return the memory that it needs."""
        size_bytes = max(self.content_bytes, len(view))
        if self.budget is not None:
            self.budget.take(REWRITE_COST * size_bytes)
        return REWRITE_MEMORY * size_bytes
