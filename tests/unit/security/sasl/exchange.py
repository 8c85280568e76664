"""Runs a SASL exchange between a client and a server of this project."""

from __future__ import annotations

from minikafka.security.sasl.mechanism import SaslClient, SaslServer


def exchange(client: SaslClient, server: SaslServer) -> None:
    """Pass messages until the client has no answer; an error of either side is raised."""
    response: bytes | None = client.initial_response()
    while response is not None:
        response = client.evaluate_challenge(server.evaluate_response(response))
