"""``minikafka acl``: access control lists, as in ``kafka-acls``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.acls import CLUSTER, AclFilter, PatternType, Resource
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.text import counted
from minikafka.cli.acl_options import (
    AclSelection,
    ResourcePattern,
    Role,
    build_rules,
    parse_pattern,
    parse_principal,
    parse_resources,
    rule_filter,
)
from minikafka.cli.connection import connect
from minikafka.cli.options import (
    Bootstrap,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    value_option,
    zookeeper_option,
)
from minikafka.cli.terminal.output import note, print_rows

if TYPE_CHECKING:
    from minikafka.clients.admin.acls import AclBackend, AclBinding

app = typer.Typer(
    help="Access rules of topics, groups and the cluster, for brokers with an authorizer.",
    no_args_is_help=True,
)

COLUMNS = ["resource", "name", "principal", "permission", "operation", "host"]
ADVICE = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "to bypass the brokers, use --zookeeper HOST:PORT/CHROOT",
    ErrorCode.SECURITY_DISABLED: "to add rules before one is enabled, use --zookeeper HOST:PORT/CHROOT",
}
"""The advice for the user, by the broker's error code."""
NOTHING_REMOVED = 1
"""The status of ``remove`` when no rule matches."""


class AclRequestFailed(BrokerError):
    """A broker's error on a request about rules; the message already contains advice."""


