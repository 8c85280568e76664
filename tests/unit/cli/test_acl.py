"""``acl add``, ``acl list`` and ``acl remove``, on a ZooKeeper in memory and on a broker's rules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from minikafka.base.acls import CLUSTER, Acl, Operation, PatternType, Permission, Resource, ResourceType
from minikafka.registry.acls import ACL_CHANGES, acl_path, read_acls
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine
from tests.support.zookeeper_with_topics import cluster

ALICE = ("--allow-principal", "User:alice")
TOPIC = Resource(ResourceType.TOPIC, "t")
GROUP = Resource(ResourceType.GROUP, "g")
ZOOKEEPER = ("--zookeeper", "memory")


class AclCommands(CommandLine):
    """Commands on the access rules of a ZooKeeper in memory."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        super().__init__(capture)
        self.store = cluster({})

    def __call__(self, *arguments: str) -> int:
        return self.run("acl", *arguments, *ZOOKEEPER)

    @property
    def rules(self) -> dict[Resource, frozenset[Acl]]:
        return read_acls(self.store).acls

    @property
    def shown(self) -> list[tuple[str, ...]]:
        return [tuple(row.values()) for row in self.rows]


@pytest.fixture
def acl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> AclCommands:
    made = AclCommands(capfd)

    monkeypatch.setattr(
        "minikafka.cli.connection.connect.zookeeper_store",
        lambda *_, **__: contextlib.nullcontext(made.store),
    )
    return made


def allow(operation: Operation, host: str = "*", principal: str = "User:alice") -> Acl:
    return Acl(principal, Permission.ALLOW, host, operation)


def test_rules_are_made_shown_and_told(acl: AclCommands) -> None:
    given = (*ALICE, "--operation", "read", "--operation", "DESCRIBE_CONFIGS", "--topic", "t")
    assert acl("add", *given, "--allow-host", "::1") == 0
    assert acl.rules == {
        TOPIC: {
            allow(Operation.READ, "0:0:0:0:0:0:0:1"),
            allow(Operation.DESCRIBE_CONFIGS, "0:0:0:0:0:0:0:1"),
        }
    }
    assert acl.lines == [
        "RESOURCE  NAME  PRINCIPAL   PERMISSION  OPERATION        HOST",
        "Topic     t     User:alice  Allow       Read             0:0:0:0:0:0:0:1",
        "Topic     t     User:alice  Allow       DescribeConfigs  0:0:0:0:0:0:0:1",
    ]
    assert acl.err == "minikafka: 2 rules\n"
    assert len(acl.store.children(ACL_CHANGES)) == 1


def test_what_is_there_already_is_said_and_is_no_failure(acl: AclCommands) -> None:
    assert acl("add", *ALICE, "--operation", "Read", "--topic", "t") == 0
    assert acl("add", *ALICE, "--operation", "Read", "--topic", "t", "--group", "g") == 0
    assert acl.lines[1:] == ["Group     g     User:alice  Allow       Read       *"]
    assert acl.err == "minikafka: 2 rules, 1 of them existed already\n"


def test_without_operations_a_rule_is_about_all_and_denials_are_told_apart(acl: AclCommands) -> None:
    assert acl("add", *ALICE, "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--cluster") == 0
    denied = Acl("User:bob", Permission.DENY, "10.0.0.1", Operation.ALL)
    assert acl.rules == {CLUSTER: {allow(Operation.ALL), denied}}


def test_a_producer_and_a_consumer_get_what_they_need(acl: AclCommands) -> None:
    roles = ("--producer", "--idempotent", "--consumer")
    assert acl("add", *ALICE, *roles, "--topic", "t", "--group", "g") == 0
    assert acl.rules == {
        TOPIC: {allow(operation) for operation in (Operation.WRITE, Operation.READ, Operation.DESCRIBE)},
        GROUP: {allow(Operation.READ)},
        CLUSTER: {allow(Operation.CREATE), allow(Operation.IDEMPOTENT_WRITE)},
    }
    assert acl("remove", *ALICE, *roles, "--topic", "t", "--group", "g") == 0
    assert acl.rules == {}


def test_a_dry_run_changes_nothing(acl: AclCommands) -> None:
    assert acl("add", *ALICE, "--topic", "t", "--dry-run", "--format", "json") == 0
    assert acl.shown == [("Topic", "t", "User:alice", "Allow", "All", "*")]
    assert acl.rules == {}
    acl("add", *ALICE, "--topic", "t")
    assert acl("remove", "--topic", "t", "--dry-run") == 0
    assert "1 rule; nothing was changed" in acl.err
    assert acl.rules == {TOPIC: {allow(Operation.ALL)}}


def test_those_of_a_topic_are_listed_with_those_of_all_topics(acl: AclCommands) -> None:
    for about in (("--topic", "t"), ("--topic", "*"), ("--topic", "u"), ("--cluster",)):
        acl("add", *ALICE, *about)
    acl("add", "--allow-principal", "User:bob", "--topic", "t")
    assert acl("list", "--topic", "t", "--format", "json") == 0
    assert [(name, who) for _, name, who, *_ in acl.shown] == [
        ("*", "User:alice"),
        ("t", "User:alice"),
        ("t", "User:bob"),
    ]
    assert acl("list", "--principal", "User:bob", "--format", "json") == 0
    assert [name for _, name, *_ in acl.shown] == ["t"]
    assert acl("list", "--format", "json") == 0
    assert len(acl.shown) == 5


