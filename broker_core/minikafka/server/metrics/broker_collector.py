"""Puts together the metrics of a broker for one scrape: its counters, and gauges from its state.

Nothing here takes the core's lock: dictionaries are copied in one step of the interpreter, and what they hold
may be of slightly different times.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Mapping

from minikafka.base import __version__
from minikafka.base.exposition import MetricSink
from minikafka.partition.partition import Partition
from minikafka.partition.replica import LeaderAndIsr
from minikafka.registry.users import ClientEntity, desanitize
from minikafka.server.assembly import RunningBroker
from minikafka.server.config.metrics import MetricsConfig
from minikafka.server.core.broker import Broker
from minikafka.server.core.metadata_cache import MetadataCache
from minikafka.server.metrics import definitions as d
from minikafka.server.metrics.broker_metrics import TOPIC_COUNTERS
from minikafka.server.metrics.end_offsets import EndOffsets
from minikafka.server.metrics.health import Health
from minikafka.server.metrics.kafka_exporter import KafkaExporter, Scrape, SeriesBudget
from minikafka.server.metrics.process import expose_process
from minikafka.server.metrics.zookeeper_groups import ZooKeeperGroups
from minikafka.transactions.states import TransactionState

_OF_QUOTA = (d.QUOTA_RATE, d.QUOTA_LIMIT, d.QUOTA_PAUSE)


class BrokerCollector:
    """Adds all metrics of a running broker to an exposition. Thread-safe."""

    def __init__(self, running: RunningBroker, health: Health, ends: EndOffsets, started_s: float) -> None:
        """started_s: the start of the process, since the epoch."""
        self._running = running
        self._broker: Broker = running.broker
        self._health = health
        self._config: MetricsConfig = running.broker.config.metrics
        self._started_s = started_s
        store = running.broker.zk_client.store
        zookeeper_groups = ZooKeeperGroups(store, self._config.wants_group)
        self._exporter = KafkaExporter(
            running.broker, running.coordinator, ends, zookeeper_groups, self._config
        )

    def expose(self, out: MetricSink) -> None:
        """Add all metrics."""
        began_ns = time.perf_counter_ns()
        broker, metrics = self._broker, self._broker.metrics
        metadata = broker.metadata_cache
        scrape = Scrape(out, metadata, self._topics(metadata), SeriesBudget(self._config.max_series))
        budget = scrape.budget
        self._expose_broker(out)
        self._exporter.expose_partitions(scrape)
        metrics.requests.expose(out)
        self._expose_network(out)
        metrics.expose_topics(out, budget.take_of(list(scrape.topics), len(TOPIC_COUNTERS)))
        self._expose_replicas(out)
        self._expose_logs(scrape)
        self._expose_waiting(out)
        self._expose_controller(out)
        self._expose_groups(out)
        self._exporter.expose_groups(scrape)
        self._expose_quotas(scrape)
        self._expose_transactions(out)
        out.add_histograms(d.ZOOKEEPER_LATENCY, {(): metrics.zookeeper_requests.read()})
        out.add(d.ZOOKEEPER_CONNECTED, int(broker.zk_client.connected))
        metrics.expose_events(out, (d.ZOOKEEPER_SESSION_EVENTS,))
        out.add_histograms(d.GC_PAUSES, {(): metrics.gc_pauses.read()})
        expose_process(out, self._started_s)
        out.add(d.DROPPED_SERIES, budget.dropped)
        out.add(d.SCRAPE_TIME, (time.perf_counter_ns() - began_ns) / 1e9)

    def _expose_broker(self, out: MetricSink) -> None:
        out.add(d.BUILD_INFO, 1, __version__, platform.python_version(), self._broker.broker_id)
        out.add(d.CLUSTER_INFO, 1, self._broker.metadata_cache.cluster_id)
        out.add(d.BROKER_STATE, int(self._health.state))

    def _topics(self, metadata: MetadataCache) -> Mapping[str, Mapping[int, LeaderAndIsr]]:
        """Return the topics with metrics of their own."""
        wants = self._config.wants_topic
        return {name: partitions for name, partitions in metadata.topics.items() if wants(name)}

    def _expose_network(self, out: MetricSink) -> None:
        server, broker = self._running.server, self._broker
        counts = sorted(server.connections().items())
        out.add_rows((d.CONNECTIONS, d.CONNECTIONS_ACCEPTED), [((name,), *pair) for name, pair in counts])
        idle = server.idle_seconds().items()
        out.add_all(d.NETWORK_IDLE, [((name,), seconds) for name, seconds in idle])
        out.add(d.POOL_QUEUE, broker.pool.queued())
        broker.metrics.expose_events(out, (d.THROTTLED, d.AUTHENTICATIONS))

    def _expose_quotas(self, scrape: Scrape) -> None:
        usages = self._broker.quotas.usages(self._broker.clock.monotonic_ms(), self._wants_client)
        rows = [
            (
                (usage.quota.value, _name(usage.entity.user), _name(usage.entity.client_id)),
                usage.per_second,
                usage.limit,
                usage.pause_ms / 1000,
            )
            for usage in usages
        ]
        rows = scrape.budget.take_of(sorted(rows), len(_OF_QUOTA))
        scrape.out.add_rows(_OF_QUOTA, rows)

    def _wants_client(self, entity: ClientEntity) -> bool:
        return self._config.wants_client(_name(entity.user), _name(entity.client_id))

    def _expose_replicas(self, out: MetricSink) -> None:
        partitions = list(self._broker.partitions.values())
        led = [partition for partition in partitions if partition.is_leader]
        out.add(d.PARTITIONS, len(partitions))
        out.add(d.LEADERS, len(led))
        out.add(d.UNDER_REPLICATED_PARTITIONS, sum(map(_is_under_replicated, led)))
        out.add(d.UNDER_MIN_ISR, sum(map(_is_under_min_isr, led)))
        self._broker.metrics.expose_events(out, (d.ISR_SHRINKS, d.ISR_EXPANDS))
        lags: dict[int, int] = {}
        for partition in led:
            for follower, lag in partition.follower_lags().items():
                lags[follower] = max(lag, lags.get(follower, 0))
        out.add_all(d.FOLLOWER_LAG, [((key,), lag) for key, lag in sorted(lags.items())])

    def _expose_logs(self, scrape: Scrape) -> None:
        out, topics, logs = scrape.out, scrape.topics, self._broker.logs
        rows = [
            (topic_partition, log.size_bytes, len(log.segments))
            for topic_partition, log in logs.logs().items()
            if topic_partition.topic in topics
        ]
        out.add_rows((d.LOG_SIZE, d.LOG_SEGMENTS), scrape.budget.take_of(rows, 2))
        out.add_histograms(d.LOG_FLUSHES, {(): self._broker.metrics.flushes.read()})
        out.add(d.OFFLINE_DIRECTORIES, len(logs.offline_paths))
        self._broker.metrics.expose_events(out, (d.CLEANER_RUNS, d.CLEANED_BYTES))
        cleaning = self._running.cleaning
        out.add(d.UNCLEANABLE, 0 if cleaning is None else len(cleaning.uncleanable))

    def _expose_waiting(self, out: MetricSink) -> None:
        names = (type(ticket).__name__.lstrip("_") for ticket in self._broker.purgatory.tickets())
        kinds = Counter({"Fetch": 0, "Produce": 0})
        kinds.update(name.removeprefix("Delayed") for name in names)
        out.add_all(d.PURGATORY, [((kind,), count) for kind, count in sorted(kinds.items())])

    def _expose_controller(self, out: MetricSink) -> None:
        controller = self._broker.controller
        out.add(d.CONTROLLER_ACTIVE, int(controller.active))
        if controller.active:
            topics = self._broker.metadata_cache.topics.values()
            known = [leadership for partitions in topics for leadership in partitions.values()]
            out.add(d.CONTROLLER_EPOCH, controller.epoch)
            out.add(d.OFFLINE_PARTITIONS, sum(leadership.leader < 0 for leadership in known))
            out.add(d.IMBALANCE, sum(leadership.leader != leadership.replicas[0] for leadership in known))
            out.add(d.REASSIGNING, len(controller.reassignments()))
        out.add(d.ELECTIONS, controller.election_counts.all)
        out.add(d.UNCLEAN_ELECTIONS, controller.election_counts.unclean)

    def _expose_groups(self, out: MetricSink) -> None:
        shards = list(self._running.coordinator.shards.values())
        states = Counter(group.state.value for shard in shards for group in shard.groups())
        out.add_all(d.GROUPS, [((state,), count) for state, count in sorted(states.items())])
        out.add(d.GROUP_OFFSETS, sum(shard.offset_count() for shard in shards))
        self._broker.metrics.expose_events(out, (d.REBALANCES,))

    def _expose_transactions(self, out: MetricSink) -> None:
        coordinated = [
            found for led in list(self._running.transactions.led.values()) for found in led.shard.states()
        ]
        states = Counter(state.label for state, _ in coordinated)
        out.add_all(d.TRANSACTIONS, [((name,), count) for name, count in sorted(states.items())])
        now_ms = self._broker.clock.now_ms()
        open_ms = [now_ms - begun_ms for state, begun_ms in coordinated if state is TransactionState.ONGOING]
        out.add(d.OLDEST_TRANSACTION, max(0, *open_ms, 0) / 1000)


def _name(encoded: str | None) -> str:
    """Return the name of a user or client id; "" for all of them together."""
    return "" if encoded is None else desanitize(encoded)


def _is_under_replicated(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.isr) < len(leadership.replicas)


def _is_under_min_isr(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is not None and len(leadership.isr) < partition.log.config.min_insync_replicas
