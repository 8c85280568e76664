"""What is asked of a broker about its cluster: topics, and who coordinates a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.clients.network.metadata import TopicMetadata


@dataclass(frozen=True, slots=True)
class TopicMetadataRequest:
    """Asks who leads the partitions of ``topics``; of all, where none is named (``TopicMetadataRequest``).

    With ``creates_topics`` a broker that has ``auto.create.topics.enable`` makes those that are not there;
    one before 0.11 does so in any case.
    """

    topics: tuple[str, ...] = ()
    creates_topics: bool = False


@dataclass(frozen=True, slots=True)
class TopicMetadataResponse:
    """The brokers that live, by id, and the topics by name, each with its error
    (``TopicMetadataResponse``).
    """

    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class ConsumerMetadataRequest:
    """Asks who coordinates ``group`` and keeps its offsets (``ConsumerMetadataRequest``; since 0.9
    ``GroupCoordinatorRequest``). The first of a cluster has the topic of offsets made.
    """

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerMetadataResponse:
    """The coordinator, None with an error: GROUP_COORDINATOR_NOT_AVAILABLE where it may be there soon
    (``ConsumerMetadataResponse``).
    """

    coordinator: BrokerAddress | None
    error: ErrorCode
