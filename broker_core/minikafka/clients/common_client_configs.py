"""Settings that Kafka's clients share (``CommonClientConfigs``): types, and what minikafka does not have.

``UNSUPPORTED`` names the features that do not exist yet, and ``WITHOUT_EFFECT`` Kafka's settings that change
nothing here. Our clients warn of both with the reason; the Spark source refuses the first, and checks the
values of the others as Kafka's clients do. ``CHECKED_BY_CLIENTS`` are refused by both.
"""

from __future__ import annotations

import re

from minikafka.base.config.types import (
    ANY_TEXT,
    BOOLEAN,
    PASSWORD,
    SECURITY_PROTOCOL,
    Type,
    capped_int64,
    choice,
    int32,
    matching,
)
from minikafka.base.config.unknown_names import NOT_YET, SECURITY_PREFIXES

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]*")
"""Names that 0.10.1 takes for clients and groups."""
LEGAL_TEXT = "ASCII letters and digits, '.', '_' and '-'"
CLIENT_ID = matching(LEGAL_NAME, f"text of {LEGAL_TEXT}")
ACKS_ALL = -1
ACKS = choice({"all": ACKS_ALL, "-1": ACKS_ALL, "0": 0, "1": 1})

CHECKED_BY_CLIENTS: dict[str, Type] = {"security.protocol": SECURITY_PROTOCOL}
"""Settings of every client that have one value in this version."""

SECURITY: dict[str, Type] = {
    "sasl.client.callback.handler.class": ANY_TEXT,
    "sasl.jaas.config": PASSWORD,
    "sasl.kerberos.service.name": ANY_TEXT,
    "sasl.login.callback.handler.class": ANY_TEXT,
    "sasl.login.class": ANY_TEXT,
    "sasl.mechanism": ANY_TEXT,
    "sasl.oauthbearer.token.endpoint.url": ANY_TEXT,
    "ssl.cipher.suites": ANY_TEXT,
    "ssl.enabled.protocols": ANY_TEXT,
    "ssl.endpoint.identification.algorithm": ANY_TEXT,
    "ssl.key.password": PASSWORD,
    "ssl.keystore.certificate.chain": PASSWORD,
    "ssl.keystore.key": PASSWORD,
    "ssl.keystore.location": ANY_TEXT,
    "ssl.keystore.password": PASSWORD,
    "ssl.keystore.type": ANY_TEXT,
    "ssl.protocol": ANY_TEXT,
    "ssl.provider": ANY_TEXT,
    "ssl.truststore.certificates": PASSWORD,
    "ssl.truststore.location": ANY_TEXT,
    "ssl.truststore.password": PASSWORD,
    "ssl.truststore.type": ANY_TEXT,
}
"""The commonly set ones of TLS and SASL, so that a misspelt one is reported as such."""

UNSUPPORTED_NAMES = ("partitioner.class", "transactional.id")
UNSUPPORTED: dict[str, str] = dict.fromkeys((*SECURITY_PREFIXES, *UNSUPPORTED_NAMES, *SECURITY), NOT_YET)
"""Name, or prefix that ends with a dot -> reason."""

_AGE_MS = capped_int64(0)

WITHOUT_EFFECT: dict[str, Type] = {
    "allow.auto.create.topics": BOOLEAN,
    "auto.commit.interval.ms": int32(0),
    "block.on.buffer.full": BOOLEAN,
    "bootstrap.servers": ANY_TEXT,
    "client.dns.lookup": ANY_TEXT,
    "client.rack": ANY_TEXT,
    "default.api.timeout.ms": int32(0),
    "exclude.internal.topics": BOOLEAN,
    "fetch.max.bytes": int32(0),
    "group.id": ANY_TEXT,
    "group.instance.id": ANY_TEXT,
    "group.protocol": ANY_TEXT,
    "group.remote.assignor": ANY_TEXT,
    "heartbeat.interval.ms": int32(0),
    "max.poll.interval.ms": int32(1),
    "max.poll.records": int32(1),
    "metadata.fetch.timeout.ms": _AGE_MS,
    "metadata.max.idle.ms": _AGE_MS,
    "metadata.recovery.strategy": ANY_TEXT,
    "metric.reporters": ANY_TEXT,
    "metrics.num.samples": int32(1),
    "metrics.recording.level": ANY_TEXT,
    "metrics.sample.window.ms": _AGE_MS,
    "offsets.storage": ANY_TEXT,
    "partition.assignment.strategy": ANY_TEXT,
    "partitioner.adaptive.partitioning.enable": BOOLEAN,
    "partitioner.availability.timeout.ms": _AGE_MS,
    "partitioner.ignore.keys": BOOLEAN,
    "receive.buffer.bytes": int32(-1),
    "reconnect.backoff.max.ms": _AGE_MS,
    "reconnect.backoff.ms": _AGE_MS,
    "retry.backoff.max.ms": _AGE_MS,
    "send.buffer.bytes": int32(-1),
    "session.timeout.ms": int32(0),
    "socket.connection.setup.timeout.max.ms": _AGE_MS,
    "socket.connection.setup.timeout.ms": _AGE_MS,
    "timeout.ms": int32(0),
    "transaction.timeout.ms": int32(0),
    "zookeeper.connect": ANY_TEXT,
}
"""Client property of Kafka -> type."""

UNSUPPORTED_BY_CLIENTS = (
    dict.fromkeys(
        (
            *WITHOUT_EFFECT,
            "interceptor.classes",
            "key.deserializer",
            "key.serializer",
            "value.deserializer",
            "value.serializer",
        ),
        "minikafka does not use it",
    )
    | UNSUPPORTED
)
"""Settings of which our own clients warn: name, or prefix that ends with a dot -> reason."""
