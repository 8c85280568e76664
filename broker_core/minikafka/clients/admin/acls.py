"""ACLs: finds, creates and deletes them through brokers, or in ZooKeeper if no broker runs.

By the protocol as Kafka's AdminClient (``describeAcls``, ``createAcls``, ``deleteAcls``); None in a filter
matches anything. In ZooKeeper as ``kafka-acls`` of 0.10.1, so that Kafka's and minikafka's brokers apply
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from minikafka.base.acls import (
    CLUSTER,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.base.errors import BrokerError, CoordinationError, ErrorCode
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.network.response_errors import error_of, raise_for_code
from minikafka.clients.network.retry import Deadline
from minikafka.registry.acls import change_resource, delete_resource, read_acls
from minikafka.registry.store import Store
from minikafka.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from minikafka.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from minikafka.wire.apis.describe_acls import ANY, DESCRIBE_ACLS, MATCH, DescribeAclsRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """An ACL and its resource."""

    resource: Resource
    acl: Acl

    @property
    def filter(self) -> AclFilter:
        """The filter that matches only this ACL."""
        return AclFilter(
            self.resource.type,
            self.resource.name,
            self.acl.principal,
            self.acl.host,
            self.acl.operation,
            self.acl.permission,
            self.resource.pattern,
        )


class AclBackend(Protocol):
    """The storage of ACLs: brokers or ZooKeeper."""

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the ACLs that match a filter, sorted. Raises BrokerError or CoordinationError."""

    def add(self, bindings: Sequence[AclBinding]) -> None:
        """Create ACLs; existing ones stay. Raises the error of the first that failed."""

    def remove(self, bindings: Sequence[AclBinding]) -> None:
        """Delete ACLs; missing ones are ignored. Raises as ``add``."""


# --- through brokers ----------------------------------------------------------------------------------------


def describe_acls(cluster: ClusterClient, wanted: AclFilter, deadline: Deadline) -> list[AclBinding]:
    """Return the ACLs that match a filter. Raises SECURITY_DISABLED if the broker has no authorizer."""
    request = DescribeAclsRequest(*_filter_fields(wanted))
    response = cluster.call(None, DESCRIBE_ACLS, request, timeout_ms=deadline.remaining_ms())
    raise_for_code(response.error_code, response.error_message)
    found = [
        _binding(
            (resource.resource_type, resource.resource_name, resource.pattern_type),
            (acl.principal, acl.permission_type, acl.host, acl.operation),
        )
        for resource in response.resources
        for acl in resource.acls
    ]
    return sorted(binding for binding in found if binding is not None)


def enforces_rules(cluster: ClusterClient, deadline: Deadline) -> bool:
    """Return True if brokers have an authorizer. Brokers before 0.11 do not report it: False."""
    try:
        describe_acls(cluster, AclFilter.of(CLUSTER), deadline)  # a small result
    except BrokerError as error:
        return error.code not in (ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION)
    return True


def create_acls(
    cluster: ClusterClient, bindings: Iterable[AclBinding], deadline: Deadline
) -> dict[AclBinding, BrokerError | None]:
    """Create ACLs. Returns the error of each, or None."""
    wanted = list(dict.fromkeys(bindings))
    request = CreateAclsRequest(tuple(map(_creation, wanted)))
    response = cluster.call(None, CREATE_ACLS, request, timeout_ms=deadline.remaining_ms())
    return {
        binding: error_of(result.error_code, result.error_message)
        for binding, result in zip(wanted, response.results, strict=False)
    }


def delete_acls(
    cluster: ClusterClient, filters: Iterable[AclFilter], deadline: Deadline
) -> dict[AclFilter, list[AclBinding] | BrokerError]:
    """Delete the ACLs that match filters. Returns the deleted ACLs of each filter, or its error.

    If a response is lost the request is repeated, and finds nothing.
    """
    wanted = list(dict.fromkeys(filters))
    request = DeleteAclsRequest(tuple(DeleteAclsFilter(*_filter_fields(filter_)) for filter_ in wanted))
    response = cluster.call(None, DELETE_ACLS, request, timeout_ms=deadline.remaining_ms())
    outcomes: dict[AclFilter, list[AclBinding] | BrokerError] = {}
    for filter_, result in zip(wanted, response.filter_results, strict=False):
        errors = [error_of(result.error_code, result.error_message)]
        errors += [error_of(acl.error_code, acl.error_message) for acl in result.matching_acls]
        failed = next((error for error in errors if error is not None), None)
        found = [
            _binding(
                (acl.resource_type, acl.resource_name, acl.pattern_type),
                (acl.principal, acl.permission_type, acl.host, acl.operation),
            )
            for acl in result.matching_acls
        ]
        outcomes[filter_] = failed or sorted(binding for binding in found if binding is not None)
    return outcomes


