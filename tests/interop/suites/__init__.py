"""Integration tests of other projects, run against Apache Kafka 3.9.1 and against our brokers.

    python -m tests.interop.suites RESULTS.json [SUITE | BROKER]…
    python -m tests.interop.suites.page RESULTS.json docs/reference/compatibility.md

    suite       what a suite wants of its brokers, and the outcome of a test
    brokers     brokers of both kinds with the same settings
    page        writes the results into docs/reference/compatibility.md
    franz_go, kafka_go, kafka_python, kafkajs, librdkafka    one suite each; ``__main__`` lists them
    go_module   what the suites of Go modules share

Nothing here builds or keeps their code.
"""
