"""The APIs that are spoken here, by key."""

from __future__ import annotations

from typing import Any

from minikafka.wire.api import Api
from minikafka.wire.apis.api_versions import API_VERSIONS
from minikafka.wire.apis.create_topics import CREATE_TOPICS
from minikafka.wire.apis.delete_topics import DELETE_TOPICS
from minikafka.wire.apis.fetch import FETCH
from minikafka.wire.apis.list_offsets import LIST_OFFSETS
from minikafka.wire.apis.metadata import METADATA
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.keys import ApiKey

__all__ = [
    "APIS",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "FETCH",
    "LIST_OFFSETS",
    "METADATA",
    "PRODUCE",
    "Api",
    "ApiKey",
]

APIS: dict[ApiKey, Api[Any, Any]] = {
    api.key: api
    for api in (PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS)
}
