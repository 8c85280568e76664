"""LeaderAndIsr: the controller assigns the partitions that this broker leads or follows.

The response is sent once this broker has applied the states, with an error for each partition whose log
cannot be opened or that is not valid. A request of a former controller gets STALE_CONTROLLER_EPOCH, and a
partition of another topic than the one that ZooKeeper has under that name INCONSISTENT_TOPIC_ID: they change
nothing.

Versions: 1 marks new replicas and 3 those of a reassignment, which makes no difference here; 2 has the
broker's epoch, which is not checked; 5 has topic ids, and the type of the request, which a controller with
ZooKeeper does not set.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ErrorCode
from minikafka.base.ids import BrokerAddress
from minikafka.server.context import RequestContext
from minikafka.server.control import controller_requests as messages
from minikafka.server.core.broker import Broker
from minikafka.server.replication.replica_manager import ReplicaManager
from minikafka.wire.apis.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

_log = logging.getLogger(__name__)


def handle(
    broker: Broker, replicas: ReplicaManager, context: RequestContext, request: LeaderAndIsrRequest
) -> None:
    """Serve one LeaderAndIsr request, as a job."""
    parsed = messages.parse_leader_and_isr(request)
    leaderships, topic_ids = parsed.leaderships, parsed.topic_ids

    def respond() -> LeaderAndIsrResponse:
        leaders = _addresses(broker, parsed.leaders)
        _report_unreachable(broker, leaders, {state.leader for state in leaderships.values()})
        codes = {**replicas.become_leader_or_follower(leaderships, leaders, topic_ids), **parsed.invalid}
        return messages.leader_and_isr_response(codes, topic_ids, context.version)

    def refuse() -> LeaderAndIsrResponse:
        return LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, ())

    replicas.answer_controller(request.controller_epoch, context, respond, refuse)


def _addresses(broker: Broker, named: Mapping[int, BrokerAddress]) -> Mapping[int, BrokerAddress]:
    """Return the leaders' addresses on this broker's inter-broker listener.

    The request has those of the controller's own inter-broker listener, which may be another one while the
    brokers are restarted with a new one. They count only for a leader that is not in the metadata cache, and
    only without security: credentials are not sent to a host that nothing but a request names.
    """
    cache, own = broker.metadata_cache, broker.config.inter_broker
    addresses = cache.addresses(own.listener)
    if own.protocol is not SecurityProtocol.PLAINTEXT:
        return addresses
    unknown = {broker_id: address for broker_id, address in named.items() if broker_id not in cache.brokers}
    return {**unknown, **addresses}


def _report_unreachable(
    broker: Broker, addresses: Mapping[int, BrokerAddress], leaders: Iterable[int]
) -> None:
    for leader in sorted(leaders):
        if leader < 0 or leader == broker.broker_id or leader in addresses:
            continue
        known = broker.metadata_cache.brokers.get(leader)
        if known is None:
            _log.error("cannot follow partitions of broker %d: it is not in the metadata cache", leader)
        else:
            _log.error(
                "cannot follow partitions of %s: it has no listener %s, which is this broker's "
                "inter.broker.listener.name",
                known,
                broker.config.inter_broker.listener,
            )
