"""ACLs, credentials and TLS of a real ZooKeeper: what others may do, and which clients it lets in."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import trustme

from minikafka.base.errors import CoordinationError, CoordinationLost
from minikafka.base.secrets import Password
from minikafka.registry.kazoo_clients import TlsHandler
from minikafka.registry.zookeeper import ZooKeeperStore
from minikafka.registry.zookeeper_security import Access, AclPolicy, ZooKeeperSecurity
from tests.support.tls import authority
from tests.support.tls_zookeeper import tls_zookeeper

PATIENCE_S = 30
OWN = ZooKeeperSecurity(Password("broker:tiger-7"), AclPolicy.KAFKA)
PRIVATE = ZooKeeperSecurity(Password("broker:tiger-7"), AclPolicy.PRIVATE)
OTHER = ZooKeeperSecurity(Password("other:lion"))

Connect = Callable[[ZooKeeperSecurity], ZooKeeperStore]


@pytest.fixture
def connect(zookeeper_address: str, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Return a function that connects to a chroot of this test."""
    with contextlib.ExitStack() as stack:

        def connected(security: ZooKeeperSecurity) -> ZooKeeperStore:
            address = f"{zookeeper_address}/{request.node.name[:60].replace('/', '-')}"
            return stack.enter_context(contextlib.closing(ZooKeeperStore(address, security=security)))

        yield connected


def allowed(store: ZooKeeperStore, path: str) -> Access:
    """Return what ``store`` may do with a znode."""
    try:
        store.read(path)
    except CoordinationError as error:
        if "its ACL does not allow it to this client" not in str(error):
            raise
        return Access.NONE
    try:
        store.write(path, b"theirs")
    except CoordinationError:
        return Access.READ
    return Access.ALL


@pytest.mark.parametrize(
    ("path", "access"),
    [
        ("/", Access.READ),
        ("/brokers/topics/t", Access.READ),
        ("/config/topics/t", Access.READ),
        ("/config/users", Access.NONE),
        ("/config/users/alice/clients/app", Access.NONE),
        ("/config/brokers/0", Access.NONE),
        ("/delegation_token/tokens", Access.NONE),
        ("/consumers", Access.ALL),
        ("/consumers/g/offsets/t/0", Access.ALL),
        ("/consumers-of-ours", Access.READ),
    ],
)
def test_others_have_the_access_that_kafka_gives_them(path: str, access: Access) -> None:
    assert AclPolicy.KAFKA.access(path) is access
    assert AclPolicy.PRIVATE.access(path) is Access.NONE
    assert AclPolicy.OPEN.access(path) is Access.ALL


@pytest.mark.process
def test_znodes_and_their_parents_have_the_acl_of_their_path(connect: Connect) -> None:
    ours, other, nobody = connect(OWN), connect(OTHER), connect(ZooKeeperSecurity())
    ours.create("/brokers/topics/t", b"x", make_parents=True)
    ours.create("/config/users/alice", b"x", make_parents=True)
    ours.create("/consumers", b"x")
    ours.create_all({"/controller": b"x", "/config/brokers": b"x"})
    change = ours.create("/isr_", b"x", sequential=True)
    ours.create("/brokers/live", b"x", ephemeral=True)
    for store in (other, nobody):
        assert {path: allowed(store, path) for path in ("/brokers", "/brokers/topics/t")} == {
            "/brokers": Access.READ,
            "/brokers/topics/t": Access.READ,
        }
        assert allowed(store, "/config/users") is allowed(store, "/config/users/alice") is Access.NONE
        assert allowed(store, "/consumers") is Access.ALL
        assert allowed(store, "/controller") is allowed(store, change) is Access.READ
        assert allowed(store, "/config/brokers") is Access.NONE
        assert allowed(store, "/brokers/live") is Access.READ
        with pytest.raises(CoordinationError, match="cannot create /brokers/theirs: its ACL does not allow"):
            store.create("/brokers/theirs")
    assert connect(OWN).read("/config/users/alice")[0] == b"x"


@pytest.mark.process
def test_open_znodes_are_protected_from_below_and_once(connect: Connect) -> None:
    nobody = connect(ZooKeeperSecurity())
    for path in ("/brokers/topics/t", "/config/users/alice", "/consumers/g"):
        nobody.create(path, b"x", make_parents=True)
    ours = connect(OWN)
    assert ours.set_acls() == 7  # the chroot is one of them; /consumers and below stay open
    assert ours.set_acls() == 0
    assert allowed(nobody, "/brokers/topics/t") is Access.READ
    assert allowed(nobody, "/config/users/alice") is Access.NONE
    assert allowed(nobody, "/consumers/g") is Access.ALL
    private = connect(PRIVATE)
    assert private.set_acls() == 2
    assert allowed(nobody, "/consumers/g") is Access.NONE


