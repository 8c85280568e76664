"""Commands of scenario scripts for administration over the protocol (see ``commands``).

Each of them is a request. Errors appear as ``CODE: MESSAGE``, with the message of the response.
"""

from __future__ import annotations

from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.wire.api import ApiKey
from minikafka.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from minikafka.wire.apis.create_partitions import CreatePartitionsAssignment, CreatePartitionsTopic
from minikafka.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from minikafka.wire.apis.describe_configs import (
    ConfigResourceType,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from minikafka.wire.apis.incremental_alter_configs import (
    AlterOperation,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.scenarios.commands import VOCABULARY
from tests.scenarios.script import Duration, Numbers, ScriptError
from tests.scenarios.script_simulation import Lines, ScriptRequest, ScriptSimulation
from tests.support import requests
from tests.support.requests import Request

BY_ASSIGNMENT = -1


def _failed(result: Any) -> str:
    message = getattr(result, "error_message", None)
    return ErrorCode.of(result.error_code).name + f": {message}" * bool(message)


def _failures(results: Any) -> Lines:
    named = len(results) > 1
    return [
        f"{getattr(result, 'name', None) or result.resource_name} " * named + _failed(result)
        for result in results
        if result.error_code
    ]


@VOCABULARY.command
def create_topics(
    simulation: ScriptSimulation,
    *topics: str,
    partitions: int = 1,
    replicas: int = 1,
    on: Numbers = (),
    validate_only: bool = False,
    version: int = 3,
    timeout: Duration = 5000,
    **settings: str,
) -> ScriptRequest:
    """Create topics; ``on`` assigns each partition to one broker, in place of ``partitions``."""
    configs = tuple(CreatableTopicConfig(*setting) for setting in settings.items())
    assignment = tuple(CreatableReplicaAssignment(index, (broker,)) for index, broker in enumerate(on))
    numbers = (
        (BY_ASSIGNMENT, BY_ASSIGNMENT) if on and (partitions, replicas) == (1, 1) else (partitions, replicas)
    )
    body = CreateTopicsRequest(
        tuple(CreatableTopic(topic, *numbers, assignment, configs) for topic in topics),
        timeout,
        validate_only,
    )
    return ScriptRequest(
        Request(ApiKey.CREATE_TOPICS, version, body), lambda answer: _failures(answer.topics)
    )


@VOCABULARY.command
def delete_topics(
    simulation: ScriptSimulation, *topics: str, version: int = 3, timeout: Duration = 5000
) -> ScriptRequest:
    """Delete topics."""
    request = requests.delete_topics(*topics, timeout_ms=timeout)
    return ScriptRequest(request.at(version), lambda answer: _failures(answer.topics))


@VOCABULARY.command
def create_partitions(
    simulation: ScriptSimulation,
    topic: str,
    count: int,
    *,
    on: Numbers = (),
    validate_only: bool = False,
    timeout: Duration = 5000,
    version: int = 1,
) -> ScriptRequest:
    """Give a topic ``count`` partitions in all; ``on`` assigns each new one to one broker."""
    assignments = tuple(CreatePartitionsAssignment((broker,)) for broker in on) or None
    new_partitions = CreatePartitionsTopic(topic, count, assignments)
    request = requests.create_partitions(new_partitions, timeout_ms=timeout, validate_only=validate_only)
    return ScriptRequest(request.at(version), lambda answer: _failures(answer.results))


def _resource(name: str) -> tuple[ConfigResourceType, str]:
    """A topic, or a broker as ``broker:ID``."""
    kind, colon, broker = name.partition(":")
    if not colon:
        return ConfigResourceType.TOPIC, name
    if kind != "broker":
        raise ScriptError(f"expected TOPIC or broker:ID, got {name!r}")
    return ConfigResourceType.BROKER, broker


@VOCABULARY.command
def describe_configs(
    simulation: ScriptSimulation, resource: str, *names: str, version: int = 2
) -> ScriptRequest:
    """Settings of a topic or of ``broker:ID`` with their synonyms: the named ones, or all that differ from
    their default.
    """

    def show(answer: Any) -> Lines:
        (result,) = answer.results
        if result.error_code:
            return [_failed(result)]
        return [line for row in result.configs for line in _setting(row, bool(names), version)]

    described = DescribeConfigsResource(*_resource(resource), names or None)
    return ScriptRequest(
        Request(ApiKey.DESCRIBE_CONFIGS, version, DescribeConfigsRequest((described,), True)), show
    )


def _setting(row: Any, named: bool, version: int) -> Lines:
    is_default = row.is_default if version == 0 else row.config_source == ConfigSource.DEFAULT
    if is_default and not named:
        return
    flags = " read-only" * row.read_only + " sensitive" * row.is_sensitive
    source = ("default" if is_default else "set") if version == 0 else _source(row.config_source)
    yield f"{row.name}={row.value} {source}{flags}"
    for synonym in row.synonyms:
        yield f"  {synonym.name}={synonym.value} {_source(synonym.source)}"


def _source(number: int) -> str:
    return ConfigSource(number).name.lower().replace("_", "-")


@VOCABULARY.command
def alter_configs(
    simulation: ScriptSimulation,
    resource: str,
    *,
    validate_only: bool = False,
    version: int = 1,
    **settings: str,
) -> ScriptRequest:
    """Replace all settings."""
    configs = tuple(AlterableConfig(*setting) for setting in settings.items())
    body = AlterConfigsRequest((AlterConfigsResource(*_resource(resource), configs),), validate_only)
    return ScriptRequest(
        Request(ApiKey.ALTER_CONFIGS, version, body), lambda answer: _failures(answer.responses)
    )


@VOCABULARY.command
def incremental_alter_configs(
    simulation: ScriptSimulation,
    resource: str,
    *operations: str,
    validate_only: bool = False,
    **settings: str,
) -> ScriptRequest:
    """Set NAME=VALUE; ``delete:NAME``, ``append:NAME:VALUE`` and ``subtract:NAME:VALUE``."""
    changes = [
        IncrementalAlterableConfig(name, AlterOperation.SET, value) for name, value in settings.items()
    ]
    for operation in operations:
        kind, name, *value = operation.split(":")
        changes.append(
            IncrementalAlterableConfig(name, AlterOperation[kind.upper()], value[0] if value else None)
        )
    body = IncrementalAlterConfigsRequest(
        (IncrementalAlterConfigsResource(*_resource(resource), tuple(changes)),), validate_only
    )
    return ScriptRequest(
        Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, body), lambda answer: _failures(answer.responses)
    )
