"""Apache Kafka's log, protocol and coordination in Python.

The packages are floors: each imports only from those below it (see ARCHITECTURE.md).
"""

__version__ = "0.1.0.dev0"
