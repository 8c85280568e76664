"""TLS with the settings of both ends, in memory."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigErrors
from minikafka.net.tls import ServerTls, client_context, peer_name_of
from minikafka.security.ssl_config import SslConfig
from tests.support.tls import authority, broker_tls, client_tls, key_and_chain


class Handshake:
    """Both ends of a connection in memory."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(to_client, to_server, server_hostname=host)

    def run(self) -> None:
        """Do the handshake; read what comes after it."""
        open_ends = {self.client, self.server}
        for _ in range(8):
            for end in (self.client, self.server):
                try:
                    if end in open_ends:
                        end.do_handshake()
                        open_ends.discard(end)
                    else:
                        end.read(1)
                except ssl.SSLWantReadError:
                    pass
        assert not open_ends


def connect(server: SslConfig, client: SslConfig, host: str = "localhost") -> Handshake:
    handshake = Handshake(ServerTls(server).context, client_context(client), host)
    handshake.run()
    return handshake


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_client_connects_to_a_host_of_the_certificate(host: str) -> None:
    assert connect(broker_tls(), client_tls(), host).client.version() == "TLSv1.3"


def test_client_refuses_another_host() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(broker_tls("other.example"), client_tls())


def test_host_is_not_checked_without_an_algorithm() -> None:
    connect(broker_tls("other.example"), client_tls(endpoint_identification_algorithm=""))


def test_name_of_the_client_is_in_its_certificate() -> None:
    handshake = connect(broker_tls(client_auth="required"), client_tls("alice"))
    der = handshake.server.getpeercert(binary_form=True)
    assert der is not None
    assert peer_name_of(der).startswith("CN=alice,OU=")


def test_client_without_a_certificate_is_refused_where_one_is_required() -> None:
    with pytest.raises(ssl.SSLError, match="CERTIFICATE"):
        connect(broker_tls(client_auth="required"), client_tls())


def test_changed_file_is_used_by_new_connections(tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_text(key_and_chain(authority().issue_cert("old.example")))
    tls = ServerTls(SslConfig(keystore_type="PEM", keystore_location=str(file)), "SSL")
    assert not tls.reload()
    file.write_text(key_and_chain(authority().issue_cert("localhost")))
    assert tls.reload()
    Handshake(tls.context, client_context(client_tls())).run()


def test_listener_without_keys_is_refused() -> None:
    with pytest.raises(ConfigErrors, match=r"ssl\.keystore\.location"):
        ServerTls(SslConfig())
