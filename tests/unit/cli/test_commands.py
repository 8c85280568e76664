from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import minikafka
from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    DirectoryLocked,
    ErrorCode,
    NetworkError,
    NoAuth,
    StorageError,
)
from minikafka.cli import commands
from minikafka.cli.acl import AclRequestFailed
from minikafka.cli.commands import argument_names, error_line
from minikafka.clients.network.response_errors import authorization_hint
from minikafka.embedded.broker import BrokerFailed
from tests.support.command_line import CommandLine

NOUNS = [
    "up",
    "broker",
    "topic",
    "txn",
    "produce",
    "consume",
    "profile",
    "group",
    "config",
    "cluster",
    "console",
    "completion",
    "container",
    "elect",
    "reassign",
    "acl",
    "user",
    "log",
    "logs",
    "perf",
    "ps",
    "stop",
]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("--codec", "zip", "none, gzip, snappy or lz4"), 2),
        (DirectoryLocked("d is in use"), 2),
        (BrokerError(ErrorCode.INVALID_TOPIC, "a b"), 2),
        (BrokerError(ErrorCode.INVALID_CONFIG, "x"), 2),
        (BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t"), 1),
        (BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, "t"), 1),
        (BrokerFailed("broker 0: log.layout='x'", 2), 2),
        (BrokerFailed("broker 0: killed", -9), 1),
        (BrokerFailed("broker 0: no ready line", None), 1),
        (StorageError("disk full"), 1),
        (FileNotFoundError(2, "No such file or directory", "f"), 1),
    ],
)
def test_bad_input_ends_with_two_and_a_failure_with_one(error: Exception, status: int) -> None:
    assert error_line(error) == (status, str(error))


def test_when_nobody_answers_the_line_says_how_to_find_or_start_a_broker() -> None:
    status, line = error_line(NetworkError("nobody is there"))
    assert status == 1
    assert line.startswith("nobody is there; ")
    assert "`minikafka up`" in line


def test_advice_of_the_client_is_the_only_one() -> None:
    error = NetworkError("refused", "bootstrap server b:1", "check that a broker runs there")
    assert error_line(error) == (1, "bootstrap server b:1: refused; check that a broker runs there")


def test_where_a_broker_answered_nobody_is_told_to_start_one() -> None:
    error = NetworkError("not acknowledged")
    error.__cause__ = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert error_line(error) == (1, "not acknowledged")


