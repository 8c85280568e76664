"""Authorization: ACLs from ZooKeeper, the authorizer, and the check that each API's request passes.

Imports ``server.zookeeper``, ``server.workers`` and ``server.context``.
"""
