"""Topics created, grown and deleted on request, and the dynamic settings of topics and brokers.

Imports ``server.core`` and ``server.config``.
"""
