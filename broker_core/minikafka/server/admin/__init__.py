"""Administration: creating, extending and deleting topics, and dynamic configs of topics and brokers.

``topics`` validates topic requests and waits for the controller; ``dynamic_config`` describes and changes
configs. A folder of its own, since handlers, ``groups`` and ``control`` use it (``AdminManager`` in Kafka).
Imports ``server.core`` and ``server.config``.
"""
