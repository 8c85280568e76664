"""The HTTP endpoint of a broker: ``/metrics``, ``/livez`` (also ``/healthz``) and ``/readyz``.

It is there before the logs are recovered, so that a probe sees a broker that starts, and until the last
connection is closed. It needs no login and tells no secrets.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from minikafka.base.errors import NetworkError
from minikafka.base.exposition import Exposition, MetricSink, wants_openmetrics
from minikafka.net.http_server import HttpServer, HttpText
from minikafka.server.config.metrics import HttpAddress
from minikafka.server.metrics.definitions import BROKER_STATE
from minikafka.server.metrics.health import Health

_log = logging.getLogger(__name__)

_SHARE = 4
"""A text is used again for so many times the time that it took: scrapes use a fifth of a core at most."""
_INDEX = (
    b"<!doctype html><title>minikafka broker</title><ul><li><a href=/metrics>/metrics</a>"
    b"<li><a href=/livez>/livez</a><li><a href=/readyz>/readyz</a></ul>\n"
)


class MetricsEndpoint:
    """Serves the health of a broker, and its metrics as soon as ``collect`` is set."""

    def __init__(self, addresses: Iterable[HttpAddress], health: Health) -> None:
        """Raises NetworkError for an address that cannot be used."""
        self._health = health
        self.collect: Callable[[MetricSink], None] = lambda out: out.add(BROKER_STATE, int(health.state))
        """Adds the metrics."""
        self._scraping = threading.Lock()
        """Held while a text is put together: one at a time, as it takes the broker's processor time."""
        self._texts: dict[bool, tuple[HttpText, float]] = {}
        """The last text in each form, and the time until which it is used again."""
        self._servers: list[HttpServer] = []
        try:
            for address in addresses:
                self._servers.append(self._server_at(address))
        except BaseException:
            self.stop()
            raise
        for server in self._servers:
            _log.info("metrics at %s/metrics", server.url)

    def _server_at(self, address: HttpAddress) -> HttpServer:
        try:
            return HttpServer(address.host, address.port, self.respond)
        except NetworkError as error:
            todo = "perhaps this broker already runs; if not, set another port in metrics.listeners"
            raise NetworkError(f"{error}; {todo}") from None

    @property
    def urls(self) -> list[str]:
        """The addresses."""
        return [server.url for server in self._servers]

    def respond(self, path: str, accept: str) -> HttpText | None:
        """Return the response to a request. accept: its header of that name."""
        if path == "/metrics":
            return self._metrics(wants_openmetrics(accept))
        if path in {"/livez", "/healthz"}:
            return _checked(self._health.live())
        if path == "/readyz":
            return _checked(self._health.ready())
        return HttpText(200, "text/html; charset=utf-8", _INDEX) if path == "/" else None

    def _metrics(self, openmetrics: bool) -> HttpText:
        with self._scraping:
            text, until_s = self._texts.get(openmetrics, (None, 0.0))
            began_s = time.monotonic()
            if text is None or began_s >= until_s:
                out = Exposition(openmetrics=openmetrics)
                self.collect(out)
                text = HttpText(200, out.content_type, out.encode())
                now_s = time.monotonic()
                self._texts[openmetrics] = text, now_s + _SHARE * (now_s - began_s)
            return text

    def stop(self) -> None:
        """Stop serving."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.stop()


def _checked(checks: Mapping[str, str]) -> HttpText:
    failed = any(checks.values())
    document = {
        "status": "failed" if failed else "ok",
        "checks": {name: complaint or "ok" for name, complaint in checks.items()},
    }
    body = json.dumps(document).encode() + b"\n"
    return HttpText(503 if failed else 200, "application/json", body)
