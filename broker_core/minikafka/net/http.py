"""Requests over HTTP to identity providers (tokens of clients, keys of brokers) and schema registries.

One request is one connection. Its size and time are bounded, redirects are not followed, and an address
without TLS needs an explicit permission unless it is on this host. A proxy is that of ``https_proxy`` and
``no_proxy``, as in Python's own library, for addresses with TLS alone.

That library is imported with the first request: it takes milliseconds, and most brokers send none.

Errors name the address without its query, and no secret.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from minikafka.base.errors import NetworkError
from minikafka.net.network_send import error_reason
from minikafka.net.tls import client_context
from minikafka.net.tls_failures import tls_failure
from minikafka.security.sasl.oidc import MAX_RESPONSE_BYTES, HttpRequest, HttpResponse
from minikafka.security.sasl.sasl_config import address_fault
from minikafka.security.ssl_config import SslConfig

if TYPE_CHECKING:
    from http.client import HTTPConnection

_PORTS = {"http": 80, "https": 443}


def fetch(request: HttpRequest) -> HttpResponse:
    """Send a request, and return the response, whatever its status is.

    The whole of it takes at most the time limits of ``request``. Raises NetworkError with the address, the
    reason and what to do; and ConfigError for an address or ``ssl.…`` options that cannot be used.
    """
    from http.client import HTTPException

    fault = address_fault(request.setting, request.url, request.allow_http)
    if fault is not None:
        raise fault
    url = urlsplit(request.url)
    context = None
    if url.scheme.lower() == "https":
        properties = {name: value.value for name, value in request.ssl_options.items()}
        context = client_context(SslConfig.from_properties(properties))
    try:
        return _exchange(request, url, context)
    except TimeoutError:
        seconds = f"{request.connect_timeout_ms} ms to connect, {request.read_timeout_ms} ms to answer"
        raise _failure(request, f"no response in time ({seconds})") from None
    except ssl.SSLError as error:
        reason = tls_failure(error, url.hostname, server=request.server)
        raise _failure(request, reason, request.ssl_advice) from None
    except (OSError, HTTPException, UnicodeError) as error:
        raise _failure(request, error_reason(error)) from None


def _failure(request: HttpRequest, reason: str, advice: str = "") -> NetworkError:
    advice = advice or f"check {request.setting}, and that this host may connect to it"
    return NetworkError(f"cannot reach {request.server}: {reason}", request.place, advice)


def _exchange(request: HttpRequest, url: SplitResult, context: ssl.SSLContext | None) -> HttpResponse:
    connection = _connection(request, url, is_encrypted=context is not None)
    try:
        connection.connect()
        sockets = [connection.sock]  # its owner changes with TLS, and with the response
        sockets[0].settimeout(request.read_timeout_ms / 1000)
        with _limit(sockets, request.read_timeout_ms):
            if context is not None:
                encrypted = context.wrap_socket(
                    connection.sock, server_hostname=url.hostname, do_handshake_on_connect=False
                )
                connection.sock = encrypted
                sockets.append(encrypted)
                encrypted.do_handshake()
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            method = "GET" if request.body is None else "POST"
            connection.request(method, target, request.body, dict(request.headers))
            with connection.getresponse() as response:
                body = response.read(MAX_RESPONSE_BYTES + 1)
        if len(body) > MAX_RESPONSE_BYTES:
            raise OSError(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
        return HttpResponse(response.status, body)
    finally:
        connection.close()


def _connection(request: HttpRequest, url: SplitResult, is_encrypted: bool) -> HTTPConnection:
    """Return the connection before it is opened: to the provider, or to a proxy that leads to it."""
    import urllib.request
    from http.client import HTTPConnection

    host, port = url.hostname or "", url.port or _PORTS[url.scheme.lower()]
    timeout_s = request.connect_timeout_ms / 1000
    proxy = urllib.request.getproxies().get("https") if is_encrypted else None
    if not proxy or urllib.request.proxy_bypass(host):
        return HTTPConnection(host, port, timeout=timeout_s)
    by = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = HTTPConnection(by.hostname or "", by.port or 80, timeout=timeout_s)
    headers = {}
    if by.username is not None:
        user = f"{unquote(by.username)}:{unquote(by.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {b64encode(user.encode()).decode('ascii')}"
    connection.set_tunnel(host, port, headers)
    return connection


@contextlib.contextmanager
def _limit(sockets: Sequence[socket.socket], limit_ms: int) -> Iterator[None]:
    """End the block's reads and writes on the last of ``sockets`` after ``limit_ms`` with TimeoutError.

    The time-out of a socket is for one read: a provider that sends a byte now and then would never end.
    """
    from http.client import HTTPException

    expired = threading.Event()

    def end() -> None:
        expired.set()
        with contextlib.suppress(OSError):
            # Not the method of an SSLSocket, which would take its state from under the other thread.
            socket.socket.shutdown(sockets[-1], socket.SHUT_RDWR)

    timer = threading.Timer(limit_ms / 1000, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException):
        if not expired.is_set():
            raise
    finally:
        timer.cancel()
    if expired.is_set():
        raise TimeoutError
