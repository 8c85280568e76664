"""The group coordinator: requests, timers and the log of ``__consumer_offsets`` around ``minikafka.groups``.

Imports ``server.core``, ``server.admin`` and ``server.workers``.
"""
