"""The bytes of a request count for the quota of its principal."""

from __future__ import annotations

from types import SimpleNamespace

from minikafka.base.clock import ManualClock
from minikafka.registry.users import ClientEntity
from minikafka.security.principals import KafkaPrincipal
from minikafka.server.context import RequestContext
from minikafka.server.core.throttle import metered
from minikafka.server.quotas.client_quotas import ClientQuotaManager, QuotaConfig
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.framing import RequestHeader
from tests.support.recorded_exchange import RecordedExchange


def test_a_request_counts_for_the_user_of_its_connection() -> None:
    quotas = ClientQuotaManager(QuotaConfig(windows=2))
    quotas.change(ClientEntity.of(user="al ice"), {"producer_byte_rate": "1000"})
    broker = SimpleNamespace(quotas=quotas, clock=ManualClock())

    def pause_ms(user: str, client_id: str) -> int:
        exchange = RecordedExchange()
        exchange.principal = KafkaPrincipal.user(user)
        header = RequestHeader(int(PRODUCE.key), 3, 1, client_id)
        metered(broker, RequestContext(header, PRODUCE, exchange), None, 2000).no_reply()
        return int(exchange.calls[-1][-1])

    assert pause_ms("bob", "app") == 0
    assert pause_ms("al ice", "app") == 1000
    assert pause_ms("al ice", "other") == 3000
