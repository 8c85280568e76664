"""``minikafka acl``: who may do what, as ``kafka-acls`` has it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.acls import CLUSTER, AclFilter, Resource
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode
from minikafka.base.text import counted
from minikafka.cli.acl_options import (
    AclSelection,
    Role,
    build_rules,
    parse_principal,
    parse_resources,
    rule_filter,
)
from minikafka.cli.options import Bootstrap, DataDir, Format, OutputFormat
from minikafka.cli.output import note, print_rows

if TYPE_CHECKING:
    from minikafka.clients.admin.acls import AclBackend, AclBinding

app = typer.Typer(
    help="Who may do what: rules of topics, groups and the cluster, for brokers that have an authorizer.",
    no_args_is_help=True,
)

COLUMNS = ["resource", "name", "principal", "permission", "operation", "host"]
ADVICE = {
    ErrorCode.UNSUPPORTED_VERSION: "give --zookeeper HOST:PORT/CHROOT, where the rules are kept",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "past the brokers: give --zookeeper HOST:PORT/CHROOT",
    ErrorCode.SECURITY_DISABLED: "rules can be made before it is: give --zookeeper HOST:PORT/CHROOT",
}
"""What else to try, by the broker's error code."""
NOTHING_REMOVED = 1
"""The status of ``remove`` where there was nothing to remove."""


class AclRequestFailed(BrokerError):
    """A broker's error on a request about rules; the message has advice already."""


def _repeatable(name: str, metavar: str, text: str) -> object:
    return typer.Option(name, metavar=metavar, help=text, show_default=False)


