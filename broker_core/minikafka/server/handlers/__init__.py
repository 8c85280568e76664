"""One file for each API: ``handle(broker, context, request)`` answers through the context, now or later.

What has a handler is served, and advertised, in all versions that ``minikafka.wire`` has of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minikafka.server.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from minikafka.wire.keys import ApiKey

HANDLERS: dict[ApiKey, Callable[..., Any]] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
}
HANDLERS[ApiKey.API_VERSIONS] = api_versions.listing([*HANDLERS, ApiKey.API_VERSIONS])
