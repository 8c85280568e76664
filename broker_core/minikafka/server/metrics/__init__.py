"""The metrics of a broker, for Prometheus.

``definitions`` has all of them; ``broker_metrics`` counts; ``broker_collector`` and ``kafka_exporter`` put
together what a scrape gets, from the counters and from the broker's state; ``end_offsets`` asks other brokers
for what this one does not know; ``metrics_endpoint`` and ``health`` are the HTTP side. A scrape takes no lock
of the core. May import all of ``server`` but the handlers and the assembly.
"""