Texts = Optional[list[str]]  # noqa: UP045
Topics = Annotated[Texts, _repeatable("--topic", "T", "A topic, or '*' for all; may be given again.")]
Groups = Annotated[
    Texts, _repeatable("--group", "G", "A consumer group, or '*' for all; may be given again.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Allowed = Annotated[Texts, _repeatable("--allow-principal", "P", "Who may: User:NAME, or 'User:*' for all.")]
Denied = Annotated[Texts, _repeatable("--deny-principal", "P", "Who may not, whatever else allows it.")]
AllowHosts = Annotated[
    Texts, _repeatable("--allow-host", "IP", "From where they may; from everywhere without.")
]
DenyHosts = Annotated[
    Texts, _repeatable("--deny-host", "IP", "From where they may not; from anywhere without.")
]
Operations = Annotated[
    Texts, _repeatable("--operation", "OP", "Read, Write, Create, Delete, Alter, Describe … or All.")
]
Producer = Annotated[
    bool,
    typer.Option("--producer", help="What a producer needs: Write and Describe, and Create of the cluster."),
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="What a consumer needs: Read and Describe, and Read of its group.")
]
Idempotent = Annotated[
    bool,
    typer.Option("--idempotent", help="With --producer: IdempotentWrite too (not for brokers of 0.10.1)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
AclZooKeeper = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT/CHROOT",
        help="In place of --bootstrap, also where no broker runs: where the rules are kept.",
        show_default=False,
    ),
]


@app.command()
def add(
    topics: Topics = None,
    groups: Groups = None,
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
    zookeeper: AclZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Make rules. Brokers act on them at once. Without --operation they are about all operations.

    Shows those that were not there yet.
    """
    from minikafka.clients.admin.acls import AclBinding

    resources = parse_resources(topics, groups, cluster=cluster)
    role = Role(producer, consumer, idempotent)
    asked = AclSelection.of(allowed, denied, allow_hosts, deny_hosts, operations)
    if not asked.principals:
        raise ConfigError(
            "--allow-principal", None, "say who may (User:NAME), or --deny-principal who may not"
        )
    rules = [AclBinding(*one) for one in build_rules(resources, asked, role)]
    with _acl_store(bootstrap, zookeeper, data_dir) as keeper:
        about = dict.fromkeys(one.resource for one in rules)
        known = {rule for one in about for rule in keeper.find(AclFilter(one.type, one.name))}
        new = [one for one in rules if one not in known]
        if not dry_run:
            keeper.add(rules)
    print_rows(_rows(new), COLUMNS, style)
    there = f", {len(rules) - len(new)} of them there already" if len(new) < len(rules) else ""
    note(f"minikafka: {counted(len(rules), 'rule')}{there}{'; nothing was changed' * dry_run}")


@app.command("list")
def list_(
    topics: Topics = None,
    groups: Groups = None,
    cluster: OfCluster = False,
    principal: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--principal", metavar="P", help="Only of this one.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    zookeeper: AclZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Rules; of a topic or group also those about all ('*'), as they hold for it too."""
    resources = parse_resources(topics, groups, cluster=cluster, required=False)
    if principal is not None:
        principal = parse_principal(principal, "--principal")
    wanted = [
        AclFilter(one.type, one.name, principal=principal, match_wildcard=True) for one in resources
    ] or [AclFilter(principal=principal)]
    with _acl_store(bootstrap, zookeeper, data_dir) as keeper:
        found = {rule for one in wanted for rule in keeper.find(one)}
    print_rows(_rows(sorted(found)), COLUMNS, style, nothing="there are no such rules")


@app.command()
def remove(
    topics: Topics = None,
    groups: Groups = None,
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
    zookeeper: AclZooKeeper = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> int:
    """Remove rules: those of the resources that say what is given, and without more, all of them.

    Shows what was removed. Status 1 where there was no such rule.
    """
    resources = parse_resources(topics, groups, cluster=cluster)
    asked = AclSelection.of(allowed, denied, allow_hosts, deny_hosts, operations)
    means = rule_filter(resources, asked, Role(producer, consumer, idempotent))
    with _acl_store(bootstrap, zookeeper, data_dir) as keeper:
        broken: list[Resource] = []
        if means is None:
            broken = _forget_unreadable(keeper, resources, dry_run=dry_run)
        about = [CLUSTER, *resources] if producer else resources
        doomed = [
            rule
            for one in dict.fromkeys(about)
            if one not in broken
            for rule in keeper.find(AclFilter(one.type, one.name))
            if means is None or means((rule.resource, rule.acl))
        ]
        if doomed and not dry_run:
            keeper.remove(doomed)
    print_rows(_rows(doomed), COLUMNS, style)
    if not doomed and not broken:
        note("minikafka: there is no such rule")
        return NOTHING_REMOVED
    lost = "".join(f", and all of {one}, which nobody could read" for one in broken)
    done = "; nothing was changed" if dry_run else " removed"
    note(f"minikafka: {counted(len(doomed), 'rule')}{lost}{done}")
    return 0


def _forget_unreadable(keeper: AclBackend, resources: Sequence[Resource], *, dry_run: bool) -> list[Resource]:
    """Take away what stands in ZooKeeper in place of rules; of which resources."""
    from minikafka.clients.admin.acls import ZooKeeperAcls

    if not isinstance(keeper, ZooKeeperAcls):
        return []
    unreadable = keeper.unreadable()
    broken = [one for one in resources if one in unreadable]
    if not dry_run:
        keeper.forget(broken)
    return broken


@contextlib.contextmanager
def _acl_store(bootstrap: str | None, zookeeper: str | None, data_dir: Path | None) -> Iterator[AclBackend]:
    """Brokers, or with --zookeeper what stands there."""
    from minikafka.cli.connect import cluster_client, zookeeper_store
    from minikafka.clients.admin.acls import BrokerAcls, ZooKeeperAcls

    if zookeeper:
        with zookeeper_store(zookeeper, bootstrap, data_dir) as store:
            yield ZooKeeperAcls(store)
    else:
        with cluster_client(bootstrap, data_dir) as cluster:
            try:
                yield BrokerAcls(cluster)
            except BrokerError as error:
                advice = ADVICE.get(error.code)
                if advice is None:
                    raise
                raise AclRequestFailed(error.code, f"{error.detail}; {advice}") from None


def _rows(rules: Iterable[AclBinding]) -> list[dict[str, object]]:
    return [
        {
            "resource": one.resource.type.label,
            "name": one.resource.name + "*" * one.prefixed,
            "principal": one.acl.principal,
            "permission": one.acl.permission.label,
            "operation": one.acl.operation.label,
            "host": one.acl.host,
        }
        for one in rules
    ]
