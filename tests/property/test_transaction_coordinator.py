"""A transaction coordinator in random sequences of events: requests of present and former producers, appends
that succeed, fail, or fail and are in the log all the same, markers in any order and too late, time-outs,
expired ids, deleted partitions, and moves to a broker whose log lacks the end.

What must hold: states follow each other as in the table; epochs only grow; only the newest producer adds
partitions and ends transactions; an end that was answered is the end, in all markers and after each move; no
transaction completes before each of its partitions has its marker; whoever loads the log finds what everybody
could see; everybody is answered once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import ProducerIdAndEpoch, TopicPartition
from minikafka.transactions.decisions import (
    Answer,
    AppendOutcome,
    AppendTransition,
    Decision,
    TransactionDescription,
    TxnMarkers,
)
from minikafka.transactions.messages import TransactionLogValue, key_bytes, value_bytes
from minikafka.transactions.shard import TransactionSettings
from minikafka.transactions.states import COMPLETED, PREPARED, VALID_PREDECESSORS, TransactionState
from tests.support.transaction_harness import TIMEOUT_MS, CoordinatorHarness

NAMES = ("a", "b")
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
EXPIRATION_MS = 10 * TIMEOUT_MS

names = strategies.sampled_from(NAMES)
some_partitions = strategies.frozensets(strategies.sampled_from(PARTITIONS), max_size=3)
numbers = strategies.integers(0, 1_000)
rarely = strategies.sampled_from([False, False, False, False, True])
outcomes = strategies.sampled_from(
    ["stored"] * 6 + ["held", "held", "held, not written", "failed", "not written"]
)
"""Of an append. ``failed`` is in the log all the same; ``held`` waits for the rule ``outcome``."""


@dataclass
class Waiting:
    """An append whose outcome is not known, and the request that waits for it."""

    append: AppendTransition
    at: int | None
    """Its place in the log; None if it is not there."""
    kind: str = "timer"
    producer: ProducerIdAndEpoch | None = None
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass
class Model:
    """The responses that the clients of one id have seen."""

    producers: list[ProducerIdAndEpoch] = field(default_factory=list)
    """All that were answered, the newest last."""
    asked: ProducerIdAndEpoch | None = None
    """The producer that became the newest one by its own request; None if another one did."""
    fenced: set[ProducerIdAndEpoch] = field(default_factory=set)
    """Producers whose transaction was aborted, but not by them."""
    seen: ProducerIdAndEpoch | None = None
    """The newest id and epoch in the coordinator."""
    added: set[TopicPartition] = field(default_factory=set)
    """The partitions of the open transaction that were answered."""
    gone: set[TopicPartition] = field(default_factory=set)
    """The partitions that were deleted since they were added."""
    decided: bool | None = None
    """The end that was answered, or has markers, until it is complete."""
    markers: TxnMarkers | None = None
    marked: set[TopicPartition] = field(default_factory=set)
    """The partitions with a marker of ``markers``."""


class TransactionMachine(RuleBasedStateMachine):
    """A coordinator, its clients, and the leaders that write markers."""

    def __init__(self) -> None:
        super().__init__()
        self.txn = CoordinatorHarness(TransactionSettings(id_expiration_ms=EXPIRATION_MS))
        self.models = {name: Model() for name in NAMES}
        self.waiting: list[Waiting] = []
        self.durable = 0
        """Every in-sync replica has the log up to here."""
        self.unsure: set[str] = set()
        """Ids whose last append failed."""
        self.all_markers: list[TxnMarkers] = []

    @initialize(epoch=strategies.sampled_from([None, 32_762, 32_765, 32_766]))
    def begin(self, epoch: int | None) -> None:
        if epoch is not None:
            value = TransactionLogValue(7, epoch, TIMEOUT_MS, 0, None, self.txn.now_ms, -1)
            self.txn.log.append((key_bytes("b"), value_bytes(value)))
            self.models["b"].producers.append(ProducerIdAndEpoch(7, epoch))
            self.move(lost=0)
        self.init("a", 0, False, "stored", TIMEOUT_MS)

    # --- requests -------------------------------------------------------------------------------------------

    @rule(
        name=names,
        number=numbers,
        is_known=strategies.booleans(),
        how=outcomes,
        timeout_ms=strategies.sampled_from([TIMEOUT_MS, TIMEOUT_MS // 2]),
    )
    def init(self, name: str, number: int, is_known: bool, how: str, timeout_ms: int) -> None:
        expected = self.some_producer(name, number) if is_known else None
        is_stored = name in self.txn.shard.transactional_ids()
        decision = self.txn.decide_init(expected, name, timeout_ms)
        known = self.models[name].producers
        if isinstance(decision, AppendTransition) and is_stored and expected not in {None, *known[-1:]}:
            # It may only ask again for what it got.
            assert expected == self.models[name].asked
            assert decision.answer == Answer(ErrorCode.NONE, *known[-1])
            assert decision.transition.state is self.txn.state(name) is TransactionState.EMPTY
        self.take(decision, "repeat" if expected else "init", name, expected, how=how)

    @rule(name=names, number=numbers, partitions=some_partitions, how=outcomes)
    def add(self, name: str, number: int, partitions: frozenset[TopicPartition], how: str) -> None:
        producer = self.some_producer(name, number)
        if producer is not None:
            decision = self.txn.decide_add(producer, partitions, name)
            if decision == Answer(ErrorCode.NONE):
                stored = self.txn.loaded().describe(name)
                assert stored.state is TransactionState.ONGOING
                assert partitions <= set(stored.partitions)
            self.models[name].gone -= partitions
            self.take(decision, "add", name, producer, partitions, how)

    @rule(name=names, number=numbers, commit=strategies.booleans(), how=outcomes)
    def end(self, name: str, number: int, commit: bool, how: str) -> None:
        producer = self.some_producer(name, number)
        if producer is not None:
            decision = self.txn.decide_end(producer, commit=commit, name=name)
            self.take(decision, "commit" if commit else "abort", name, producer, how=how)

    @rule(
        name=names, partitions=some_partitions, commit=strategies.booleans(), is_marked=strategies.booleans()
    )
    def a_transaction(
        self, name: str, partitions: frozenset[TopicPartition], commit: bool, is_marked: bool
    ) -> None:
        """Everything goes well, at least up to the markers."""
        self.add(name, 1, partitions, "stored")
        self.end(name, 1, commit, "stored")
        markers = self.models[name].markers
        if is_marked and markers is not None:
            self.report_markers(markers, markers.partitions)

    def some_producer(self, name: str, number: int) -> ProducerIdAndEpoch | None:
        """The newest one most of the time."""
        known = self.models[name].producers
        if not known:
            return None
        return known[number % len(known)] if number % 3 == 0 else known[-1]

    def take(
        self,
        decision: Decision,
        kind: str,
        name: str,
        producer: ProducerIdAndEpoch | None = None,
        partitions: frozenset[TopicPartition] = frozenset(),
        how: str = "held",
    ) -> None:
        if isinstance(decision, Answer):
            self.hear(name, kind, producer, partitions, decision)
            return
        assert isinstance(decision, AppendTransition)
        assert name not in {other.append.transactional_id for other in self.waiting}
        waiting = Waiting(decision, None, kind, producer, partitions)
        if not how.endswith("not written"):
            waiting.at = len(self.txn.log)
            self.txn.log.append(decision.record)
        if how.startswith("held"):
            self.waiting.append(waiting)
        else:
            self.report(waiting, ErrorCode.NONE if how == "stored" else ErrorCode.REQUEST_TIMED_OUT)

    def hear(
        self,
        name: str,
        kind: str,
        producer: ProducerIdAndEpoch | None,
        partitions: frozenset[TopicPartition],
        answer: Answer,
    ) -> None:
        """Take a response: to a client that may be a former one."""
        model = self.models[name]
        if answer.error is not ErrorCode.NONE:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
            return
        if kind in {"init", "repeat"}:
            given, known = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch), model.producers
            if kind == "init" or not known or given != known[-1]:
                same_id = [other.epoch for other in known if other.producer_id == given.producer_id]
                assert given.epoch > max(same_id, default=-1)
                known.append(given)
                model.asked = producer
            return
        assert producer == model.producers[-1]
        assert producer not in model.fenced
        if kind == "add":
            assert model.decided is None
            model.added |= partitions
            return
        labels = (
            {"PrepareCommit", "CompleteCommit"} if kind == "commit" else {"PrepareAbort", "CompleteAbort"}
        )
        assert self.txn.state(name).label in labels

    # --- appends --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.waiting)
    @rule(number=numbers, fails=rarely)
    def outcome(self, number: int, fails: bool) -> None:
        waiting = self.waiting.pop(number % len(self.waiting))
        stored = waiting.at is not None and not fails
        self.report(waiting, ErrorCode.NONE if stored else ErrorCode.NOT_ENOUGH_REPLICAS)

    def report(self, waiting: Waiting, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            assert waiting.at is not None
            self.durable = max(self.durable, waiting.at + 1)
        append = waiting.append
        name, shard = append.transactional_id, self.txn.shard
        before = shard.describe(name)
        outcome = shard.appended(append, error, self.txn.now_ms)
        after = shard.describe(name)
        if error is ErrorCode.NONE:
            self.unsure.discard(name)
            assert after.state is append.transition.state
            assert before.error or before.state in VALID_PREDECESSORS[after.state]
            if before.state is after.state is TransactionState.ONGOING:
                assert before.start_ms == after.start_ms
            self.changed(name, waiting, after)
        else:
            self.unsure.add(name)
            assert before == after
            assert (name in shard.transactional_ids()) == (not after.error)
        if outcome.retry is None:
            assert (outcome.answer is None) == (append.answer is None)
        if outcome.answer is not None:
            self.hear(name, waiting.kind, waiting.producer, waiting.partitions, outcome.answer)
        self.follow(name, outcome)

    def changed(self, name: str, waiting: Waiting, after: TransactionDescription) -> None:
        """A change is stored."""
        model = self.models[name]
        if waiting.kind in {"commit", "abort"}:
            assert model.decided is None
            model.decided = waiting.kind == "commit"
        elif after.state is TransactionState.PREPARE_ABORT:
            model.fenced.add(model.producers[-1])
        if after.state in COMPLETED:
            assert model.decided in {None, after.state is TransactionState.COMPLETE_COMMIT}
            assert model.added <= model.marked
        if after.state in COMPLETED or after.state is TransactionState.EMPTY:
            assert after.state in COMPLETED or model.decided is None
            model.added, model.marked, model.gone = set(), set(), set()
            model.decided = model.markers = None

    def follow(self, name: str, outcome: AppendOutcome) -> None:
        model = self.models[name]
        if outcome.markers is not None:
            assert model.decided in {None, outcome.markers.commit}
            assert model.added <= outcome.markers.partitions
            assert not model.gone & outcome.markers.partitions
            model.decided = outcome.markers.commit
            model.markers, model.marked = outcome.markers, set()
            self.all_markers.append(outcome.markers)
        append = outcome.append or outcome.retry
        if append is not None:
            self.take(append, "timer", name)

    @rule(is_due=rarely, lost=strategies.integers(0, 3))
    def perhaps_move(self, is_due: bool, lost: int) -> None:
        if is_due:
            self.move(lost)

    def move(self, lost: int) -> None:
        """Another broker becomes the coordinator. It may lack what is not durable."""
        del self.txn.log[max(self.durable, len(self.txn.log) - lost) :]
        self.durable = len(self.txn.log)
        former, self.txn.shard = self.txn.shard, self.txn.loaded()
        former.unload()
        for waiting in self.waiting:
            outcome = former.appended(waiting.append, ErrorCode.NONE, self.txn.now_ms)
            gone = Answer(ErrorCode.NOT_COORDINATOR_FOR_GROUP)
            assert outcome == AppendOutcome(waiting.append.answer and gone)
        self.waiting, self.unsure = [], set()
        for name, model in self.models.items():
            model.gone = set()
            # An end that nobody was answered may have been stored.
            described = self.txn.shard.describe(name)
            if described.state not in PREPARED:
                if described.state in COMPLETED:
                    assert model.decided in {None, described.state is TransactionState.COMPLETE_COMMIT}
                    assert model.added <= model.marked or model.decided is None
                else:
                    assert model.decided is None
                if described.state is not TransactionState.ONGOING:
                    model.added, model.decided = set(), None
                model.marked, model.markers = set(), None
        for outcome in self.txn.shard.resume(self.txn.now_ms):
            held = outcome.markers or outcome.append
            assert held is not None
            self.follow(held.transactional_id, outcome)

    # --- markers, time and topics ---------------------------------------------------------------------------

    @precondition(lambda self: self.all_markers)
    @rule(number=numbers, is_newest=strategies.booleans(), partitions=some_partitions)
    def write_markers(self, number: int, is_newest: bool, partitions: frozenset[TopicPartition]) -> None:
        markers = self.all_markers[-1 if is_newest else number % len(self.all_markers)]
        self.report_markers(markers, partitions & markers.partitions)

    @rule(name=names, number=numbers)
    def write_late_markers(self, name: str, number: int) -> None:
        former = [markers for markers in self.all_markers if markers.transactional_id == name][:-1]
        if former:
            markers = former[-1 - number % len(former)]
            self.report_markers(markers, markers.partitions)

    def report_markers(self, markers: TxnMarkers, partitions: frozenset[TopicPartition]) -> None:
        name = markers.transactional_id
        if markers is self.models[name].markers:
            self.models[name].marked |= partitions
        append = self.txn.shard.markers_written(markers, partitions, self.txn.now_ms)
        if append is not None:
            self.take(append, "timer", name)

    @rule(is_due=rarely, partitions=some_partitions)
    def delete(self, is_due: bool, partitions: frozenset[TopicPartition]) -> None:
        if not is_due:
            return
        for model in self.models.values():
            model.added -= partitions
            model.marked -= partitions
            model.gone |= partitions
        for append in self.txn.shard.partitions_deleted(partitions, self.txn.now_ms):
            self.take(append, "timer", append.transactional_id)
        # An append that waits has them no more when it is complete.
        for waiting in self.waiting:
            waiting.partitions -= partitions

    @rule(
        elapsed_ms=strategies.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1]),
        limit=strategies.integers(1, 2),
    )
    def time_passes(self, elapsed_ms: int, limit: int) -> None:
        self.txn.now_ms += elapsed_ms
        for append in self.txn.shard.expired(self.txn.now_ms, limit):
            self.take(append, "timer", append.transactional_id)

    @rule(fails=strategies.booleans(), is_long=rarely)
    def ids_expire(self, fails: bool, is_long: bool) -> None:
        self.txn.now_ms += EXPIRATION_MS if is_long else 1
        expiration = self.txn.shard.expire_ids(self.txn.now_ms, 10)
        if expiration is None:
            return
        if fails:
            self.txn.shard.ids_expired(expiration, ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        self.txn.log += expiration.records
        self.durable = len(self.txn.log)
        self.txn.shard.ids_expired(expiration, ErrorCode.NONE)
        for name, _ in expiration.transitions:
            self.models[name].seen = None

    # --- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def epochs_only_grow(self) -> None:
        for name, model in self.models.items():
            described = self.txn.shard.describe(name)
            if described.error is ErrorCode.NONE:
                seen = ProducerIdAndEpoch(described.producer_id, described.producer_epoch)
                if model.seen is not None and model.seen.producer_id == seen.producer_id:
                    assert seen.epoch >= model.seen.epoch
                model.seen = seen

    @invariant()
    def the_log_has_what_everybody_sees(self) -> None:
        loaded = self.txn.loaded()
        unsure = self.unsure | {waiting.append.transactional_id for waiting in self.waiting}
        for name in set(NAMES) - unsure:
            here, there = self.txn.shard.describe(name), loaded.describe(name)
            assert set(here.partitions) <= set(there.partitions)
            for attribute in ("error", "state", "timeout_ms", "start_ms", "producer_id", "producer_epoch"):
                assert getattr(here, attribute) == getattr(there, attribute)

    def teardown(self) -> None:
        # Storage works again, all markers are written, and nobody says anything more: all come to an end.
        for _ in range(4):
            self.all_is_stored_and_marked()
            self.time_passes(2 * TIMEOUT_MS, 10)
        self.all_is_stored_and_marked()
        for name in NAMES:
            described = self.txn.shard.describe(name)
            assert described.state is TransactionState.EMPTY or described.state in COMPLETED, described

    def all_is_stored_and_marked(self) -> None:
        for _ in range(2):
            for model in self.models.values():
                if model.markers is not None:
                    self.report_markers(model.markers, model.markers.partitions)
            while self.waiting:
                waiting = self.waiting.pop()
                self.report(waiting, ErrorCode.NOT_ENOUGH_REPLICAS if waiting.at is None else ErrorCode.NONE)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(stateful_step_count=50)
