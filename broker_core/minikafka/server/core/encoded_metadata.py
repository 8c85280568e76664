"""The newest answers about all topics, in the form in which they go out.

To describe 20,000 partitions takes 0.1 s, and clients of a large cluster ask for all of them again and
again: so it is done once for each version and listener, until the cluster changes. All connections that are
sent such an answer share its memory.
"""

from __future__ import annotations

import threading

from minikafka.server.core.metadata_cache import MetadataCache


class EncodedMetadata:
    """Bodies of responses by version and listener, of one state of the cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._image: MetadataCache | None = None
        self._served_version = -1
        self._bodies: dict[tuple[int, str], bytes] = {}

    def get(self, image: MetadataCache, served_version: int, version: int, listener: str) -> bytes | None:
        """What was made of the same; None where it is to be made."""
        with self._lock:
            if self._image is not image or self._served_version != served_version:
                return None
            return self._bodies.get((version, listener))

    def put(
        self, image: MetadataCache, served_version: int, version: int, listener: str, body: bytes
    ) -> None:
        """Keep what was made of ``image``, and of what this broker served at ``served_version``."""
        with self._lock:
            if self._image is not image or self._served_version != served_version:
                self._image, self._served_version, self._bodies = image, served_version, {}
            self._bodies[version, listener] = body
