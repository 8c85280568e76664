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
        self._image: MetadataCache | None = None
        self._served_version = -1
        self._bodies: dict[tuple[int, str], bytes] = {}

    def get(self, image: MetadataCache, served_version: int, version: int, listener: str) -> bytes | None:
        """Return the body that was encoded from the same state; None if there is none."""
        with self._lock:
            if self._image is not image or self._served_version != served_version:
                return None
            return self._bodies.get((version, listener))

    def put(
        self, image: MetadataCache, served_version: int, version: int, listener: str, body: bytes
    ) -> None:
        """Keep the body that was encoded from ``image`` and the partitions served at ``served_version``."""
        with self._lock:
            if self._image is not image or self._served_version != served_version:
                self._image, self._served_version, self._bodies = image, served_version, {}
            self._bodies[version, listener] = body
