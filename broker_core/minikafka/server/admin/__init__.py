"""Administration: creating, extending and deleting topics, and dynamic configs of topics and brokers.

Imports ``server.core`` and ``server.config``.
"""
