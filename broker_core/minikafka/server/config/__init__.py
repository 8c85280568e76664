"""The broker's configuration: Kafka's property names with their defaults, and the listeners.

Imports ``server.security`` and ``server.quotas``.
"""