def test_rules_of_prefixes_are_added_listed_and_removed(acl: AclCommands) -> None:
    prefixed = ("--resource-pattern-type", "prefixed")
    prefix = Resource(ResourceType.TOPIC, "t", PatternType.PREFIXED)
    assert acl("add", *ALICE, "--operation", "Read", "--topic", "t", *prefixed) == 0
    assert acl.lines[1:] == ["Topic     t*    User:alice  Allow       Read       *"]
    assert acl("add", *ALICE, "--operation", "Write", "--topic", "t") == 0
    assert acl.rules == {prefix: {allow(Operation.READ)}, TOPIC: {allow(Operation.WRITE)}}
    assert acl("list", "--topic", "tea") == 0
    assert acl.lines[1:] == ["Topic     t*    User:alice  Allow       Read       *"]
    assert acl("remove", "--topic", "t", *prefixed) == 0
    assert acl.rules == {TOPIC: {allow(Operation.WRITE)}}


def test_an_empty_list_says_so(acl: AclCommands) -> None:
    assert acl("list") == 0
    assert (acl.out, acl.err) == ("", "minikafka: no matching rules\n")


def test_where_brokers_keep_no_rules_zookeeper_is_named(
    acl: AclCommands, serve: Callable[[BrokerHarness], BrokerHarness]
) -> None:
    serve(BrokerHarness(1))
    assert acl.run("acl", "add", *ALICE, "--topic", "t") == 1
    assert acl.err == (
        "minikafka: SECURITY_DISABLED: no authorizer is configured on this broker: set "
        "authorizer.class.name; to add rules before one is enabled, use --zookeeper HOST:PORT/CHROOT\n"
    )


def test_of_several_rules_those_are_removed_that_are_named(acl: AclCommands) -> None:
    acl("add", *ALICE, "--operation", "Read", "--operation", "Write", "--topic", "t")
    acl("add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "t")
    assert acl("remove", *ALICE, "--operation", "Read", "--topic", "t") == 0
    bobs = allow(Operation.READ, principal="User:bob")
    assert acl.rules == {TOPIC: {allow(Operation.WRITE), bobs}}
    assert acl("remove", *ALICE, "--topic", "t") == 0
    assert acl.rules == {TOPIC: {bobs}}
    assert acl("remove", "--topic", "t") == 0
    assert acl.rules == {}


def test_the_status_tells_that_there_was_nothing_to_remove(acl: AclCommands) -> None:
    assert acl("remove", "--topic", "t") == 1
    assert acl.err == "minikafka: no matching rule\n"


def test_rules_that_nobody_can_read_are_named_and_can_be_removed(acl: AclCommands) -> None:
    acl.store.create(acl_path(TOPIC), b"{nonsense", make_parents=True)
    assert acl("add", *ALICE, "--group", "g") == 0
    assert acl("list") == 1
    assert acl_path(TOPIC) in acl.err
    assert acl("remove", "--topic", "t", "--dry-run") == 0
    assert acl.store.exists(acl_path(TOPIC))
    assert acl("remove", "--topic", "t") == 0
    assert "and the unreadable rules of Topic:t" in acl.err
    assert acl.store.exists(acl_path(TOPIC)) is None


BAD = [
    (("add", "--topic", "t"), "--allow-principal: required"),
    (("add", *ALICE), "--topic: required; or set --group G or --cluster"),
    (("add", "--allow-principal", "alice", "--topic", "t"), "--allow-principal='alice'"),
    (("add", *ALICE, "--topic", "a/b"), "a/b"),
    (("add", *ALICE, "--group", "a/b"), "--group='a/b'"),
    (
        ("add", *ALICE, "--topic", "t", "--allow-host", "localhost"),
        "--allow-host='localhost': must be an IP address",
    ),
    (("add", *ALICE, "--topic", "t", "--deny-host", "::1"), "requires --deny-principal"),
    (("add", *ALICE, "--topic", "t", "--operation", "Fly"), "--operation='Fly': must be one of All, Read"),
    (
        ("add", *ALICE, "--group", "g", "--operation", "Write"),
        "must be one of All, Read, Delete, Describe for a group",
    ),
    (("add", *ALICE, "--producer", "--group", "g"), "requires --topic T"),
    (("add", *ALICE, "--consumer", "--topic", "t"), "requires --group G"),
    (("add", *ALICE, "--producer", "--topic", "t", "--cluster"), "cannot be combined with --cluster"),
    (
        ("add", *ALICE, "--producer", "--topic", "t", "--operation", "Read"),
        "cannot be combined with --operation",
    ),
    (
        ("add", "--deny-principal", "User:a", "--producer", "--topic", "t"),
        "cannot be combined with --deny-principal",
    ),
    (("add", *ALICE, "--idempotent", "--topic", "t"), "requires --producer"),
    (("remove", "--producer", "--topic", "t"), "--allow-principal: required"),
    (
        ("add", *ALICE, "--topic", "*", "--resource-pattern-type", "prefixed"),
        "--resource-pattern-type='prefixed': requires prefixes of names",
    ),
    (("add", *ALICE, "--cluster", "--resource-pattern-type", "prefixed"), "not --cluster or '*'"),
    (
        ("add", *ALICE, "--topic", "t", "--resource-pattern-type", "match"),
        "minikafka: --resource-pattern-type='match': must be literal or prefixed",
    ),
    (("remove",), "--topic: required; or set --group G or --cluster"),
    (("list", "--principal", "bob"), "--principal='bob'"),
]


@pytest.mark.parametrize(("arguments", "words"), BAD, ids=str)
def test_bad_input_is_refused_before_anything_is_changed(
    acl: AclCommands, arguments: tuple[str, ...], words: str
) -> None:
    assert acl(*arguments) == 2
    assert acl.out == ""
    assert words in acl.err
    assert acl.rules == {}
