"""``elect`` and ``reassign`` on a ZooKeeper in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.cli import reassign
from minikafka.cli.commands import run
from minikafka.clients.admin.zookeeper import elections
from minikafka.registry import paths
from minikafka.registry.controller import PreferredElection, Reassignments
from minikafka.registry.memory import MemoryStore
from minikafka.registry.store import Store
from minikafka.registry.topics import TopicAssignment
from tests.support.command_line import CommandLine
from tests.support.zookeeper_with_topics import assign, cluster, set_state

PLAN = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1]}]}'


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """Topic t has two partitions on brokers 0 and 1; there is a broker 2."""
    store = cluster({"t": {0: (0, 1), 1: (1, 0)}})

    @contextlib.contextmanager
    def coordinated(*_: object) -> Iterator[Store]:
        yield store

    monkeypatch.setattr("minikafka.cli.connect.zookeeper_store", coordinated)
    return store


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(PLAN)
    return str(path)


def controller(
    monkeypatch: pytest.MonkeyPatch, store: MemoryStore, *, moves: bool = True, elects: bool = True
) -> None:
    """Whenever somebody waits, what was asked for is done, and taken away in any case."""

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

    monkeypatch.setattr("time.sleep", act)


def test_a_dry_election_shows_who_leads_and_who_should(store: MemoryStore, cli: CommandLine) -> None:
    set_state(store, "t", 0, 1, (1, 0))
    set_state(store, "t", 1, 0, (0,))
    assert cli.run("elect", "--all", "--dry-run") == 0
    assert cli.lines == [
        "TOPIC  PARTITION  LEADER  PREFERRED  IN SYNC  DONE",
        "t              0       1          0  1,0      no",
        "t              1       0          1  0        no",
    ]
    assert cli.err == (
        "minikafka: 1 of 2 partitions would get another leader; in 1 the preferred replica is not in sync; "
        "nothing was changed\n"
    )
    assert store.exists(paths.PREFERRED_ELECTION) is None


@pytest.mark.parametrize(("elects", "status"), [(True, 0), (False, 1)])
def test_election_status_shows_if_preferred_replicas_lead(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine, elects: bool, status: int
) -> None:
    set_state(store, "t", 1, 0, (1, 0))
    controller(monkeypatch, store, elects=elects)
    assert cli.run("elect", "t", "--format", "json") == status
    found = cli.rows
    assert [(row["partition"], row["done"]) for row in found] == [(1, elects)]
    created, started, *_ = cli.err.splitlines()
    written = '{"version":1,"partitions":[{"topic":"t","partition":1}]}'
    assert created == f"Created preferred replica election path with {written}"
    assert started == "Successfully started preferred replica election for partitions Set([t,1])"


def test_an_election_of_all_leaves_out_what_is_marked_for_deletion(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    going = paths.topic_path("going")
    store.create(going, TopicAssignment({0: (0, 1)}).to_json())
    store.create(f"{paths.DELETE_TOPICS}/going")
    set_state(store, "t", 1, 0, (1, 0))
    controller(monkeypatch, store)
    assert cli.run("elect", "--all") == 0
    assert "going" not in cli.out
    assert cli.err.startswith("minikafka: skipped, marked for deletion: going\n")
    assert cli.run("elect", "going") == 2


def test_an_election_that_nothing_wants_asks_nobody(store: MemoryStore, cli: CommandLine) -> None:
    assert cli.run("elect", "--all") == 0
    assert "the preferred replica already leads every partition" in cli.err
    assert store.exists(paths.PREFERRED_ELECTION) is None


def test_an_election_larger_than_a_znode_goes_in_rounds(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    set_state(store, "t", 0, 1, (0, 1))
    set_state(store, "t", 1, 0, (1, 0))
    monkeypatch.setattr(elections, "DATA_MAX_BYTES", 140)
    controller(monkeypatch, store)
    assert cli.run("elect", "--all", "--format", "json") == 0
    assert [json.loads(line)["done"] for line in cli.lines] == [True, True]
    printed = [line for line in cli.err.splitlines() if line.startswith("minikafka: ")]
    assert printed == ["minikafka: round 1 of 2: 1 partition", "minikafka: round 2 of 2: 1 partition"]
    assert [line[-5:] for line in cli.err.splitlines() if "Successfully" in line] == ["t,0])", "t,1])"]


def test_an_election_that_does_not_end_goes_on(store: MemoryStore, cli: CommandLine) -> None:
    set_state(store, "t", 1, 0, (1, 0))
    assert cli.run("elect", "--all", "--timeout", "0") == 1
    assert "not ended after 0 s and continues" in cli.err
    assert cli.run("elect", "--all") == 1
    assert "has been in progress since" in cli.err


@pytest.mark.parametrize("command", ["elect", "reassign execute", "reassign verify", "reassign generate"])
def test_an_error_about_a_file_names_it(
    store: MemoryStore, cli: CommandLine, plan: str, command: str
) -> None:
    Path(plan).write_text("{")
    brokers = ["--brokers", "0"] if command.endswith("generate") else []
    assert cli.run(*command.split(), "--file", plan, *brokers) == 2
    assert f"--file='{plan}': " in cli.err


@pytest.mark.parametrize(
    ("arguments", "problem"), [([], "no partitions are named"), (["t", "--all"], "TOPIC and --all conflict")]
)
def test_an_election_is_for_one_choice_of_partitions(
    store: MemoryStore, cli: CommandLine, arguments: list[str], problem: str
) -> None:
    assert cli.run("elect", *arguments) == 2
    expected = f"minikafka: {problem}; set exactly one of TOPIC, --file J and --all\n"
    assert cli.err == expected


def test_unknown_topic_is_named_without_a_partition(store: MemoryStore, cli: CommandLine, plan: str) -> None:
    Path(plan).write_text(PLAN.replace('"t"', '"nope"'))
    for arguments in (["elect", "nope"], ["reassign", "execute", "--file", plan]):
        assert cli.run(*arguments) == 2
        expected = "minikafka: topic='nope': there is no topic 'nope'; nothing was changed\n"
        assert cli.err == expected


def test_generate_without_topics_says_what_to_set(store: MemoryStore, cli: CommandLine) -> None:
    assert cli.run("reassign", "generate", "--brokers", "1") == 2
    expected = "minikafka: no topics are named; set exactly one of TOPIC and --file J\n"
    assert cli.err == expected


def test_a_proposal_is_a_file_for_execute(store: MemoryStore, cli: CommandLine, tmp_path: Path) -> None:
    assert cli.run("reassign", "generate", "t", "--brokers", "1, 2") == 0
    out, err = cli.out, cli.err
    assert "run `reassign execute --file`" in err
    (tmp_path / "proposed.json").write_text(out)
    assert cli.run("reassign", "execute", "--file", str(tmp_path / "proposed.json"), "--dry-run") == 0
    assert all(row in out for row in ('"partition":0', '"partition":1'))
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


def test_a_dry_run_shows_what_would_be_copied_and_deleted(
    store: MemoryStore, cli: CommandLine, plan: str
) -> None:
    assert cli.run("reassign", "execute", "--file", plan, "--dry-run") == 0
    assert cli.lines == [
        "TOPIC  PARTITION  BEFORE  AFTER  ADDS  REMOVES",
        "t              0  0,1     2,1    2     0",
    ]
    assert cli.err == "minikafka: 1 of 1 partition changes, 1 replica to copy; nothing was changed\n"
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


@pytest.mark.parametrize(("moves", "status", "word"), [(True, 0, "done"), (False, 1, "failed")])
def test_executing_waits_for_the_end_and_tells_the_way_back(
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    cli: CommandLine,
    plan: str,
    moves: bool,
    status: int,
    word: str,
) -> None:
    controller(monkeypatch, store, moves=moves)
    assert cli.run("reassign", "execute", "--file", plan) == status
    assert word in cli.lines[1]
    way_back = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[0,1]}]}'
    assert f"the plan for a rollback: {way_back}\n" in cli.err


def test_verifying_has_a_status_for_done_failed_and_under_way(
    store: MemoryStore, cli: CommandLine, plan: str
) -> None:
    verify = ["reassign", "verify", "--file", plan, "--format", "json"]
    assert cli.run(*verify) == 1
    assert cli.run("reassign", "execute", "--file", plan, "--no-wait") == 0
    assert cli.run(*verify) == reassign.UNDER_WAY
    store.delete(paths.REASSIGN_PARTITIONS)
    assign(store, "t", {0: (2, 1), 1: (1, 0)})
    assert cli.run(*verify) == 0
    assert [(row["status"], row["replicas"]) for row in cli.rows] == [("done", [2, 1])]


def begin(store: MemoryStore, topic: str, partition: int, *replicas: int) -> None:
    """Somebody has asked for it."""
    asked = Reassignments({TopicPartition(topic, partition): replicas})
    store.create(paths.REASSIGN_PARTITIONS, asked.to_json(), make_parents=True)


@pytest.mark.parametrize("listed", [(0, 1), (2, 1, 0), (2, 1)])
def test_executing_again_what_is_under_way_waits_for_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine, plan: str, listed: tuple[int, ...]
) -> None:
    begin(store, "t", 0, 2, 1)
    assign(store, "t", {0: listed, 1: (1, 0)})
    execute = ["reassign", "execute", "--file", plan]
    for option in ("--no-wait", "--dry-run"):
        assert cli.run(*execute, option) == 0
        assert cli.lines[1].endswith("under way")
        assert cli.err == "minikafka: already in progress; `reassign verify` shows its progress\n"
    controller(monkeypatch, store)
    assert cli.run(*execute) == 0
    assert cli.lines[1].endswith("done")
    assert cli.err == "minikafka: already in progress\n"


def test_who_waits_for_one_under_way_ends_its_throttle(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine, plan: str
) -> None:
    execute = ["reassign", "execute", "--file", plan]
    assert cli.run(*execute, "--throttle", "1000", "--no-wait") == 0
    controller(monkeypatch, store)
    assert cli.run(*execute) == 0
    assert cli.err.endswith("minikafka: all is done; the throttle is removed\n")
    assert throttled(store) == []


def test_executing_again_what_waits_for_a_dead_broker_says_so(
    store: MemoryStore, cli: CommandLine, plan: str
) -> None:
    begin(store, "t", 0, 2, 1)
    store.delete(paths.broker_path(2))
    assert cli.run("reassign", "execute", "--file", plan) == 1
    assert "is in progress, and waits for brokers that are not alive: start [2]" in cli.err


@pytest.mark.parametrize("throttle", [[], ["--throttle", "2000"]])
def test_another_plan_is_refused_while_one_is_under_way(
    store: MemoryStore, cli: CommandLine, plan: str, throttle: list[str]
) -> None:
    begin(store, "t", 1, 2, 0)
    assert cli.run("reassign", "execute", "--file", plan, *throttle) == 1
    assert cli.err == "minikafka: another reassignment is in progress: t-1; this plan was not started\n"
    assert store.exists("/config/brokers") is None
    assert cli.run("reassign", "execute", "--file", plan, "--dry-run", *throttle) == 0
    assert "nothing was changed; cannot start before the end of another reassignment, of t-1" in cli.err


def test_verifying_an_old_plan_keeps_the_throttle_of_what_is_under_way(
    store: MemoryStore, cli: CommandLine, plan: str
) -> None:
    assert cli.run("reassign", "execute", "--file", plan, "--throttle", "1000", "--no-wait") == 0
    Path(plan).write_text(PLAN.replace('"partition":0,"replicas":[2,1]', '"partition":1,"replicas":[1,0]'))
    before = throttled(store)
    assert cli.run("reassign", "verify", "--file", plan) == 0
    stays = "the throttle stays for the reassignment of t-0; verify again when that is done"
    assert cli.err == f"minikafka: all is done; {stays}\n"
    assert throttled(store) == before


def test_a_list_has_all_that_is_under_way_and_whom_it_waits_for(store: MemoryStore, cli: CommandLine) -> None:
    assert cli.run("reassign", "list") == 0
    assert (cli.out, cli.err) == ("", "minikafka: no reassignment is in progress\n")
    asked = {TopicPartition("t", 0): (2, 1), TopicPartition("t", 1): (1, 9), TopicPartition("gone", 0): (1,)}
    store.create(paths.REASSIGN_PARTITIONS, Reassignments(asked).to_json(), make_parents=True)
    assert cli.run("reassign", "list") == 0
    header, *lines = cli.lines
    assert header.split() == ["TOPIC", "PARTITION", "REPLICAS", "IN", "SYNC", "WANTED", "STATUS", "REASON"]
    assert [" ".join(line.split()) for line in lines] == [
        "gone 0 - - 1 failed there is no topic 'gone'",
        "t 0 0,1 0,1 2,1 under way -",
        "t 1 1,0 1,0 1,9 under way waits for brokers that are not alive: start [9]",
    ]
    assert cli.run("reassign", "list", "--format", "json") == 0
    assert [row["wanted"] for row in cli.rows] == [[1], [2, 1], [1, 9]]


def test_a_list_tells_of_the_rate_that_copying_keeps_to(
    store: MemoryStore, plan: str, cli: CommandLine
) -> None:
    assert cli.run("reassign", "execute", "--file", plan, "--throttle", "5", "--no-wait") == 0
    assert cli.run("reassign", "list") == 0
    assert cli.err == (
        "minikafka: 1 partition in progress; copying is throttled to 5 bytes per second until all are done\n"
    )


def test_verifying_what_failed_tells_why(store: MemoryStore, cli: CommandLine, plan: str) -> None:
    assert cli.run("reassign", "verify", "--file", plan) == 1
    reason = "has replicas [0, 1], wanted [2, 1]; no reassignment is in progress"
    assert cli.lines == [
        "TOPIC  PARTITION  REPLICAS  IN SYNC  STATUS  REASON",
        f"t              0  0,1       0,1      failed  {reason}",
    ]
    assert "nothing was changed" not in cli.err


def test_verifying_what_was_deleted_tells_so_and_ends_the_throttle(
    store: MemoryStore, cli: CommandLine, plan: str
) -> None:
    assert cli.run("reassign", "execute", "--file", plan, "--throttle", "1000", "--no-wait") == 0
    store.delete(paths.REASSIGN_PARTITIONS)
    Path(plan).write_text(PLAN.replace('"t"', '"gone"'))
    assert cli.run("reassign", "verify", "--file", plan) == 1
    assert cli.lines[1].endswith("failed  there is no topic 'gone'")
    assert cli.err == "minikafka: 0 of 1 partition done, the rest deleted; the throttle is removed\n"


def throttled(store: MemoryStore) -> list[object]:
    """The rates and lists of replicas that are set."""
    found = [json.loads(store.read(f"/config/brokers/{number}")[0])["config"] for number in range(3)]
    return [config for config in (*found, json.loads(store.read("/config/topics/t")[0])["config"]) if config]


def test_a_throttle_ends_with_the_wait(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine, plan: str
) -> None:
    controller(monkeypatch, store)
    assert cli.run("reassign", "execute", "--file", plan, "--throttle", "1000") == 0
    assert cli.err.endswith("minikafka: all is done; the throttle is removed\n")
    assert throttled(store) == []


def test_throttle_stays_in_progress_and_ends_with_verify(
    store: MemoryStore, cli: CommandLine, plan: str
) -> None:
    verify, execute = (["reassign", action, "--file", plan] for action in ("verify", "execute"))
    assert cli.run(*execute, "--throttle", "1000", "--no-wait") == 0
    assert cli.run(*execute, "--throttle", "2000") == 0
    assert "already in progress; brokers 0, 1, 2 are now throttled to 2000 bytes per second" in cli.err
    assert cli.run(*verify) == reassign.UNDER_WAY
    throttle = "copying is throttled to 2000 bytes per second until all are done"
    assert cli.err == f"minikafka: 0 of 1 partition done; {throttle}\n"
    assert len(throttled(store)) == 4
    store.delete(paths.REASSIGN_PARTITIONS)
    assign(store, "t", {0: (2, 1), 1: (1, 0)})
    assert cli.run(*verify) == 0
    assert cli.err == "minikafka: all is done; the throttle is removed\n"
    assert throttled(store) == []


def test_a_throttle_of_what_failed_stays_and_is_told_of(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, cli: CommandLine, plan: str
) -> None:
    controller(monkeypatch, store, moves=False)
    assert cli.run("reassign", "execute", "--file", plan, "--throttle", "1000") == 1
    assert "copying is throttled to 1000 bytes per second until all are done" in cli.err
    assert len(throttled(store)) == 4


def test_a_dry_run_sets_no_throttle(store: MemoryStore, plan: str) -> None:
    assert run(["reassign", "execute", "--file", plan, "--throttle", "1000", "--dry-run"]) == 0
    assert store.exists("/config/brokers") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "invalid JSON"),
        (PLAN.replace('"t"', '"tt"'), "there is no topic 'tt'; there is 't'; nothing was changed"),
        (PLAN.replace("[2,1]", "[7,1]"), "live brokers are [0, 1, 2]; nothing was changed"),
        (PLAN.replace("[2,1]", "[2,2]"), "invalid replicas [2, 2]"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line_and_status_two(
    store: MemoryStore, cli: CommandLine, plan: str, text: str, words: str
) -> None:
    Path(plan).write_text(text)
    assert cli.run("reassign", "execute", "--file", plan) == 2
    assert words in cli.err
    assert cli.err.count("\n") == 1
    assert store.exists(paths.REASSIGN_PARTITIONS) is None


@pytest.mark.parametrize("brokers", ["", "a", "1;2", "1,"])
def test_brokers_are_named_by_their_ids(cli: CommandLine, brokers: str) -> None:
    assert cli.run("reassign", "generate", "t", "--brokers", brokers) == 2
    assert "must be broker ids separated by commas, such as 1,2" in cli.err
