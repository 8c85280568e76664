"""The client's end of a fetch session with one broker (KIP-227): the requests that name what has changed.

Followers and consumers use it alike. A broker that keeps no session, or none for this client, says so with
every response; then each request names all partitions.

Pure: no clock, thread or socket.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import TopicPartition, numbers_by_topic
from minikafka.wire.apis.fetch import (
    NEW_SESSION_EPOCH,
    NO_IDS,
    NO_SESSION,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    fetch_topics,
    next_session_epoch,
)
from minikafka.wire.fields import ZERO_UUID


class FetchSessionHandler:
    """The session with a broker: a partition is sent again only when it changes."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = NEW_SESSION_EPOCH
        self._named: dict[TopicPartition, FetchPartition] = {}
        self._topic_ids: Mapping[str, bytes] = NO_IDS
        self._earlier_ids: dict[str, bytes] = {}
        """Those of the topics of the last request before the ids of today."""
        self._anew: set[TopicPartition] = set()

    def follow_anew(self, topic_partition: TopicPartition) -> None:
        """Send a partition in the next request even if nothing changes: its last response may be unused."""
        self._anew.add(topic_partition)

    def request(
        self,
        parts: dict[TopicPartition, FetchPartition],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int = READ_UNCOMMITTED,
        replica_id: int = -1,
        rack_id: str = "",
        topic_ids: Mapping[str, bytes] = NO_IDS,
    ) -> FetchRequest:
        """Return the fetch of exactly these partitions. ``answered`` or ``begin_anew`` must follow. ``parts``
        must not be changed afterwards.

        ``topic_ids``: of all their topics, if the request is by ids. The same object again has the same ids,
        and perhaps more. A topic with another id than before begins a new session.
        """
        if topic_ids is not self._topic_ids:
            self._take_ids(topic_ids)
        changed, forgotten_keys = parts, []
        if self._epoch != NEW_SESSION_EPOCH:
            named, anew = self._named, self._anew
            if parts is named:
                changed = {key: parts[key] for key in anew if key in parts}
            else:
                changed = {
                    key: part
                    for key, part in parts.items()
                    if ((known := named.get(key)) is not part and known != part) or key in anew
                }
                forgotten_keys = [key for key in named if key not in parts]
        self._named = parts
        self._anew.difference_update(parts)
        forgotten = numbers_by_topic(forgotten_keys)
        return FetchRequest(
            replica_id=replica_id,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=fetch_topics(changed, topic_ids),
            forgotten_topics=tuple(
                ForgottenTopic(topic, tuple(named), topic_id=self._id_of(topic))
                for topic, named in forgotten.items()
            ),
            rack_id=rack_id,
        )

    def _take_ids(self, topic_ids: Mapping[str, bytes]) -> None:
        known = {topic: self._id_of(topic) for topic in {key.topic for key in self._named}}
        changed = any(topic_ids.get(topic, known_id) != known_id for topic, known_id in known.items())
        if changed or bool(topic_ids) != bool(self._topic_ids):
            self.begin_anew()
            known = {}
        self._topic_ids, self._earlier_ids = topic_ids, known

    def _id_of(self, topic: str) -> bytes:
        return self._topic_ids.get(topic) or self._earlier_ids.get(topic, ZERO_UUID)

    def answered(self, response: FetchResponse) -> bool:
        """Return True if the session continues; otherwise the response is unusable and a new one starts."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self.begin_anew()
            return False
        self._id = response.session_id
        if response.session_id == NO_SESSION:
            self.begin_anew()  # the broker keeps no session: each request names all partitions
        else:
            self._epoch = next_session_epoch(self._epoch)
        return True

    def begin_anew(self) -> None:
        """Start a new session with the next request, for example over another connection. The broker closes
        the earlier one then.
        """
        self._epoch, self._named, self._earlier_ids = NEW_SESSION_EPOCH, {}, {}
