"""``elect`` and ``reassign`` on a ZooKeeper in memory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.cli import reassign
from minikafka.clients.admin.zookeeper import elections
from minikafka.registry import paths
from minikafka.registry.controller import PreferredElection, Reassignments
from minikafka.registry.topics import TopicAssignment
from tests.support.command_line import CommandLine
from tests.support.zookeeper_with_topics import assign, cluster, set_state

PLAN = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}'


class ReassignHarness(CommandLine):
    """Commands on a ZooKeeper in which topic t has two partitions on brokers 0 and 1; there is a broker 2."""

    def __init__(
        self, capture: pytest.CaptureFixture[str], directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().__init__(capture)
        self.options = ("--zookeeper", "memory")
        self.store = cluster({"t": {0: (0, 1), 1: (1, 0)}})
        self.plan = directory / "plan.json"
        self.plan.write_text(PLAN)
        self._monkeypatch = monkeypatch

    def execute(self, *options: str) -> int:
        return self.run("reassign", "execute", "--file", str(self.plan), *options)

    def verify(self, *options: str) -> int:
        return self.run("reassign", "verify", "--file", str(self.plan), *options)

    def begin(self, topic: str, partition: int, *replicas: int) -> None:
        """Somebody has asked for it."""
        asked = Reassignments({TopicPartition(topic, partition): replicas})
        self.store.create(paths.REASSIGN_PARTITIONS, asked.to_json(), make_parents=True)

    def throttled(self) -> list[object]:
        """The rates and lists of replicas that are set."""
        znodes = (*(f"/config/brokers/{number}" for number in range(3)), "/config/topics/t")
        found = [json.loads(self.store.read(path)[0])["config"] for path in znodes]
        return [config for config in found if config]

    def controller(self, *, moves: bool = True, elects: bool = True) -> None:
        """Whenever somebody waits, what was asked for is done, and taken away in any case."""
        store = self.store

        def act(seconds: float) -> None:
            if store.exists(paths.REASSIGN_PARTITIONS):
                wanted = Reassignments.from_json(store.read(paths.REASSIGN_PARTITIONS)[0]).partitions
                store.delete(paths.REASSIGN_PARTITIONS)
                for (topic, partition), replicas in wanted.items():
                    if moves:
                        assign(store, topic, {0: (0, 1), 1: (1, 0), partition: replicas})
                        set_state(store, topic, partition, replicas[0], replicas)
            if store.exists(paths.PREFERRED_ELECTION):
                asked = PreferredElection.from_json(store.read(paths.PREFERRED_ELECTION)[0]).partitions
                store.delete(paths.PREFERRED_ELECTION)
                for topic, partition in asked:
                    if elects:
                        set_state(store, topic, partition, partition, (0, 1))

        self._monkeypatch.setattr("time.sleep", act)


@pytest.fixture
def harness(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ReassignHarness:
    made = ReassignHarness(capfd, tmp_path, monkeypatch)

    monkeypatch.setattr(
        "minikafka.cli.connection.connect.zookeeper_store",
        lambda *_, **__: contextlib.nullcontext(made.store),
    )
    return made


def test_a_dry_election_shows_who_leads_and_who_should(harness: ReassignHarness) -> None:
    set_state(harness.store, "t", 0, 1, (1, 0))
    set_state(harness.store, "t", 1, 0, (0,))
    assert harness.run("elect", "--all", "--dry-run") == 0
    assert harness.lines == [
        "TOPIC  PARTITION  LEADER  PREFERRED  IN SYNC  DONE",
        "t              0       1          0  1,0      no",
        "t              1       0          1  0        no",
    ]
    assert harness.err == (
        "minikafka: 1 of 2 partitions would get another leader; in 1 the preferred replica is not in sync; "
        "nothing was changed\n"
    )
    assert harness.store.exists(paths.PREFERRED_ELECTION) is None


@pytest.mark.parametrize(("elects", "status"), [(True, 0), (False, 1)])
def test_election_status_shows_if_preferred_replicas_lead(
    harness: ReassignHarness, elects: bool, status: int
) -> None:
    set_state(harness.store, "t", 1, 0, (1, 0))
    harness.controller(elects=elects)
    assert harness.run("elect", "t", "--format", "json") == status
    found = harness.rows
    assert [(row["partition"], row["done"]) for row in found] == [(1, elects)]
    created, started, *_ = harness.err.splitlines()
    written = '{"version":1,"partitions":[{"topic":"t","partition":1}]}'
    assert created == f"Created preferred replica election path with {written}"
    assert started == "Successfully started preferred replica election for partitions Set([t,1])"


def test_an_election_of_all_leaves_out_what_is_marked_for_deletion(harness: ReassignHarness) -> None:
    going = paths.topic_path("going")
    harness.store.create(going, TopicAssignment({0: (0, 1)}).to_json())
    harness.store.create(f"{paths.DELETE_TOPICS}/going")
    set_state(harness.store, "t", 1, 0, (1, 0))
    harness.controller()
    assert harness.run("elect", "--all") == 0
    assert "going" not in harness.out
    assert harness.err.startswith("minikafka: skipped, marked for deletion: going\n")
    assert harness.run("elect", "going") == 2


@pytest.mark.parametrize(
    "options",
    [
        "--election-type preferred --topic t --partition 1",
        "--election-type PREFERRED --all-topic-partitions",
        "--path-to-json-file FILE",
    ],
)
def test_the_options_of_kafkas_newer_tool_are_taken(harness: ReassignHarness, options: str) -> None:
    harness.plan.write_text('{"partitions": [{"topic": "t", "partition": 1}]}')
    set_state(harness.store, "t", 1, 0, (1, 0))
    harness.controller()
    words = options.replace("FILE", str(harness.plan)).split()
    assert harness.run("elect", *words, "--format", "json") == 0
    assert [(row["partition"], row["done"]) for row in harness.rows][-1:] == [(1, True)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--topic t", "--partition: required with --topic"),
        ("--partition 0", "--topic: required with --partition"),
        ("t --topic t --partition 0", "TOPIC and --topic conflict"),
        ("--topic nosuch --partition 0", "nosuch"),
        ("--all --election-type any", "--election-type='any': must be one of preferred, unclean"),
    ],
)
def test_a_choice_of_partitions_must_be_whole(harness: ReassignHarness, options: str, message: str) -> None:
    assert harness.run("elect", *options.split()) == 2
    assert message in harness.err


def test_an_unclean_election_needs_the_brokers(harness: ReassignHarness) -> None:
    set_state(harness.store, "t", 1, -1, (1,))
    assert harness.run("elect", "t", "--unclean") == 2
    assert harness.run("elect", "t", "--election-type", "unclean") == 2
    assert "--unclean='given': must be asked of the brokers: leave out --zookeeper" in harness.err


def test_an_election_that_nothing_wants_asks_nobody(harness: ReassignHarness) -> None:
    assert harness.run("elect", "--all") == 0
    assert "the preferred replica already leads every partition" in harness.err
    assert harness.store.exists(paths.PREFERRED_ELECTION) is None


def test_an_election_larger_than_a_znode_goes_in_rounds(
    harness: ReassignHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_state(harness.store, "t", 0, 1, (0, 1))
    set_state(harness.store, "t", 1, 0, (1, 0))
    monkeypatch.setattr(elections, "DATA_MAX_BYTES", 140)
    harness.controller()
    assert harness.run("elect", "--all", "--format", "json") == 0
    assert [json.loads(line)["done"] for line in harness.lines] == [True, True]
    printed = [line for line in harness.err.splitlines() if line.startswith("minikafka: ")]
    assert printed == ["minikafka: round 1 of 2: 1 partition", "minikafka: round 2 of 2: 1 partition"]
    assert [line[-5:] for line in harness.err.splitlines() if "Successfully" in line] == ["t,0])", "t,1])"]


def test_an_election_that_does_not_end_goes_on(harness: ReassignHarness) -> None:
    set_state(harness.store, "t", 1, 0, (1, 0))
    assert harness.run("elect", "--all", "--timeout", "0") == 1
    assert "not ended after 0 s and continues" in harness.err
    assert harness.run("elect", "--all") == 1
    assert "has been in progress since" in harness.err


@pytest.mark.parametrize("command", ["elect", "reassign execute", "reassign verify", "reassign generate"])
def test_an_error_about_a_file_names_it(harness: ReassignHarness, command: str) -> None:
    harness.plan.write_text("{")
    brokers = ["--brokers", "0"] if command.endswith("generate") else []
    assert harness.run(*command.split(), "--file", str(harness.plan), *brokers) == 2
    assert f"--file='{harness.plan}': " in harness.err


@pytest.mark.parametrize(
    ("arguments", "problem"), [([], "no partitions are named"), (["t", "--all"], "TOPIC and --all conflict")]
)
def test_an_election_is_for_one_choice_of_partitions(
    harness: ReassignHarness, arguments: list[str], problem: str
) -> None:
    assert harness.run("elect", *arguments) == 2
    expected = f"minikafka: {problem}; set exactly one of TOPIC, --topic, --file J and --all\n"
    assert harness.err == expected


def test_unknown_topic_is_named_without_a_partition(harness: ReassignHarness) -> None:
    harness.plan.write_text(PLAN.replace('"t"', '"nope"'))
    for arguments in (["elect", "nope"], ["reassign", "execute", "--file", str(harness.plan)]):
        assert harness.run(*arguments) == 2
        expected = "minikafka: topic='nope': there is no topic 'nope'; nothing was changed\n"
        assert harness.err == expected


def test_generate_without_topics_says_what_to_set(harness: ReassignHarness) -> None:
    assert harness.run("reassign", "generate", "--brokers", "1") == 2
    expected = "minikafka: no topics are named; set exactly one of TOPIC and --file J\n"
    assert harness.err == expected


def test_a_proposal_is_a_file_for_execute(harness: ReassignHarness, tmp_path: Path) -> None:
    assert harness.run("reassign", "generate", "t", "--brokers", "1, 2") == 0
    out, err = harness.out, harness.err
    assert "run `reassign execute --file`" in err
    (tmp_path / "proposed.json").write_text(out)
    assert harness.run("reassign", "execute", "--file", str(tmp_path / "proposed.json"), "--dry-run") == 0
    assert all(row in out for row in ('"partition":0', '"partition":1'))
    assert harness.store.exists(paths.REASSIGN_PARTITIONS) is None


def test_a_dry_run_shows_what_would_be_copied_and_deleted(harness: ReassignHarness) -> None:
    assert harness.execute("--dry-run") == 0
    assert harness.lines == [
        "TOPIC  PARTITION  BEFORE  AFTER  ADDS  REMOVES",
        "t              0  0,1     2,1    2     0",
    ]
    assert harness.err == "minikafka: 1 of 1 partition changes, 1 replica to copy; nothing was changed\n"
    assert harness.store.exists(paths.REASSIGN_PARTITIONS) is None


@pytest.mark.parametrize(("moves", "status", "word"), [(True, 0, "done"), (False, 1, "failed")])
def test_executing_waits_for_the_end_and_tells_the_way_back(
    harness: ReassignHarness, moves: bool, status: int, word: str
) -> None:
    harness.controller(moves=moves)
    assert harness.execute() == status
    assert word in harness.lines[1]
    way_back = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[0,1]}]}'
    assert f"the plan for a rollback: {way_back}\n" in harness.err


def test_verifying_has_a_status_for_done_failed_and_under_way(harness: ReassignHarness) -> None:
    assert harness.verify() == 1
    assert harness.execute("--no-wait") == 0
    assert harness.verify() == reassign.UNDER_WAY
    harness.store.delete(paths.REASSIGN_PARTITIONS)
    assign(harness.store, "t", {0: (2, 1), 1: (1, 0)})
    assert harness.verify("--format", "json") == 0
    assert [(row["status"], row["replicas"]) for row in harness.rows] == [("done", [2, 1])]


@pytest.mark.parametrize("listed", [(0, 1), (2, 1, 0), (2, 1)])
def test_executing_again_what_is_under_way_waits_for_it(
    harness: ReassignHarness, listed: tuple[int, ...]
) -> None:
    harness.begin("t", 0, 2, 1)
    assign(harness.store, "t", {0: listed, 1: (1, 0)})
    for option in ("--no-wait", "--dry-run"):
        assert harness.execute(option) == 0
        assert harness.lines[1].endswith("under way")
        assert harness.err == "minikafka: already in progress; `reassign verify` shows its progress\n"
    harness.controller()
    assert harness.execute() == 0
    assert harness.lines[1].endswith("done")
    assert harness.err == "minikafka: already in progress\n"


def test_who_waits_for_one_under_way_ends_its_throttle(harness: ReassignHarness) -> None:
    assert harness.execute("--throttle", "1000", "--no-wait") == 0
    harness.controller()
    assert harness.execute() == 0
    assert harness.err.endswith("minikafka: all is done; the throttle is removed\n")
    assert harness.throttled() == []


def test_executing_again_what_waits_for_a_dead_broker_says_so(harness: ReassignHarness) -> None:
    harness.begin("t", 0, 2, 1)
    harness.store.delete(paths.broker_path(2))
    assert harness.execute() == 1
    assert "is in progress, and waits for brokers that are not alive: start [2]" in harness.err


@pytest.mark.parametrize("throttle", [[], ["--throttle", "2000"]])
def test_another_plan_is_refused_while_one_is_under_way(
    harness: ReassignHarness, throttle: list[str]
) -> None:
    harness.begin("t", 1, 2, 0)
    assert harness.execute(*throttle) == 1
    assert harness.err == "minikafka: another reassignment is in progress: t-1; this plan was not started\n"
    assert harness.store.exists("/config/brokers") is None
    assert harness.execute("--dry-run", *throttle) == 0
    assert "nothing was changed; cannot start before the end of another reassignment, of t-1" in harness.err


def test_verifying_an_old_plan_keeps_the_throttle_of_what_is_under_way(harness: ReassignHarness) -> None:
    assert harness.execute("--throttle", "1000", "--no-wait") == 0
    harness.plan.write_text(PLAN.replace('"partition":0,"replicas":[2,1]', '"partition":1,"replicas":[1,0]'))
    before = harness.throttled()
    assert harness.verify() == 0
    stays = "the throttle stays for the reassignment of t-0; verify again when that is done"
    assert harness.err == f"minikafka: all is done; {stays}\n"
    assert harness.throttled() == before


def test_a_list_has_all_that_is_under_way_and_whom_it_waits_for(harness: ReassignHarness) -> None:
    assert harness.run("reassign", "list") == 0
    said = "minikafka: no reassignment that was requested in ZooKeeper is in progress\n"
    assert (harness.out, harness.err) == ("", said)
    asked = {TopicPartition("t", 0): (2, 1), TopicPartition("t", 1): (1, 9), TopicPartition("gone", 0): (1,)}
    harness.store.create(paths.REASSIGN_PARTITIONS, Reassignments(asked).to_json(), make_parents=True)
    assert harness.run("reassign", "list") == 0
    header, *lines = harness.lines
    assert header.split() == ["TOPIC", "PARTITION", "REPLICAS", "IN", "SYNC", "WANTED", "STATUS", "REASON"]
    assert [" ".join(line.split()) for line in lines] == [
        "gone 0 - - 1 failed there is no topic 'gone'",
        "t 0 0,1 0,1 2,1 under way -",
        "t 1 1,0 1,0 1,9 under way waits for brokers that are not alive: start [9]",
    ]
    assert harness.run("reassign", "list", "--format", "json") == 0
    assert [row["wanted"] for row in harness.rows] == [[1], [2, 1], [1, 9]]


def test_a_list_tells_of_the_rate_that_copying_keeps_to(harness: ReassignHarness) -> None:
    assert harness.execute("--throttle", "5", "--no-wait") == 0
    assert harness.run("reassign", "list") == 0
    assert harness.err == (
        "minikafka: 1 partition in progress; copying is throttled to 5 bytes per second until all are done\n"
    )


def test_verifying_what_failed_tells_why(harness: ReassignHarness) -> None:
    assert harness.verify() == 1
    reason = "has replicas [0, 1], wanted [2, 1]; no reassignment is in progress"
    assert harness.lines == [
        "TOPIC  PARTITION  REPLICAS  IN SYNC  STATUS  REASON",
        f"t              0  0,1       0,1      failed  {reason}",
    ]
    assert "nothing was changed" not in harness.err


def test_verifying_what_was_deleted_tells_so_and_ends_the_throttle(harness: ReassignHarness) -> None:
    assert harness.execute("--throttle", "1000", "--no-wait") == 0
    harness.store.delete(paths.REASSIGN_PARTITIONS)
    harness.plan.write_text(PLAN.replace('"t"', '"gone"'))
    assert harness.verify() == 1
    assert harness.lines[1].endswith("failed  there is no topic 'gone'")
    assert harness.err == "minikafka: 0 of 1 partition done, the rest deleted; the throttle is removed\n"


def test_a_throttle_ends_with_the_wait(harness: ReassignHarness) -> None:
    harness.controller()
    assert harness.execute("--throttle", "1000") == 0
    assert harness.err.endswith("minikafka: all is done; the throttle is removed\n")
    assert harness.throttled() == []


def test_throttle_stays_in_progress_and_ends_with_verify(harness: ReassignHarness) -> None:
    assert harness.execute("--throttle", "1000", "--no-wait") == 0
    assert harness.execute("--throttle", "2000") == 0
    assert "already in progress; brokers 0, 1, 2 are now throttled to 2000 bytes per second" in harness.err
    assert harness.verify() == reassign.UNDER_WAY
    throttle = "copying is throttled to 2000 bytes per second until all are done"
    assert harness.err == f"minikafka: 0 of 1 partition done; {throttle}\n"
    assert len(harness.throttled()) == 4
    harness.store.delete(paths.REASSIGN_PARTITIONS)
    assign(harness.store, "t", {0: (2, 1), 1: (1, 0)})
    assert harness.verify() == 0
    assert harness.err == "minikafka: all is done; the throttle is removed\n"
    assert harness.throttled() == []


def test_a_throttle_of_what_failed_stays_and_is_told_of(harness: ReassignHarness) -> None:
    harness.controller(moves=False)
    assert harness.execute("--throttle", "1000") == 1
    assert "copying is throttled to 1000 bytes per second until all are done" in harness.err
    assert len(harness.throttled()) == 4


def test_a_dry_run_sets_no_throttle(harness: ReassignHarness) -> None:
    assert harness.execute("--throttle", "1000", "--dry-run") == 0
    assert harness.store.exists("/config/brokers") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "invalid JSON"),
        (PLAN.replace('"t"', '"tt"'), "there is no topic 'tt'; there is 't'; nothing was changed"),
        (PLAN.replace("[2,1]", "[7,1]"), "7 is not alive; live brokers: 0, 1, 2; nothing was changed"),
        (PLAN.replace("[2,1]", "[2,2]"), "invalid replicas [2, 2]"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line_and_status_two(
    harness: ReassignHarness, text: str, words: str
) -> None:
    harness.plan.write_text(text)
    assert harness.execute() == 2
    assert words in harness.err
    assert harness.err.count("\n") == 1
    assert harness.store.exists(paths.REASSIGN_PARTITIONS) is None


@pytest.mark.parametrize("brokers", ["", "a", "1;2", "1,"])
def test_brokers_are_named_by_their_ids(harness: ReassignHarness, brokers: str) -> None:
    assert harness.run("reassign", "generate", "t", "--brokers", brokers) == 2
    assert "must be broker ids separated by commas, such as 1,2" in harness.err


def test_a_broker_that_does_not_live_is_named_with_its_option(harness: ReassignHarness) -> None:
    assert harness.run("reassign", "generate", "t", "--brokers", "0,9") == 2
    assert "--brokers='0,9': 9 is not alive; live brokers: " in harness.err
