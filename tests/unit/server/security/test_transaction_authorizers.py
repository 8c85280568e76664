"""The permissions that the APIs of transactions need, and what a client gets that lacks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minikafka.base.acls import CLUSTER, Operation, ResourceType
from minikafka.base.errors import ErrorCode
from minikafka.server.security.authorization import Requester
from minikafka.server.security.transaction_authorizers import TRANSACTION_AUTHORIZERS
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minikafka.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from minikafka.wire.apis.end_txn import EndTxnRequest
from minikafka.wire.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

E = ErrorCode
K = ApiKey
Right = tuple[Operation, ResourceType, str]
WRITE_ID: Right = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")
DESCRIBE_ID: Right = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "x")
WRITE_T: Right = (Operation.WRITE, ResourceType.TOPIC, "t")
READ_G: Right = (Operation.READ, ResourceType.GROUP, "g")
ACT: Right = (Operation.CLUSTER_ACTION, CLUSTER.type, CLUSTER.name)


def answer(key: ApiKey, version: int, request: Any, *rights: Right) -> Any:
    """Return the answer to a request that is denied as a whole; None if it is allowed."""

    def may(operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) in rights

    result = TRANSACTION_AUTHORIZERS[key](Requester(may, lambda *_: False, lambda _: None), version, request)
    if result is None:
        return None
    assert result.request is None
    return result.answer(None)


def served(key: ApiKey, request: Any, response: Any, *rights: Right) -> Any:
    """Return what a client with some rights sees of a response."""

    def may(operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) in rights

    result = TRANSACTION_AUTHORIZERS[key](Requester(may, lambda *_: False, lambda _: None), 0, request)
    return response if result is None else result.answer(response)


ADD = AddPartitionsToTxnRequest(
    "x", 1, 0, (AddPartitionsToTxnTopic("t", (0,)), AddPartitionsToTxnTopic("u", (0,)))
)


@pytest.mark.parametrize(
    ("rights", "errors"),
    [
        ((), [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2),
        ((WRITE_ID, WRITE_T), [E.OPERATION_NOT_ATTEMPTED, E.TOPIC_AUTHORIZATION_FAILED]),
    ],
)
def test_one_denied_topic_denies_all_partitions(rights: tuple[Right, ...], errors: list[ErrorCode]) -> None:
    response = answer(K.ADD_PARTITIONS_TO_TXN, 3, ADD, *rights)
    assert [
        topic.results_by_partition[0].partition_error_code for topic in response.results_by_topic
    ] == errors


def test_only_brokers_verify() -> None:
    request = AddPartitionsToTxnRequest()
    denied = answer(K.ADD_PARTITIONS_TO_TXN, 4, request, WRITE_ID, WRITE_T)
    assert denied.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert answer(K.ADD_PARTITIONS_TO_TXN, 4, request, ACT) is None


def test_offsets_need_the_id_and_the_group() -> None:
    check: Callable[..., Any] = lambda *rights: answer(  # noqa: E731
        K.ADD_OFFSETS_TO_TXN, 3, AddOffsetsToTxnRequest("x", 1, 0, "g"), *rights
    )
    assert check(READ_G).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert check(WRITE_ID).error_code == E.GROUP_AUTHORIZATION_FAILED
    assert check(WRITE_ID, READ_G) is None


def test_the_end_needs_the_id() -> None:
    request = EndTxnRequest("x", 1, 0, True)
    assert answer(K.END_TXN, 3, request).error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert answer(K.END_TXN, 3, request, WRITE_ID) is None


def test_description_leaves_out_hidden_topics_and_refuses_hidden_ids() -> None:
    topics = (DescribedTransactionTopic("t", (0,)), DescribedTransactionTopic("u", (0,)))
    row = DescribedTransaction(0, "x", "Ongoing", 1, 1, 1, 0, topics)
    response = served(
        K.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest(("x", "y")),
        DescribeTransactionsResponse(0, (row,)),
        DESCRIBE_ID,
        (Operation.DESCRIBE, ResourceType.TOPIC, "t"),
    )
    assert [(row.transactional_id, row.error_code) for row in response.transaction_states] == [
        ("x", E.NONE),
        ("y", E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ]
    assert [topic.topic for topic in response.transaction_states[0].topics] == ["t"]


def test_all_hidden_ids_are_refused() -> None:
    response = served(K.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(("y",)), None)
    assert response.transaction_states[0].error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_list_leaves_out_hidden_ids() -> None:
    rows = tuple(ListedTransaction(name, 1, "Ongoing") for name in ("x", "y"))
    response = served(
        K.LIST_TRANSACTIONS, ListTransactionsRequest(), ListTransactionsResponse(0, 0, (), rows), DESCRIBE_ID
    )
    assert [row.transactional_id for row in response.transaction_states] == ["x"]
