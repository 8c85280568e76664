"""The checkpoint of a streaming query: Spark's files, read before the first batch.

``spark_checkpoint`` reads the offsets that another source, Spark's Kafka connector, has left;
``subscription`` refuses a query whose topics were changed since. Imports ``offsets`` and ``strategy``.
"""
