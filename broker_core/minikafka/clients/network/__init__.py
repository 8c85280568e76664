"""A client's connections to a cluster: bootstrap, metadata, one connection a broker, retries and deadlines.

Every client is built on it. Imports ``net``, ``wire`` and ``base``.
"""
