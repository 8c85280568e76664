"""Read settings under Kafka's property names: values, unknown names, classes that settings name.

Every package that has settings uses it: broker and log, producers and consumers, and the Spark source's
options. It imports only ``base``.
"""
