"""The group coordinator: requests, timers and the log of ``__consumer_offsets`` around ``minikafka.groups``.

Imports ``server.coordination``, ``server.core``, ``server.admin`` and ``server.workers``.
"""
