"""The broker's state, under one lock, and what handlers answer through.

``broker`` owns the state; the other modules are its parts: metadata cache, fetch sessions, pending topic
creations, down-converted fetches, throttling and responses that wait for jobs. Imports ``server.config``,
``security``, ``quotas``, ``zookeeper`` and ``workers``.
"""
