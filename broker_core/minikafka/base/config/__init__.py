"""Settings under Kafka's property names: their types, definitions, unknown names, and classes that they name.

Every package that has settings uses it: broker and log, producers and consumers, and the Spark source's
options. It imports only ``base``.
"""
