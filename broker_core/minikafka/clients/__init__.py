"""Clients of a cluster: connections and metadata, administration, producers, fetchers and consumer groups."""
