"""The table of all kinds of znodes whose data is read; the reference page of znodes is generated from it."""

from __future__ import annotations

from typing import Any

from minikafka.registry.acls import ACL_CHANGE, EXTENDED_ACL_CHANGE, PREFIX_ACLS, RESOURCE_ACLS
from minikafka.registry.brokers import BROKER
from minikafka.registry.cluster import CLUSTER, PRODUCER_ID_BLOCK, UNKNOWN_USERS_SECRET
from minikafka.registry.consumer_offsets import OFFSET
from minikafka.registry.consumers import CONSUMER, OWNER
from minikafka.registry.controller import (
    CONTROLLER_REGISTRATION,
    ELECTION,
    EPOCH,
    ISR_CHANGE,
    LOG_FAILURE,
    REASSIGNMENTS,
)
from minikafka.registry.entity_configs import CONFIG_CHANGE, ENTITY_CONFIG
from minikafka.registry.topics import PARTITION_STATE, TOPIC
from minikafka.registry.znodes import Kind

KINDS: tuple[Kind[Any], ...] = (
    BROKER,
    TOPIC,
    PARTITION_STATE,
    CONTROLLER_REGISTRATION,
    EPOCH,
    REASSIGNMENTS,
    ELECTION,
    ISR_CHANGE,
    LOG_FAILURE,
    CLUSTER,
    PRODUCER_ID_BLOCK,
    UNKNOWN_USERS_SECRET,
    ENTITY_CONFIG,
    CONFIG_CHANGE,
    CONSUMER,
    OWNER,
    OFFSET,
    RESOURCE_ACLS,
    ACL_CHANGE,
    PREFIX_ACLS,
    EXTENDED_ACL_CHANGE,
)
