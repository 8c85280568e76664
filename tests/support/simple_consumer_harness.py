"""A simple consumer and its broker in memory, which serves both protocols."""

from __future__ import annotations

from minikafka.base.ids import BrokerAddress
from minikafka.clients.simple_consumer import ConsumerMetadataRequest, FetchRequest, SimpleConsumer
from tests.support.simulation import PORT, Simulation

CLASSIC_PORT = 9094
PROPERTIES = {
    "listeners": f"PLAINTEXT://machine-0:{PORT},CLASSIC://machine-0:{CLASSIC_PORT}",
    "offsets.topic.num.partitions": "1",
}


class SimpleConsumerHarness:
    """A broker with the topic ``t`` of two partitions, and a consumer with one of the two protocols."""

    def __init__(self, *, classic: bool = False) -> None:
        self.simulation = Simulation()
        assert self.simulation.machine.start(PROPERTIES)
        self.simulation.create_topic("t", partitions=2)
        self.port = CLASSIC_PORT if classic else PORT
        self.consumer = self.new_consumer(self.port)

    def new_consumer(self, port: int) -> SimpleConsumer:
        classic = port == CLASSIC_PORT
        return SimpleConsumer("machine-0", port, classic=classic, connector=self.simulation.network)

    def fetch(self, partition: int, offset: int, max_size: int = 1000) -> list[tuple[int, bytes | None]]:
        found = self.consumer.fetch(FetchRequest("t", partition, offset, max_size))
        return [(message.offset, message.value) for message in found]

    def coordinator(self, group: str) -> BrokerAddress:
        """Return the coordinator, which is available soon after the first request."""
        for _ in range(20):
            found = self.consumer.send(ConsumerMetadataRequest(group))
            if found.coordinator is not None:
                return found.coordinator
            self.simulation.clock.advance(100)
            self.simulation.settle()
        raise AssertionError(f"no coordinator of {group}")