@pytest.mark.process
@pytest.mark.parametrize("path", ["/", "/config"])
def test_a_znode_of_another_client_cannot_be_closed_to_it(connect: Connect, path: str) -> None:
    theirs = ZooKeeperSecurity(OTHER.credentials, AclPolicy.KAFKA)
    if path == "/":
        connect(theirs)  # creates the chroot
    else:
        connect(ZooKeeperSecurity())
        connect(theirs).create(path)
    with pytest.raises(CoordinationError, match=f"znode {path} is not closed to others: another client"):
        connect(PRIVATE).close_to_others()


@pytest.mark.process
def test_znodes_are_closed_to_others_once(connect: Connect) -> None:
    connect(ZooKeeperSecurity()).create("/consumers/g", make_parents=True)
    ours = connect(PRIVATE)
    assert [ours.close_to_others(), ours.close_to_others()] == [3, 0]


@pytest.mark.process
def test_an_acl_needs_a_client_with_credentials(connect: Connect) -> None:
    connect(ZooKeeperSecurity())
    store = connect(ZooKeeperSecurity(None, AclPolicy.KAFKA))
    with pytest.raises(CoordinationError, match="cannot create /x: an ACL needs a client with credentials"):
        store.create("/x")


@pytest.mark.process
def test_credentials_are_not_in_the_log_of_kazoo(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1, logger="minikafka.registry.zookeeper.kazoo"):
        ours = connect(OWN)
        ours.create("/config/users/alice", b"stored_key=tiger's", make_parents=True)
        assert ours.read("/config/users/alice")[0] == b"stored_key=tiger's"
    assert "Auth(" in caplog.text
    assert "/config/users/alice" in caplog.text
    password = ours.ticket.password
    assert password.hex() not in caplog.text
    assert repr(password) not in caplog.text
    assert "tiger" not in caplog.text
    assert "tiger" not in repr(OWN)


# --- TLS ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return authority()


@pytest.fixture(scope="module")
def tls_address(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tls_zookeeper(ca, tmp_path_factory.mktemp("tls")) as address:
        yield address


def context(ca: trustme.CA, *, with_key: bool = True) -> ssl.SSLContext:
    made = ssl.create_default_context()
    ca.configure_trust(made)
    if with_key:
        ca.issue_cert("client").configure_cert(made)
    return made


@pytest.mark.process
def test_a_client_with_a_certificate_owns_what_it_creates(ca: trustme.CA, tls_address: str) -> None:
    security = ZooKeeperSecurity(None, AclPolicy.KAFKA, context(ca))
    with contextlib.closing(ZooKeeperStore(tls_address, security=security)) as store:
        store.create("/config/users/alice", b"x", make_parents=True)
        assert store.read("/config/users/alice")[0] == b"x"
        (acl,), _ = store._client.get_acls("/config/users/alice")
        assert acl.id.scheme == "x509"


@pytest.mark.process
def test_many_requests_at_once_and_a_watch_are_answered(ca: trustme.CA, tls_address: str) -> None:
    security = ZooKeeperSecurity(tls=context(ca))
    with contextlib.closing(ZooKeeperStore(tls_address, 60_000, security=security)) as store:
        paths = [f"/many-{number}" for number in range(2_000)]
        store.create_all(dict.fromkeys(paths, b"x" * 100))
        changed = threading.Event()
        store.watch_data(paths[-1], lambda data, _: changed.set() if data == b"y" else None)
        assert len(store.read_all(paths)) == len(paths)
        store.write(paths[-1], b"y")
        assert changed.wait(PATIENCE_S)


@pytest.mark.process
@pytest.mark.parametrize(
    ("wrong", "said"),
    [("authority", "certificate verify failed"), ("host", "Hostname mismatch"), ("plain", "no answer")],
)
def test_a_client_that_does_not_fit_gets_the_reason(
    ca: trustme.CA, tls_address: str, wrong: str, said: str
) -> None:
    tls = context(authority("others")) if wrong == "authority" else context(ca)
    address = tls_address.replace("127.0.0.1", "localhost") if wrong == "host" else tls_address
    security = ZooKeeperSecurity(tls=None if wrong == "plain" else tls)
    with pytest.raises(CoordinationLost, match=said):
        ZooKeeperStore(address, connect_timeout_ms=1_500, security=security)


def test_decrypted_bytes_are_read_without_waiting_for_more() -> None:
    handler = TlsHandler(ssl.create_default_context())
    ours, theirs = socket.socketpair()
    with ours, theirs:

        class Decrypted(SimpleNamespace):
            def fileno(self) -> int:
                return ours.fileno()

        full, empty = Decrypted(pending=lambda: 5), Decrypted(pending=lambda: 0)
        assert handler.select([full], [], [], PATIENCE_S) == ([full], [], [])
        assert handler.select([empty], [], [], 0) == ([], [], [])
        theirs.send(b"x")
        assert handler.select([empty], [], [], PATIENCE_S) == ([empty], [], [])
