"""Administration: topics and their partitions, dynamic configs, quotas, and credentials of users.

``topics`` validates topic requests and waits for the controller, ``partition_operation`` waits for elections
and reassignments; ``dynamic_config`` describes and changes configs, ``entity_quotas`` quotas, ``scram_users``
SCRAM credentials. A folder of its own, since handlers, ``groups`` and ``control`` use it (``AdminManager`` in
Kafka). Imports ``server.core``, ``server.config`` and ``server.quotas``.
"""