class BrokerAcls:
    """ACLs by requests to brokers."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """See ``AclBackend``."""
        return describe_acls(self._cluster, wanted, self._cluster.deadline())

    def add(self, bindings: Sequence[AclBinding]) -> None:
        """See ``AclBackend``."""
        _raise_first(create_acls(self._cluster, bindings, self._cluster.deadline()))

    def remove(self, bindings: Sequence[AclBinding]) -> None:
        """See ``AclBackend``."""
        filters = [binding.filter for binding in bindings]
        _raise_first(delete_acls(self._cluster, filters, self._cluster.deadline()))


def _raise_first(outcomes: Mapping[Any, object]) -> None:
    """Raise the first error among the results of ``create_acls`` or ``delete_acls``."""
    for outcome in outcomes.values():
        if isinstance(outcome, BrokerError):
            raise outcome


def _filter_fields(wanted: AclFilter) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    pattern = MATCH if wanted.match else ANY if wanted.pattern is None else wanted.pattern
    return (
        ANY if wanted.resource_type is None else wanted.resource_type,
        wanted.resource_name,
        pattern,
        wanted.principal,
        wanted.host,
        ANY if wanted.operation is None else wanted.operation,
        ANY if wanted.permission is None else wanted.permission,
    )


def _creation(binding: AclBinding) -> AclCreation:
    resource, acl = binding.resource, binding.acl
    about = (resource.type, resource.name, resource.pattern)
    return AclCreation(*about, acl.principal, acl.host, acl.operation, acl.permission)


def _binding(about: tuple[int, str, int], rule: tuple[str, int, str, int]) -> AclBinding | None:
    kind, name, pattern = about
    principal, permission, host, operation = rule
    try:
        return AclBinding(
            Resource(ResourceType(kind), name, PatternType(pattern)),
            Acl(principal, Permission(permission), host, Operation(operation)),
        )
    except ValueError:
        # From a newer Kafka, with more kinds.
        _log.warning("ignoring an ACL with a resource or operation of a newer Kafka: %s, %s", about, rule)
        return None


# --- in ZooKeeper -------------------------------------------------------------------------------------------


class ZooKeeperAcls:
    """ACLs in ZooKeeper. Running brokers are notified of changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """See ``AclBackend``. Raises CoordinationError if some of them are invalid."""
        stored = read_acls(self._store)
        unreadable = [
            problem
            for resource, problem in stored.unreadable.items()
            if wanted.resource_type in (resource.type, None) and wanted.resource_name in (resource.name, None)
        ]
        if unreadable:
            raise CoordinationError(
                f"{unreadable[0]}; to remove all rules of that resource run `acl remove` with its name alone"
            )
        return sorted(
            AclBinding(resource, acl)
            for resource, acls in stored.acls.items()
            for acl in acls
            if wanted.matches(resource, acl)
        )

    def add(self, bindings: Sequence[AclBinding]) -> None:
        """See ``AclBackend``."""
        for resource, acls in _by_resource(bindings).items():
            change_resource(self._store, resource, partial(frozenset.union, acls))

    def remove(self, bindings: Sequence[AclBinding]) -> None:
        """See ``AclBackend``."""
        for resource, acls in _by_resource(bindings).items():
            change_resource(self._store, resource, partial(_without, acls))

    def unreadable(self) -> list[Resource]:
        """Return the resources with invalid ACLs."""
        return sorted(read_acls(self._store).unreadable)

    def forget(self, resources: Iterable[Resource]) -> None:
        """Delete all ACLs of these resources, also invalid ones."""
        for resource in resources:
            delete_resource(self._store, resource)


def _by_resource(bindings: Iterable[AclBinding]) -> dict[Resource, frozenset[Acl]]:
    grouped: dict[Resource, frozenset[Acl]] = {}
    for binding in bindings:
        grouped[binding.resource] = grouped.get(binding.resource, frozenset()) | {binding.acl}
    return grouped


def _without(acls: frozenset[Acl], known: frozenset[Acl]) -> frozenset[Acl]:
    return known - acls
