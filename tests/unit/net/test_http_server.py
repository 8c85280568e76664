"""The HTTP server of metrics and health checks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from minikafka.base.errors import NetworkError
from minikafka.net.http_server import MAX_CONNECTIONS, HttpServer, HttpText
from tests.support.network import HOST, PATIENCE_SECONDS


def respond(path: str, accept: str) -> HttpText | None:
    if path == "/fails":
        raise ValueError("secret")
    return HttpText(200, "text/plain", f"{path} {accept}".encode()) if path == "/known" else None


@pytest.fixture
def server() -> Iterator[HttpServer]:
    server = HttpServer(HOST, 0, respond)
    yield server
    server.stop()


def get(server: HttpServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(HOST, server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_path_is_answered_without_its_query(server: HttpServer) -> None:
    assert get(server, "/known?a=b", Accept="x/y") == (200, b"/known x/y")


def test_head_has_no_body(server: HttpServer) -> None:
    assert get(server, "/known", "HEAD") == (200, b"")


def test_unknown_path_is_not_found(server: HttpServer) -> None:
    assert get(server, "/other") == (404, b"not found\n")


def test_failure_is_a_response_that_tells_nothing(server: HttpServer) -> None:
    status, body = get(server, "/fails")
    assert status == 500
    assert b"secret" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_methods_are_refused(server: HttpServer, method: str) -> None:
    assert get(server, "/known", method)[0] == 501


def test_connection_serves_several_requests(server: HttpServer) -> None:
    connection = HTTPConnection(HOST, server.port, timeout=PATIENCE_SECONDS)
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("GET", "/known")
        assert connection.getresponse().read() == b"/known "
        assert connection.sock is first
    connection.close()


def test_silent_connections_do_not_keep_others_out(server: HttpServer) -> None:
    silent = [socket.create_connection((HOST, server.port)) for _ in range(2 * MAX_CONNECTIONS)]
    assert get(server, "/known")[0] == 200
    silent[0].settimeout(PATIENCE_SECONDS)
    assert silent[0].recv(1) == b""  # the one that was idle for longest was closed
    for sock in silent:
        sock.close()


def test_connection_in_use_is_not_closed_for_a_new_one(server: HttpServer) -> None:
    connection = HTTPConnection(HOST, server.port, timeout=PATIENCE_SECONDS)
    silent = []
    for _ in range(2 * MAX_CONNECTIONS):
        connection.request("GET", "/known")
        assert connection.getresponse().read() == b"/known "
        silent.append(socket.create_connection((HOST, server.port)))
    connection.close()
    for sock in silent:
        sock.close()


def test_stop_closes_open_connections() -> None:
    server = HttpServer(HOST, 0, respond)
    connection = HTTPConnection(HOST, server.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/known")
    assert connection.getresponse().read() == b"/known "
    server.stop()
    connection.sock.settimeout(PATIENCE_SECONDS)
    assert connection.sock.recv(1) == b""
    connection.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9308", 200),
        ("localhost:9308", 200),
        ("[::1]:9308", 200),
        ("LOCALHOST.", 200),
        ("evil.example.com:9308", 421),
        ("", 421),
    ],
)
def test_only_names_of_this_host_are_answered_on_loopback(server: HttpServer, host: str, status: int) -> None:
    assert get(server, "/known", Host=host)[0] == status


def test_used_port_is_an_error_with_the_address(server: HttpServer) -> None:
    with pytest.raises(NetworkError, match=rf"cannot listen on http://{HOST}:{server.port}: Address already"):
        HttpServer(HOST, server.port, respond)
