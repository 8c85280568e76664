"""The page about other projects' tests: it must not hide what passes on Apache Kafka and fails here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.suites import kafkajs, librdkafka
from tests.interop.suites.page import HEADING, with_suites
from tests.interop.suites.suite import APACHE_KAFKA, FAILED, MINIKAFKA, NOT_RUN, PASSED, Outcome

BEFORE = "# Compatibility\n\nClients.\n\n"


def results(date: str, **tests: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """The results of tests on Apache Kafka and here."""
    return {
        kind: {
            "date": date,
            "outcomes": [
                {
                    "test": name,
                    "result": pair[number],
                    "why": "" if pair[number] == PASSED else f"why {pair[number]}",
                }
                for name, pair in tests.items()
            ],
        }
        for number, kind in enumerate((APACHE_KAFKA, MINIKAFKA))
    }


def test_tests_are_grouped_by_the_brokers_they_passed_on() -> None:
    of_suite = results(
        "2026-11-26", a=(PASSED, PASSED), b=(PASSED, FAILED), c=(FAILED, PASSED), d=(NOT_RUN, FAILED)
    )
    page = with_suites(BEFORE, {"franz-go": of_suite})
    assert page.startswith(BEFORE + HEADING)
    lines = page.splitlines()
    numbers = (
        "Run on 2026-11-26: 1 passed on both, 1 passed on Apache Kafka 3.9.1 alone, "
        "1 passed on minikafka alone, 1 passed on neither."
    )
    assert numbers in lines
    assert "| `b` | passed | failed | why failed |" in lines
    assert "| `c` | failed | passed | why failed |" in lines
    assert "Passed on both: `a`." in lines


def test_subtests_of_a_test_that_was_left_out_have_its_reason() -> None:
    of_suite = results("2026-11-26", t=(PASSED, NOT_RUN))
    of_suite[APACHE_KAFKA]["outcomes"].append({"test": "t/sub", "result": PASSED, "why": ""})
    page = with_suites(BEFORE, {"franz-go": of_suite})
    assert "| `t/sub` | passed | not run | why not run |" in page.splitlines()


def test_suite_without_new_results_keeps_its_section() -> None:
    page = with_suites(BEFORE, {"franz-go": results("2026-11-25", a=(PASSED, PASSED))})
    page = with_suites(page, {"librdkafka": results("2026-11-26", b=(PASSED, FAILED))})
    again = with_suites(page, {"librdkafka": results("2026-11-27", b=(PASSED, PASSED))})
    assert "Run on 2026-11-25: 1 passed on both." in again
    assert "Run on 2026-11-27: 1 passed on both." in again
    assert "2026-11-26" not in again
    assert with_suites(again, {}) == again


def test_outcome_of_a_test_that_did_not_end_is_a_failure() -> None:
    said = "[0001_a] SKIPPING TEST: not now"
    assert librdkafka.outcome_of("0001-a", None, said, "/t") == Outcome(
        "0001-a", FAILED, "not done after 240 s"
    )


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (0, "= Test 0001_a PASSED =", Outcome("0001-a", PASSED)),
        (1, "### Test 0001_a failed ###\n/t/0001-a.c:12: no\n", Outcome("0001-a", FAILED, "0001-a.c:12: no")),
        (-6, "free(): invalid pointer\n", Outcome("0001-a", FAILED, "free(): invalid pointer")),
        (0, "SKIPPING TEST: too old\n", Outcome("0001-a", NOT_RUN, "too old")),
        (0, "SKIPPING TEST: Filtered due to negative test flags\n", None),
    ],
)
def test_output_of_librdkafka_is_judged(status: int, said: str, outcome: Outcome | None) -> None:
    assert librdkafka.outcome_of("0001-a", status, said, "/t") == outcome


def test_specs_of_kafkajs_are_told_apart_and_known_failures_have_a_reason() -> None:
    def spec(status: str, *messages: str) -> dict[str, object]:
        return {"fullName": "Broker connects", "status": status, "failureMessages": list(messages)}

    failed = spec("failed", "Error: request_timeout\n    at")
    tests = [spec("passed"), failed, spec("pending")]
    results = [{"name": "/x/src/broker/__tests__/connect.spec.js", "assertionResults": tests}]
    name, first = "broker/connect: Broker connects", "Error: request_timeout"
    for kind, reason in ((MINIKAFKA, kafkajs.KNOWN["request_timeout"]), (APACHE_KAFKA, first)):
        assert list(kafkajs.outcomes_of({"testResults": results}, kind)) == [
            Outcome(name, PASSED),
            Outcome(f"{name} (2)", FAILED, reason),
            Outcome(f"{name} (3)", NOT_RUN),
        ]
