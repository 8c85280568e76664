"""Replicas on this broker: leaders, followers, the ISR, and the fetchers that copy from leaders.

``replica_manager`` applies what the controller decides. ``replica_fetcher`` copies; ``follower_fetch``
serves those who copy from this broker; ``isr_writer`` writes the ISR to ZooKeeper. Imports ``server.core``,
``server.groups`` and below.
"""
