"""The metrics of clients, under the names of Kafka's Java clients, as kafka-python shows them.

    {"producer-metrics": {"record-send-total": 20.0, …}, "producer-topic-metrics.orders": {…}, …}

``sensor`` measures numbers over windows of time, ``registry`` has the table of all names and turns sensors
into such a mapping, and there is a module for each kind of client. They import ``base`` alone, so that every
client can have them.
"""
