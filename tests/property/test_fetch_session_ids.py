"""A fetch session by topic ids beside a model of Kafka's: topics are deleted and made again at any time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikafka.server.core.fetch_sessions import FetchSession
from minikafka.wire.apis.fetch import FetchPartition, FetchTopic, ForgottenTopic

TOPICS = ["a", "b"]
IDS = [bytes([number]) * 16 for number in range(6)]
Key = tuple[bytes, int]
keys = st.tuples(st.sampled_from(IDS), st.integers(0, 2))
READ, UNKNOWN, INCONSISTENT, DELETED = "read", "unknown id", "inconsistent id", "deleted"


class SessionByIds(RuleBasedStateMachine):
    """Each id is that of one topic, or of none yet; a topic has at most one id at a time. Ids may come back:
    ZooKeeper may be restored from a copy.
    """

    def __init__(self) -> None:
        super().__init__()
        self.session = FetchSession(1, "alice", 0, privileged=False, by_id=True)
        self.owners = {topic_id: TOPICS[number % 2] for number, topic_id in enumerate(IDS)}
        self.current: dict[str, bytes] = {}
        self.topics_by_id: dict[bytes, str] = {}
        self.ids_changed = 0
        self.offsets: dict[Key, int] = {}
        """The partitions of the model's session."""
        self.learned: set[bytes] = set()
        """The ids whose names it has learned."""

    @rule(topic_id=st.sampled_from(IDS))
    def make(self, topic_id: bytes) -> None:
        if self.owners[topic_id] not in self.current:
            self.current[self.owners[topic_id]] = topic_id
            self.change_ids()

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        if self.current.pop(topic, None) is not None:
            self.change_ids()

    def change_ids(self) -> None:
        self.topics_by_id = {topic_id: name for name, topic_id in self.current.items()}
        self.ids_changed += 1

    @rule(named=st.dictionaries(keys, st.integers(0, 9), max_size=4), forgotten=st.lists(keys, max_size=3))
    def fetch(self, named: dict[Key, int], forgotten: list[Key]) -> None:
        self.offsets.update(named)
        self.learned |= {topic_id for topic_id, _ in self.offsets if topic_id in self.topics_by_id}
        for key in forgotten:
            self.offsets.pop(key, None)
        topics = [
            FetchTopic("", (FetchPartition(number, -1, offset, -1, 1),), topic_id=topic_id)
            for (topic_id, number), offset in named.items()
        ]
        gone = [ForgottenTopic("", (number,), topic_id=topic_id) for topic_id, number in forgotten]
        self.session.update(*self.session.resolve(topics, gone, self.topics_by_id, self.ids_changed))
        assert self.found() == {key: (self.meaning(key[0]), at) for key, at in self.offsets.items()}

    def meaning(self, topic_id: bytes) -> str:
        """The outcome of a fetch of this id at Kafka's broker."""
        if topic_id not in self.learned:
            return UNKNOWN
        current = self.current.get(self.owners[topic_id])
        if current is None:
            return DELETED
        return READ if current == topic_id else INCONSISTENT

    def found(self) -> dict[Key, tuple[str, int]]:
        """Each partition of the session: what becomes of it, as ``session_fetch`` has it, and its offset."""
        session, found = self.session, {}
        rows = [((session.topic_ids[tp.topic], tp.partition), part) for tp, part in session.parts.items()]
        for key, part in [*rows, *session.unresolved.items()]:
            assert key not in found
            name = session.name_of(key[0])
            current = self.current.get(name)
            outdated = DELETED if current is None else INCONSISTENT
            meaning = UNKNOWN if not name else READ if current == key[0] else outdated
            found[key] = meaning, part.fetch_offset
            assert (key in session.unresolved) or meaning != UNKNOWN
            assert meaning != READ or key not in session.unresolved
        return found

    @invariant()
    def tables_agree(self) -> None:
        session = self.session
        assert session.size == len(self.offsets)
        assert session.reported.keys() | session.changed.keys() <= session.parts.keys()


TestSessionByIds = SessionByIds.TestCase
TestSessionByIds.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
