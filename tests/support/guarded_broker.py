"""A broker with an authorizer, and rules about its clients."""

from __future__ import annotations

from minikafka.base.acls import (
    ANONYMOUS,
    CLUSTER,
    WILDCARD_HOST,
    Acl,
    Operation,
    Permission,
    Resource,
    ResourceType,
)
from minikafka.registry.acls import change_resource
from tests.support.simulation import Simulation

AUTHORIZER = {"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"}
TOPIC = Resource(ResourceType.TOPIC, "t")
OTHER = Resource(ResourceType.TOPIC, "other")


class Guarded(Simulation):
    """A broker with the topics ``t`` and ``other``, to which no client has access yet."""

    def __init__(self) -> None:
        super().__init__()
        self.machine.start({"auto.create.topics.enable": "true", **AUTHORIZER})
        self.rules = self.zookeeper.connect()
        self.allow(Operation.CREATE, CLUSTER)
        assert self.create_topic("t") == 0
        assert self.create_topic("other") == 0
        self.forget(CLUSTER)

    def allow(
        self, operation: Operation, resource: Resource, permission: Permission = Permission.ALLOW
    ) -> None:
        rule = Acl(ANONYMOUS, permission, WILDCARD_HOST, operation)
        change_resource(self.rules, resource, lambda rules: rules | {rule})
        self.settle()

    def forget(self, resource: Resource) -> None:
        change_resource(self.rules, resource, lambda rules: frozenset())
        self.settle()