def test_what_rules_forbid_comes_with_where_to_look_for_them() -> None:
    status, line = error_line(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"))
    assert status == 1
    assert line == (
        "TOPIC_AUTHORIZATION_FAILED: no; see `minikafka acl list`; grant access with `minikafka acl add` "
        "(with --zookeeper if the brokers refuse these too)"
    )


def test_missing_credentials_for_zookeeper_come_with_where_to_set_them() -> None:
    error = NoAuth(
        "cannot check /config/changes: its ACL does not allow it; check the credentials for ZooKeeper"
    )
    status, line = error_line(error)
    assert status == 1
    assert line == (
        f"{error}: set --data-dir D, or zookeeper.digest.credentials in the file of --command-config FILE"
    )


def test_advice_about_denied_access_is_given_once() -> None:
    hint = authorization_hint(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Write", "Topic:t")
    _, line = error_line(BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"t-0{hint}"))
    assert line.count("acl list") == 1
    assert line.startswith(
        "TOPIC_AUTHORIZATION_FAILED: t-0; not authorized: Write on Topic:t; see `minikafka acl"
    )


def test_error_without_access_to_rules_does_not_suggest_acl_list() -> None:
    error = AclRequestFailed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no; give --zookeeper")
    assert error_line(error) == (1, "CLUSTER_AUTHORIZATION_FAILED: no; give --zookeeper")


def test_a_mistake_of_ours_says_that_it_is_one() -> None:
    assert error_line(KeyError("x")) == (
        1,
        "internal error: KeyError: 'x'; for the traceback set MINIKAFKA_TRACEBACK=1",
    )


def test_typed_names_are_shown_and_typed_settings_redacted() -> None:
    words = argument_names(["group", "describe", "my.secret:orders"])
    text = "there is no group 'my.secret:orders'"
    assert error_line(StorageError(text), words) == (1, text)
    for typed in (
        ["up", "--set", "client.secret:tiger"],
        ["config", "set", "topic", "t", "client.secret:tiger"],
        ["topic", "create", "t", "--config", "client.secret=tiger"],
    ):
        assert (
            "tiger" not in error_line(StorageError(f"{typed[-1]!r} is no setting"), argument_names(typed))[1]
        )


def test_an_error_of_many_lines_becomes_one() -> None:
    assert error_line(StorageError("first\n  second\n"))[1] == "first second"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["topic", "create"], "Missing argument 'NAME'"),
        (
            ["topic", "create", "t", "--partitions", "0"],
            "--partitions='0': must be a whole number of at least 1",
        ),
        (
            ["topic", "create", "t", "--partitions", "x"],
            "--partitions='x': must be a whole number of at least 1",
        ),
        (["topic", "list", "--format", "xml"], "--format='xml': must be table, json, yaml or csv"),
        (["consume", "t", "--from", "yesterday"], "--from='yesterday'"),
        (["consume", "t", "--max", "0"], "--max='0': must be a whole number of at least 1"),
        (["elect", "--timeout", "nan"], "--timeout='nan': must be a number of seconds, at least 0"),
        (["consume", "t", "--group", "g", "--from", "7"], "--from='7': with --group"),
        (["consume", "t", "--group", "g", "--from", "2013-01-01"], "`group reset` sets other offsets"),
        (["consume", "t", "--group", ""], "--group=''"),
        (["group", "reset", "g"], "minikafka: no new offsets are set; set exactly one of --to-earliest"),
        (
            ["group", "reset", "g", "--to-latest", "--to-offset", "3"],
            "--to-latest and --to-offset conflict; set exactly one of",
        ),
        (
            ["group", "reset", "g", "--to-offset", ""],
            "--to-offset='': must be an offset, a whole number of at least 0",
        ),
        (["group", "reset", "g", "--to-offset", "-1"], "--to-offset='-1': must be an offset"),
        (["group", "reset", "g", "--to-offset", str(2**63)], "must be an offset"),
        (["group", "reset", "g", "--shift-by", ""], "--shift-by='': must be a number of messages"),
        (["group", "reset", "g", "--shift-by", "--5"], "--shift-by='--5': must be a number of messages"),
        (["group", "reset", "g", "--to-time", ""], "--to-time='': must be a time"),
        (["group", "reset", "g", "--by-duration", ""], "--by-duration='': must be a duration"),
        (["group", "reset", "g", "--from-file", ""], "--from-file='': must name a file"),
        (["group", "reset", "g", "--to-time", "noon"], "--to-time='noon': must be a time (2013-01-01"),
        (
            ["group", "reset", "g", "--by-duration", "1x"],
            "--by-duration='1x': must be a duration such as 30m, 1h",
        ),
        (
            ["group", "reset", "g", "--to-latest", "--all-topics", "--topic", "t"],
            "conflicts with --all-topics",
        ),
        (["group", "reset", "g", "--to-latest", "--topic", "t:x"], "--topic='t:x'"),
        (["cluster", "log-dirs", "--broker", "x"], "--broker='x': must be a whole number of at least 0"),
        (["perf", "latency", "t", "--acks", "0"], "--acks='0': must be 1 or all"),
        (["produce", "t", "--codec", "zip"], "--codec='zip': must be one of none, gzip"),
        (["produce", "t", "--key-separator", ""], "--key-separator=''"),
        (["produce", "not a topic"], "INVALID_TOPIC"),
        (["topic", "create", "t", "--config", "novalue"], "--config='novalue'"),
        (["topic", "alter", "t"], "NAME='t': nothing to alter; set --partitions N, --config K=V"),
        (
            ["topic", "alter", "t", "--config", "a.b=1", "--delete-config", "a.b"],
            "cannot be set and deleted by the same command",
        ),
        (["config", "set", "topic", "t"], "K=V: required"),
        (["config", "set", "user", "a\udcff", "producer_byte_rate=1"], r"NAME='a\xff': must be UTF-8"),
        (["config", "set", "client", "c", "--user", "\udcff", "producer_byte_rate=1"], r"--user='\xff'"),
        (["config", "set", "topic", "t", "a.b=\udcff"], r"K=V='a.b=\xff': must be UTF-8"),
        (["topic", "create", "\udcff"], r"NAME='\xff': must be UTF-8"),
        (["topic", "create", "t", "--config", "a=\udcff"], r"--config='a=\xff': must be UTF-8"),
        (["produce", "\udcff"], r"TOPIC='\xff': must be UTF-8"),
        (["consume", "t", "-g", "\udcff"], r"--group='\xff': must be UTF-8"),
        (["group", "seek", "\udcff", "--to", "start"], r"NAME='\xff': must be UTF-8"),
        (["user", "add", "\udcff", "--password-stdin"], r"NAME='\xff': must be UTF-8"),
        (
            ["acl", "add", "--topic", "\udcff", "--allow-principal", "User:a"],
            r"--topic='\xff': must be UTF-8",
        ),
        (["config", "set", "topic", "t", "a.b"], "K=V='a.b'"),
        (["config", "set", "topic", "t", "--delete", "a.b=1"], "--delete='a.b=1'"),
        (["config", "get", "group", "g"], "KIND='group': must be topic, broker, client, user or ip"),
        (["config", "set", "orders", "a.b=1"], "before the name: `config get topic orders`"),
        (["group", "delete"], "NAME: required; set either NAME or --topic T --all-groups"),
        (
            ["topic", "describe", "--unavailable-partitions", "--topics-with-overrides"],
            "--unavailable-partitions: set only one of ",
        ),
        (["cluster", "protect-zookeeper"], "--zookeeper: required (the address that `minikafka up` printed)"),
        (
            ["config", "get", "client", "c", "--bootstrap", "h:1", "--zookeeper", "h:2"],
            "--bootstrap='h:1': conflicts with --zookeeper h:2; set only one of them",
        ),
        (["config", "get", "topic", "t", "--zookeeper", "h:1"], "for topics use --bootstrap"),
        (["config", "get", "broker", "b", "--zookeeper", "h:1"], "NAME='b': must be a broker id"),
        (["config", "set", "client", "c", "quota=5"], "use producer_byte_rate or consumer_byte_rate"),
        (
            ["config", "set", "client", "c", "producer_byte_rate=0"],
            "='0': must be bytes per second, at least 1",
        ),
        (
            ["config", "set", "client", "c", "producer_byte_rate=1024.0"],
            "='1024.0': must be bytes per second, at least 1",
        ),
        (
            ["config", "set", "client", "", "producer_byte_rate=1"],
            "NAME='': must be a client id, or <default>",
        ),
        (["topic", "list", "--bootstrap", "nowhere"], "--bootstrap='nowhere': 'nowhere' has no port"),
        (["up", "--set", "novalue"], "--set='novalue'"),
        (["up", "--brokers", "0"], "--brokers='0': must be a whole number of at least 1"),
        (["up", "--port", "70000"], "--port='70000': must be a whole number from 0 to 65535"),
        (
            ["up", "--port", "0", "--data-dir", "x" * 300],
            f"--data-dir='{'x' * 300}': cannot be created (File name too long)",
        ),
        (
            ["topic", "create", "t", "--data-dir", "x" * 300],
            "cannot be created (File name too long); choose another",
        ),
        (["up", "--host", "192.0.2.1"], "--host='192.0.2.1': is not an address of this host"),
        (["up", "--host", "no.such.host.invalid"], "--host='no.such.host.invalid': "),
        (["broker", "does-not-exist.properties"], "does-not-exist.properties"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments: list[str], message: str, cli: CommandLine) -> None:
    status = cli.run(*arguments)
    assert (status, cli.out) == (2, "")
    assert cli.err.startswith("minikafka: ")
    assert message in cli.err
    assert cli.err.count("\n") == 1


