"""Those tests of segmentio's kafka-go that need a broker; they come with its module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tests.interop.suites import go_module
from tests.interop.suites.suite import VERSION, Address, Outcome, Suite, plain_login

PACKAGE = "github.com/segmentio/kafka-go"
NEEDS_A_BROKER = re.compile(
    r"newLocal|createTopic|makeTopic|localhost:909|NewReader\(|NewConsumerGroup\(|scenario"
)
PANIC = (
    "TestReaderConsumerGroup/"
    "(verify_offset_committed(_when_using_interval_committer)?|consumer_group_commits_on_close)$"
)
"""These end the whole run: they call a function that their own group does not have."""

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
    "message.max.bytes": "200000000",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    **plain_login("sasl_plaintext", adminplain="admin-secret"),
}


def run(address: Address) -> Iterator[Outcome]:
    """All of them, together."""
    chosen = go_module.tests_with_a_broker(PACKAGE, NEEDS_A_BROKER)
    environment = {"KAFKA_VERSION": VERSION, "KAFKA_SKIP_NETTEST": "1"}
    yield from go_module.go_test(PACKAGE, chosen, environment, f"-skip={PANIC}")


SUITE = Suite(
    "kafka-go",
    partial(go_module.missing, PACKAGE),
    run,
    SETTINGS,
    listeners={1: ("PLAINTEXT://localhost:9092", "SASL_PLAINTEXT://localhost:9093")},
    users={"adminscram": ("admin-secret-256", "admin-secret-512")},
)
