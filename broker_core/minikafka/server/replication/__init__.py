"""Replicas on this broker: leaders, followers, the ISR, and the fetchers that copy from leaders.

``replica_manager`` applies the controller's decisions. ``replica_fetcher`` copies from leaders;
``session_fetch`` serves followers, and consumers with a session; ``isr_writer`` writes the ISR to ZooKeeper.
Imports ``server.core``, ``server.groups`` and below.
"""
