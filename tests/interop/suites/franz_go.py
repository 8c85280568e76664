"""Those tests of franz-go's client that need a broker; they come with its module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tests.interop.suites import go_module
from tests.interop.suites.suite import NOT_RUN, Address, Outcome, Suite

PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
NEEDS_A_BROKER = re.compile(r"newTestClient|getSeedBrokers|tmpTopic|testClientOpts|newTestConsumer")


def run(address: Address) -> Iterator[Outcome]:
    """Those tests that can pass, together."""
    wanted: list[str] = []
    for name in go_module.tests_with_a_broker(PACKAGE, NEEDS_A_BROKER):
        reason = address.reason_to_leave_out(name)
        if reason is None:
            wanted.append(name)
        else:
            yield Outcome(name, NOT_RUN, reason)
    environment = {
        "KGO_SEEDS": address.bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": "20000",
        "KGO_TEST_MAX_TOPIC_PARTS": "7",
    }
    for outcome in go_module.go_test(PACKAGE, wanted, environment):
        yield outcome.explained(address.reason_to_leave_out(outcome.test))


SUITE = Suite("franz-go", partial(go_module.missing, PACKAGE), run, {"num.partitions": "4"})
