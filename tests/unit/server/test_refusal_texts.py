"""What a broker says of requests that its access rules refuse."""

from __future__ import annotations

import pytest

from minikafka.base.acls import Operation
from minikafka.server.security.request_authorizers import _denial_message


@pytest.mark.parametrize(
    ("topic", "said"),
    [("orders", "do AlterConfigs to topic 'orders'"), ("", "do AlterConfigs to the cluster")],
)
def test_a_refusal_names_the_operation_and_what_it_was_meant_for(topic: str, said: str) -> None:
    text = f"the access rules do not permit this client to {said}"
    assert _denial_message(Operation.ALTER_CONFIGS, topic) == text
