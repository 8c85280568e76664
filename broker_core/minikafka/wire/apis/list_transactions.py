"""ListTransactions: the transactions that a broker coordinates.

Of Kafka 3.0. Version 1: a filter by the time that a transaction has been open.
"""

from typing import Annotated

from minikafka.base.values import fast_value
from minikafka.wire.api import Api, ApiKey
from minikafka.wire.fields import Int16, Int32, Int64, since

ANY_DURATION = -1
"""The ``duration_filter`` that lets all transactions pass."""


@fast_value
class ListTransactionsRequest:
    """The transactions to list. An empty filter lets all pass."""

    state_filters: Annotated[tuple[str, ...], "empty: all"] = ()
    producer_id_filters: Annotated[tuple[Int64, ...], "empty: all"] = ()
    duration_filter: Annotated[Int64, since(1), "ms that it has been open at least; -1: all"] = ANY_DURATION


@fast_value
class ListedTransaction:
    """A transaction."""

    transactional_id: str
    producer_id: Int64
    transaction_state: str


@fast_value
class ListTransactionsResponse:
    """The transactions that this broker coordinates. ``unknown_state_filters``: names in the request that are
    no states.
    """

    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: tuple[str, ...]
    transaction_states: tuple[ListedTransaction, ...]


LIST_TRANSACTIONS = Api(
    ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 1, ListTransactionsRequest, ListTransactionsResponse
)
