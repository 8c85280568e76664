"""The producer of the reference texts beside kafka-python's and confluent-kafka's, on our broker.

    python benchmarks/producer_bench.py [--records N] [--runs N] [--only CASE,…] [--json]

Values of 100 bytes without a key go to a topic of four partitions with acks=1, by clients in Python that
share the machine's cores with the broker. Counted is the time from the first message until all are
acknowledged. Cases: ``async`` sends one KeyedMessage after the other; ``list`` and ``arrow`` send all values
in one call; the peers are called once for each message, the only way that they have. All have their default
settings. Each case is a process of its own; the cases take turns in going first.

Goals: ``async`` 3 × kafka-python and 0.8 × confluent-kafka; ``list`` and ``arrow`` 2 × confluent-kafka.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable

from client_cases import arguments, in_turns, print_goals, records_of, run_alone

from minikafka.embedded import Cluster

PARTITIONS = 4
VALUE_BYTES = 100
GOALS = {
    ("async", "kafka-python"): 3.0,
    ("async", "confluent"): 0.8,
    ("list", "confluent"): 2.0,
    ("arrow", "confluent"): 2.0,
}
"""The rate of the first, in those of the second."""


def values_of(records: int) -> list[bytes]:
    """So many different values."""
    return [b"%010d" % number + b"v" * (VALUE_BYTES - 10) for number in range(records)]


def ours(servers: str, topic: str, values: list[bytes], how: str) -> float:
    """Seconds of our producer."""
    import pyarrow as pa

    from minikafka.clients.producer import KeyedMessage, Producer

    producer = Producer(
        {"metadata.broker.list": servers, "producer.type": "async", "request.required.acks": 1}
    )
    given = pa.array(values, pa.binary()) if how == "arrow" else values
    producer.send_values(topic, values[:1000])
    while producer.queued:
        time.sleep(0.01)
    began = time.monotonic()
    if how == "async":
        send = producer.send
        for value in values:
            send(KeyedMessage(topic, value))
    else:
        producer.send_values(topic, given)
    producer.close()
    seconds = time.monotonic() - began
    assert producer.stats.failed_messages == 0
    return seconds


def kafka_python(servers: str, topic: str, values: list[bytes]) -> float:
    """Seconds of kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers, acks=1)
    for value in values[:1000]:
        producer.send(topic, value)
    producer.flush()
    began = time.monotonic()
    for value in values:
        producer.send(topic, value)
    producer.flush()
    seconds = time.monotonic() - began
    producer.close()
    return seconds


def confluent(servers: str, topic: str, values: list[bytes]) -> float:
    """Seconds of confluent-kafka."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "acks": 1})
    for value in values[:1000]:
        producer.produce(topic, value)
    producer.flush()
    began = time.monotonic()
    for value in values:
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    return time.monotonic() - began


CASES: dict[str, Callable[[str, str, list[bytes]], float]] = {
    "async": lambda servers, topic, values: ours(servers, topic, values, "async"),
    "list": lambda servers, topic, values: ours(servers, topic, values, "list"),
    "arrow": lambda servers, topic, values: ours(servers, topic, values, "arrow"),
    "kafka-python": kafka_python,
    "confluent": confluent,
}


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__, CASES, 500_000)
    if given.client:
        case, servers, topic, records = given.client
        print(CASES[case](servers, topic, values_of(int(records))))
        return
    cases = given.only.split(",")
    rates: dict[str, list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as directory, Cluster(data_dir=directory) as cluster:
        for run, case in in_turns(cases, given.runs):
            records, topic = records_of(case, given.records), f"{case}-{run}"
            cluster.create_topic(topic, partitions=PARTITIONS)
            rates[case].append(records / run_alone(__file__, case, cluster.bootstrap_servers, topic, records))
    medians = {case: statistics.median(found) for case, found in rates.items()}
    if given.json:
        print(json.dumps(rates))
        return
    for case, found in rates.items():
        print(f"{case:13} {medians[case] / 1e3:7,.0f} k/s  ({', '.join(f'{r / 1e3:,.0f}' for r in found)})")
    print_goals(medians, GOALS)


if __name__ == "__main__":
    main()
