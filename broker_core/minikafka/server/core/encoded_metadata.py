"""A cache of the encoded metadata responses about all topics.

Encoding 20,000 partitions takes 0.1 s, and clients of a large cluster request all of them again and again. So
it is done once for each version and listener, until the cluster changes. All connections that are sent such a
response share its memory.
"""

from __future__ import annotations

import threading

from minikafka.server.core.metadata_cache import MetadataCache


class EncodedMetadata:
    """Response bodies by version and listener, for one state of the cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metadata_cache: MetadataCache | None = None
        self._served_version = -1
        self._bodies: dict[tuple[int, str], bytes] = {}

    def get(
        self, metadata_cache: MetadataCache, served_version: int, version: int, listener: str
    ) -> bytes | None:
        """Return the body that was encoded from the same state; None if there is none."""
        with self._lock:
            if self._metadata_cache is not metadata_cache or self._served_version != served_version:
                return None
            return self._bodies.get((version, listener))

    def put(
        self, metadata_cache: MetadataCache, served_version: int, version: int, listener: str, body: bytes
    ) -> None:
        """Keep the body that was encoded from ``metadata_cache`` and the partitions of ``served_version``."""
        with self._lock:
            if self._metadata_cache is not metadata_cache or self._served_version != served_version:
                self._metadata_cache, self._served_version, self._bodies = metadata_cache, served_version, {}
            self._bodies[version, listener] = body
