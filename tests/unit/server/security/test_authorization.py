"""Error messages of denied requests."""

from __future__ import annotations

import pytest

from minikafka.base.acls import Operation
from minikafka.server.security.authorization import denial_message


@pytest.mark.parametrize(("topic", "resource"), [("orders", "topic 'orders'"), ("", "the cluster")])
def test_denial_names_operation_and_resource(topic: str, resource: str) -> None:
    assert denial_message(Operation.ALTER_CONFIGS, topic) == f"not authorized: AlterConfigs on {resource}"
