"""Administration of a cluster by Kafka's protocol: topics, settings, ACLs, offsets, log directories.

What has no request of that time stands in ``clients.admin.zookeeper``. Imports ``clients.network``,
``fetch`` and ``group``.
"""