def test_bad_address_in_the_environment_names_the_variable(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", "nowhere")
    assert cli.run("topic", "list") == 2
    assert cli.err.startswith("minikafka: MINIKAFKA_BOOTSTRAP='nowhere': ")


def test_a_properties_file_that_is_no_text_is_named(tmp_path: Path, cli: CommandLine) -> None:
    file = tmp_path / "b.properties"
    file.write_bytes(b"broker.id=1\nx=\xff\n")
    assert cli.run("broker", str(file)) == 2
    expected = f"minikafka: FILE.properties={str(file)!r}: cannot be read: byte 14, 0xff, is not UTF-8\n"
    assert cli.err == expected


def test_a_cluster_that_is_not_there_is_a_failure_that_names_the_address(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minikafka.cli.connection.connect.REACH_TIMEOUT_MS", 200)
    assert cli.run("topic", "list", "--bootstrap", "127.0.0.1:1") == 1
    assert "127.0.0.1:1" in cli.err
    assert cli.err.count("\n") == 1


def test_help_lists_the_nouns_of_this_release_and_no_others(cli: CommandLine) -> None:
    assert cli.run("--help") == 0
    commands, _, end = cli.out.partition("Commands:\n")[2].partition("\n\n")
    assert " ".join(end.split()) == (
        "Commands find the cluster by --bootstrap, MINIKAFKA_BOOTSTRAP or --data-dir, and connect with TLS "
        "and SASL by --command-config or MINIKAFKA_CONFIG. `minikafka COMMAND --help` describes a command; "
        "the guides are in docs/ of the source repository."
    )
    listed = [line.split()[0] for line in commands.splitlines() if line.startswith("  ") and line[2] != " "]
    assert sorted(listed) == sorted(NOUNS)


def test_help_of_a_command_without_bootstrap_does_not_name_it(cli: CommandLine) -> None:
    assert cli.run("cluster", "protect-zookeeper", "--help") == 0
    assert "--bootstrap" not in cli.out
    assert "Instead of --zookeeper" in " ".join(cli.out.split())


@pytest.mark.parametrize(
    "arguments", [[], ["topic"], ["group"], ["config"], ["cluster"], ["reassign"], ["acl"], ["log"], ["perf"]]
)
def test_no_command_shows_the_help_as_it_is_meant_to_be_read(arguments: list[str], cli: CommandLine) -> None:
    cli.run(*arguments, "--help")
    help_text = cli.out
    assert cli.run(*arguments) == 2
    assert (cli.out, cli.err) == ("", help_text)


@pytest.mark.parametrize(
    "noun", ["", "topic", "group", "config", "cluster", "reassign", "acl", "log", "perf"]
)
def test_summaries_of_commands_fit_on_a_line(noun: str, cli: CommandLine) -> None:
    assert cli.run(*noun.split(), "--help") == 0
    commands = cli.out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert commands
    assert [line for line in commands if not line.endswith(".") or line.endswith("...")] == []


def test_the_version_is_one_line(cli: CommandLine) -> None:
    assert cli.run("--version") == 0
    assert (cli.out, cli.err) == (f"minikafka {minikafka.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["consume", "t", "--topic", "t"], "minikafka consume"),
        (["topic", "create"], "minikafka topic create"),
        (["produce", "--nosuch", "a"], "minikafka produce"),
        (["ps", "--fromat", "json"], "minikafka ps"),
        (["consumer"], "minikafka"),
    ],
)
def test_a_command_line_that_cannot_be_says_where_its_help_is(
    arguments: list[str], command: str, cli: CommandLine
) -> None:
    assert cli.run(*arguments) == 2
    assert cli.err.endswith(f"; see `{command} --help`\n")
    assert cli.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["topic", "creat"],
            "No such command 'creat' (did you mean 'create'?); see `minikafka topic --help`",
        ),
        (["topc"], "No such command 'topc' (did you mean 'topic', 'stop'?); see `minikafka --help`"),
    ],
)
def test_a_hint_at_the_right_command_stands_in_the_sentence(
    arguments: list[str], line: str, cli: CommandLine
) -> None:
    assert cli.run(*arguments) == 2
    assert cli.err == f"minikafka: {line}\n"


