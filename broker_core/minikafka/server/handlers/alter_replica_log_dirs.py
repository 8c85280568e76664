"""AlterReplicaLogDirs: move replicas between the data directories of this broker.

The response comes when the moves have begun; DescribeLogDirs shows how far they are. A partition that is
named for several directories goes to the last of them, as in Kafka. ``server.replication.alter_log_dirs``
moves.
"""

from __future__ import annotations

import logging
from functools import partial

from minikafka.base.errors import BrokerError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.server.context import RequestContext
from minikafka.server.core.broker import Broker
from minikafka.server.core.deferred_response import answer_by_jobs
from minikafka.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    alter_log_dirs_response,
    log_dirs_of,
)

_log = logging.getLogger(__name__)

ROW_BYTES = 100
"""Estimated memory of a row until it is encoded."""


def handle(broker: Broker, context: RequestContext, request: AlterReplicaLogDirsRequest) -> None:
    """Serve one AlterReplicaLogDirs request."""
    paths, codes = log_dirs_of(request), dict[TopicPartition, ErrorCode]()

    def alter(topic_partition: TopicPartition) -> None:
        codes[topic_partition] = ErrorCode.NONE
        try:
            broker.alter_log_dir(topic_partition, paths[topic_partition])
        except BrokerError as error:
            text = "cannot move the log of %s to %s: %s"
            _log.warning(text, topic_partition, paths[topic_partition], error)
            codes[topic_partition] = error.code

    answer_by_jobs(
        broker,
        context,
        list(paths),
        alter,
        partial(alter_log_dirs_response, codes),
        lambda error: alter_log_dirs_response(dict.fromkeys(paths, error.code)),
        len(paths) * ROW_BYTES,
    )