Texts = list[str] | None
Topics = Annotated[Texts, value_option("--topic", "T", "A topic, or '*' for all; may be repeated.")]
Groups = Annotated[Texts, value_option("--group", "G", "A consumer group, or '*' for all; may be repeated.")]
Pattern = Annotated[
    ResourcePattern,
    typer.Option(
        "--resource-pattern-type",
        parser=parse_pattern,
        metavar="literal|prefixed",
        help="prefixed: all topics or groups whose names begin with the given one.",
    ),
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Allowed = Annotated[
    Texts, value_option("--allow-principal", "P", "A principal to allow: User:NAME, or 'User:*' for all.")
]
Denied = Annotated[
    Texts, value_option("--deny-principal", "P", "A principal to deny, even if another rule allows it.")
]
AllowHosts = Annotated[Texts, value_option("--allow-host", "IP", "The addresses to allow. [all]")]
DenyHosts = Annotated[Texts, value_option("--deny-host", "IP", "The addresses to deny. [all]")]
Operations = Annotated[
    Texts, value_option("--operation", "OP", "Read, Write, Create, Delete, Alter, Describe … or All.")
]
Producer = Annotated[
    bool,
    typer.Option("--producer", help="A producer's rules: Write and Describe, and Create on the cluster."),
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="A consumer's rules: Read and Describe, and Read on its group.")
]
Idempotent = Annotated[
    bool,
    typer.Option("--idempotent", help="With --producer: IdempotentWrite too (not for brokers of 0.10.1)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
AclZooKeeper = Annotated[
    str | None,
    zookeeper_option("Instead of --bootstrap: ZooKeeper, where the rules are stored. Works without brokers."),
]


@app.command()
def add(
    topics: Topics = None,
    groups: Groups = None,
    pattern: Pattern = ResourcePattern.LITERAL,
    cluster: OfCluster = False,
    allowed: Allowed = None,
    denied: Denied = None,
    allow_hosts: AllowHosts = None,
    deny_hosts: DenyHosts = None,
    operations: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: AclZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Add rules. Brokers apply them at once. Without --operation they cover all operations.

    Prints the new rules.
    """
    from minikafka.clients.admin.acls import AclBinding

    resources = parse_resources(topics, groups, pattern, cluster=cluster)
    role = Role(producer, consumer, idempotent)
    asked = AclSelection.of(allowed, denied, allow_hosts, deny_hosts, operations)
    if not asked.principals:
        raise ConfigError("--allow-principal", None, "required (User:NAME); or set --deny-principal")
    rules = [AclBinding(*rule) for rule in build_rules(resources, asked, role)]
    with _acl_store(bootstrap, zookeeper, data_dir, command_config) as backend:
        about = dict.fromkeys(rule.resource for rule in rules)
        known = {rule for resource in about for rule in backend.find(AclFilter.of(resource))}
        new = [rule for rule in rules if rule not in known]
        if not dry_run:
            backend.add(rules)
    print_rows(_rows(new), COLUMNS, style)
    known_note = f", {len(rules) - len(new)} of them existed already" if len(new) < len(rules) else ""
    note(f"minikafka: {counted(len(rules), 'rule')}{known_note}{'; nothing was changed' * dry_run}")


@app.command("list")
def list_(
    topics: Topics = None,
    groups: Groups = None,
    cluster: OfCluster = False,
    principal: Annotated[
        str | None, value_option("--principal", "P", "Only rules of this principal.")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: AclZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """List rules. For a topic or group that includes rules for all ('*') and for prefixes of its name."""
    literal = ResourcePattern.LITERAL
    resources = parse_resources(topics, groups, literal, cluster=cluster, required=False)
    if principal is not None:
        principal = parse_principal(principal, "--principal")
    wanted = [
        AclFilter(resource.type, resource.name, principal=principal, match=True) for resource in resources
    ] or [AclFilter(principal=principal)]
    with _acl_store(bootstrap, zookeeper, data_dir, command_config) as backend:
        found = {rule for acl_filter in wanted for rule in backend.find(acl_filter)}
    print_rows(_rows(sorted(found)), COLUMNS, style, nothing="no matching rules")


@app.command(short_help="Remove rules.")
def remove(
    topics: Topics = None,
    groups: Groups = None,
    pattern: Pattern = ResourcePattern.LITERAL,
    cluster: OfCluster = False,
    allowed: Allowed = None,
    denied: Denied = None,
    allow_hosts: AllowHosts = None,
    deny_hosts: DenyHosts = None,
    operations: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    zookeeper: AclZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Remove the rules of the resources that match the other options; without any, all of them.

    Prints the removed rules. Status 1 if no rule matches.
    """
    resources = parse_resources(topics, groups, pattern, cluster=cluster)
    asked = AclSelection.of(allowed, denied, allow_hosts, deny_hosts, operations)
    matches = rule_filter(resources, asked, Role(producer, consumer, idempotent))
    with _acl_store(bootstrap, zookeeper, data_dir, command_config) as backend:
        broken: list[Resource] = []
        if matches is None:
            broken = _forget_unreadable(backend, resources, dry_run=dry_run)
        about = [CLUSTER, *resources] if producer else resources
        matching = [
            rule
            for resource in dict.fromkeys(about)
            if resource not in broken
            for rule in backend.find(AclFilter.of(resource))
            if matches is None or matches((rule.resource, rule.acl))
        ]
        if matching and not dry_run:
            backend.remove(matching)
    print_rows(_rows(matching), COLUMNS, style)
    if not matching and not broken:
        note("minikafka: no matching rule")
        return NOTHING_REMOVED
    unreadable = "".join(f", and the unreadable rules of {resource}" for resource in broken)
    done = "; nothing was changed" if dry_run else " removed"
    note(f"minikafka: {counted(len(matching), 'rule')}{unreadable}{done}")
    return 0


def _forget_unreadable(
    backend: AclBackend, resources: Sequence[Resource], *, dry_run: bool
) -> list[Resource]:
    """Delete the unreadable rules of ``resources`` in ZooKeeper. Return the resources that have such."""
    from minikafka.clients.admin.acls import ZooKeeperAcls

    if not isinstance(backend, ZooKeeperAcls):
        return []
    unreadable = backend.unreadable()
    broken = [resource for resource in resources if resource in unreadable]
    if not dry_run:
        backend.forget(broken)
    return broken


@contextlib.contextmanager
def _acl_store(
    bootstrap: str | None, zookeeper: str | None, data_dir: Path | None, command_config: str | None
) -> Iterator[AclBackend]:
    """Yield the rules of the brokers, or with --zookeeper those stored there."""
    from minikafka.clients.admin.acls import BrokerAcls, ZooKeeperAcls

    with connect.backend(
        BrokerAcls, ZooKeeperAcls, bootstrap, zookeeper, data_dir, command_config
    ) as backend:
        try:
            yield backend
        except BrokerError as error:
            advice = ADVICE.get(error.code)
            if advice is None:
                raise
            raise AclRequestFailed(error.code, f"{error.detail}; {advice}") from None


def _rows(rules: Iterable[AclBinding]) -> list[dict[str, object]]:
    return [
        {
            "resource": rule.resource.type.label,
            "name": rule.resource.name + "*" * (rule.resource.pattern is PatternType.PREFIXED),
            "principal": rule.acl.principal,
            "permission": rule.acl.permission.label,
            "operation": rule.acl.operation.label,
            "host": rule.acl.host,
        }
        for rule in rules
    ]