def test_two_ways_to_name_the_cluster_are_one_too_many(tmp_path: Path, cli: CommandLine) -> None:
    place = tmp_path / "d"
    assert cli.run("topic", "create", "t", "--bootstrap", "a:1", "--data-dir", str(place)) == 2
    assert cli.err.startswith("minikafka: --bootstrap='a:1': ")
    assert "--data-dir" in cli.err
    assert not place.exists()


def test_help_imports_neither_numba_nor_the_clients() -> None:
    code = (
        "import sys; from minikafka.cli.commands import run; run(['--help']); "
        "print([m for m in ('numba', 'pyarrow', 'kazoo', 'rich', 'minikafka.clients', 'minikafka.registry', "
        "'minikafka.server', 'minikafka.embedded') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_output_that_nobody_reads_any_more_ends_quietly() -> None:
    code = (
        "import os, sys; from minikafka.cli import commands; "
        "commands.app.command('flood')(lambda: [print('x' * 1000) for _ in range(10_000)]); "
        "sys.exit(commands.run(['flood']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.parametrize("command", ["elect", "reassign generate", "topic describe", "config set"])
def test_arguments_that_may_be_left_out_stand_in_one_pair_of_brackets(cli: CommandLine, command: str) -> None:
    cli.run(*command.split(), "--help")
    usage = cli.out.partition("\n\n")[0]
    assert "[OPTIONS]" in usage
    assert "[[" not in usage


def test_what_libraries_warn_of_has_our_name_once(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*_: object, **__: object) -> None:
        logging.getLogger("minikafka.clients").warning("minikafka: broker %d cannot be reached", 1)
        logging.getLogger("kazoo.client").warning("Connection dropped:\n%s", "gone")
        logging.getLogger("minikafka.clients.produce").info("all is well")

    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(commands, "app", command)
    before = logging.lastResort
    assert cli.run() == 0
    assert logging.lastResort is before
    assert cli.err.splitlines() == [
        "minikafka: broker 1 cannot be reached",
        "minikafka: Connection dropped: gone",
    ]
