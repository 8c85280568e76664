"""A broker with SASL listeners, asked over a simulated network: Kafka's SaslAuthenticatorTest in our form."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache, partial
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm

from minikafka.base.acls import CLUSTER, WILDCARD_HOST, Acl, Operation, Permission
from minikafka.base.errors import ErrorCode, NetworkError, RemoteWireError
from minikafka.base.secrets import Password
from minikafka.clients.admin.users import NewPassword, add_user, change_password, delete_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers
from minikafka.net.interfaces import Exchange
from minikafka.net.memory import MemoryConnection
from minikafka.registry.acls import change_resource
from minikafka.security.certificates import peer_name_of
from minikafka.security.jaas import JaasConfig
from minikafka.security.principals import ANONYMOUS, SslPrincipalMapper
from minikafka.security.sasl.mechanism import SaslClient
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslClient
from minikafka.security.sasl.plain import PlainSaslClient
from minikafka.security.sasl.scram import ScramMechanism, ScramSaslClient
from minikafka.security.sasl.unsecured_tokens import UnsecuredLogin
from minikafka.server.assembly import Ports
from minikafka.server.security.authentication import SslAuthentication
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import ApiVersionsRequest
from minikafka.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minikafka.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from minikafka.wire.frame_parts import join
from minikafka.wire.framing import RequestHeader, split_response
from tests.support import requests, simulation
from tests.support.recorded_exchange import RecordedExchange
from tests.support.requests import Request
from tests.support.simulation import PORT, Simulation

PREFIX = "listener.name.sasl_plaintext."
MODULES = "org.apache.kafka.common.security"
UNSECURED = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SECURED = {
    "listeners": f"SASL_PLAINTEXT://machine-0:{PORT}",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER,SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_alice="wonder;land" user_bob="builder";'
    ),
    f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": UNSECURED,
}
AUTHORIZER = {"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"}
MECHANISMS = tuple(SECURED["sasl.enabled.mechanisms"].split(","))
SCRAM = tuple(ScramMechanism)
DELAY_MS = 100
ALICE = b"\0alice\0wonder;land"
WRONG_TEXT = "Authentication failed: Invalid username or password"


class World(Simulation):
    """A broker with a SASL listener, and a client that may log in."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        super().__init__()
        assert self.machine.start({**SECURED, **(properties or {})})

    def connect(self) -> MemoryConnection:
        self.connection = self.network.connect(self.host, self.port)
        return self.connection

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        answer: SaslHandshakeResponse = self.call(
            Request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))
        )
        return answer

    def token(self, token: bytes, version: int = 1) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = self.call(
            Request(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token))
        )
        return answer

    def log_in(self, client: SaslClient | None = None, version: int = 1) -> SaslAuthenticateResponse:
        """Log in by requests; return the last response."""
        client = client or PlainSaslClient("alice", Password("wonder;land"))
        assert self.handshake(client.mechanism).error_code == ErrorCode.NONE
        response: bytes | None = client.initial_response()
        while response is not None:
            answer = self.token(response, version)
            if answer.error_code != ErrorCode.NONE:
                return answer
            response = client.evaluate_challenge(bytes(answer.auth_bytes))
        return answer

    def bare_token(self, token: bytes) -> bytes:
        """Send a token without a header; return that of the server."""
        assert self.connection is not None
        return bytes(self.connection.request([token]).result(60_000))

    def add_user(self, name: str, password: str, mechanisms: Collection[ScramMechanism] = SCRAM) -> None:
        users, new = ZooKeeperUsers(self.zookeeper.connect()), NewPassword(Password(password))
        add_user(users, name, new, self.chance.randbytes, mechanisms)
        self.settle()

    def assert_closed(self) -> None:
        self.network.run()
        assert self.connection is not None
        assert self.connection.closed


def bearer(**options: str) -> OAuthBearerSaslClient:
    """A client with an unsecured token of carol, made now."""
    text = " ".join(f'{name}="{value}"' for name, value in options.items())
    jaas = JaasConfig.parse(f'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="carol" {text};')
    return OAuthBearerSaslClient(UnsecuredLogin.from_jaas(jaas).token(0).value)


def scram(
    user: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
) -> ScramSaslClient:
    return ScramSaslClient(mechanism, user, Password(password), "nonce-of-the-client")


@pytest.fixture
def world() -> World:
    return World()


# Logging in.


def test_client_that_has_logged_in_is_served(world: World) -> None:
    assert world.log_in() == SaslAuthenticateResponse(ErrorCode.NONE, None, b"", 0)
    assert world.create_topic("t") == 0
    assert world.produce("t", b"x").error_code == ErrorCode.NONE


def test_api_versions_before_the_login_have_the_whole_table(world: World) -> None:
    before = world.call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()))
    assert {row.api_key for row in before.api_keys} >= {ApiKey.PRODUCE, ApiKey.SASL_AUTHENTICATE}
    world.log_in()
    assert world.call(Request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())) == before


def test_api_versions_that_are_refused_are_answered_and_asked_again(world: World) -> None:
    header = RequestHeader(ApiKey.API_VERSIONS, 99, 5, "new").encode()
    _, body = split_response(world.connect().request([header, b"whatever"]).result(60_000))
    assert APIS[ApiKey.API_VERSIONS].decode_response(0, body).error_code == ErrorCode.UNSUPPORTED_VERSION
    for name, code in (("a b", ErrorCode.INVALID_REQUEST), ("peer", ErrorCode.NONE)):
        assert world.call(Request(ApiKey.API_VERSIONS, 4, ApiVersionsRequest(name, "1"))).error_code == code
    assert world.log_in().error_code == ErrorCode.NONE


def test_client_without_sasl_authenticate_logs_in_by_bare_tokens(world: World) -> None:
    assert world.handshake(version=0).error_code == ErrorCode.NONE
    assert world.bare_token(ALICE) == b""
    assert world.create_topic("t") == 0


def test_broker_beside_0_10_logs_in_by_bare_tokens() -> None:
    world = World({"inter.broker.protocol.version": "0.10.1"})
    with pytest.raises(NetworkError):
        world.handshake(version=1)
    assert world.handshake(version=0).error_code == ErrorCode.NONE
    assert world.bare_token(ALICE) == b""
    assert world.create_topic("t") == 0


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["dora", "dora, the explorer=1", "Dörthe/%"])
def test_user_of_zookeeper_logs_in_by_scram(world: World, mechanism: ScramMechanism, user: str) -> None:
    world.add_user(user, "back pack")
    assert world.log_in(scram(user, "back pack", mechanism)).error_code == ErrorCode.NONE
    assert world.create_topic("t") == 0


def test_changed_and_deleted_passwords_hold_at_once(world: World) -> None:
    world.add_user("dora", "old")
    store = world.zookeeper.connect()
    change_password(ZooKeeperUsers(store), "dora", NewPassword(Password("new")), world.chance.randbytes)
    world.settle()
    assert world.log_in(scram("dora", "old")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    world.assert_closed()
    assert world.log_in(scram("dora", "new")).error_code == ErrorCode.NONE
    delete_user(ZooKeeperUsers(store), "dora")
    world.settle()
    assert world.create_topic("t") == 0
    world.connect()
    assert world.log_in(scram("dora", "new")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_user_of_another_mechanism_is_refused(world: World) -> None:
    world.add_user("dora", "back pack", [ScramMechanism.SCRAM_SHA_512])
    answer = world.log_in(scram("dora", "back pack", ScramMechanism.SCRAM_SHA_256))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_unknown_user_of_scram_looks_like_a_wrong_password(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def refusal(user: str) -> tuple[str, SaslAuthenticateResponse]:
        world.connect()
        world.handshake("SCRAM-SHA-256")
        client = scram(user, "wrong")
        challenge = bytes(world.token(client.initial_response()).auth_bytes)
        proof = client.evaluate_challenge(challenge)
        assert proof is not None
        answer = world.token(proof)
        world.assert_closed()
        return challenge.decode().partition(",s=")[2], answer

    world.add_user("dora", "back pack")
    (known_salt, known), (unknown_salt, unknown) = refusal("dora"), refusal("nobody")
    assert known == unknown
    assert known.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert len(known_salt) == len(unknown_salt)
    assert "wrong password of user 'dora'" in caplog.text
    assert "user 'nobody' is unknown" in caplog.text
    world.machine.stop()
    world.machine.start(SECURED)
    assert refusal("nobody")[0] == unknown_salt, "also after a restart, and on every broker"
    assert refusal("nobody else")[0] != unknown_salt


def test_unknown_user_of_scram_has_the_iterations_of_the_others(world: World) -> None:
    new = NewPassword(Password("back pack"), 8192)
    add_user(ZooKeeperUsers(world.zookeeper.connect()), "dora", new, world.chance.randbytes)
    world.settle()
    world.handshake("SCRAM-SHA-256")
    challenge = bytes(world.token(scram("nobody", "wrong").initial_response()).auth_bytes)
    assert challenge.endswith(b",i=8192")


def test_token_of_a_user_logs_in(world: World) -> None:
    assert world.log_in(bearer()).error_code == ErrorCode.NONE
    assert world.create_topic("t") == 0


def test_token_that_a_provider_signed_logs_in(tmp_path: Path) -> None:
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    keys = tmp_path / "keys.json"
    row = {**json.loads(ECAlgorithm.to_jwk(key.public_key())), "kid": "k", "use": "sig"}
    keys.write_text(json.dumps({"keys": [row]}))
    own = f"{PREFIX}oauthbearer."
    world = World(
        {
            f"{own}sasl.server.callback.handler.class": (
                f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            f"{own}sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{own}sasl.oauthbearer.expected.audience": "kafka",
        }
    )
    claims = {"sub": "carol", "aud": "kafka", "iat": 1, "exp": 1_000}

    def answer(signer: ec.EllipticCurvePrivateKey) -> SaslAuthenticateResponse:
        world.connect()
        token = jwt.encode(claims, signer, algorithm="ES256", headers={"kid": "k"})
        return world.log_in(OAuthBearerSaslClient(Password(token)))

    assert answer(key).error_code == ErrorCode.NONE
    assert world.create_topic("t") == 0
    assert answer(other).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_principal_reaches_the_acls(user: str) -> None:
    world = World(AUTHORIZER)
    rule = Acl("User:alice", Permission.ALLOW, WILDCARD_HOST, Operation.CREATE)
    change_resource(world.zookeeper.connect(), CLUSTER, lambda rules: rules | {rule})
    world.settle()
    password = {"alice": "wonder;land", "bob": "builder"}[user]
    world.log_in(PlainSaslClient(user, Password(password)))
    allowed = user == "alice"
    assert world.create_topic("t") == (0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_super_user_by_name_needs_no_rules() -> None:
    world = World({**AUTHORIZER, "super.users": "User:alice;User:admin"})
    world.log_in()
    assert world.create_topic("t") == 0


# Failures.


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0alice\0wrong", "wrong password of user 'alice'"),
        (b"\0mallory\0wonder;land", "user 'mallory' is unknown"),
        (b"\0\0wonder;land", "the user name or the password is empty"),
        (b"\0alice\0", "the user name or the password is empty"),
        (b"bob\0alice\0wonder;land", "user 'alice' may not act as 'bob'"),
        (b"no parts", "got 1 parts"),
        (b"\xff\0\xff\0\xff", "not UTF-8"),
    ],
)
def test_refusal_is_error_58_after_the_delay_and_closes(
    world: World, caplog: pytest.LogCaptureFixture, token: bytes, reason: str
) -> None:
    world.handshake()
    began_ms = world.clock.monotonic_ms()
    answer = world.token(token)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WRONG_TEXT)
    assert world.clock.monotonic_ms() - began_ms >= DELAY_MS
    world.assert_closed()
    (line,) = [record.getMessage() for record in caplog.records if reason in record.getMessage()]
    assert "client-" in line
    assert "wonder" not in caplog.text


def test_long_user_name_is_cut_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.handshake()
    world.token(b"\0%s\0secret" % (b"x" * 400_000))
    world.assert_closed()
    assert "authentication failed on SASL_PLAINTEXT: PLAIN: user 'xxx" in caplog.text
    assert len(caplog.text) < 3_000


def test_refused_bare_token_has_no_answer(world: World) -> None:
    world.handshake(version=0)
    began_ms = world.clock.monotonic_ms()
    with pytest.raises(NetworkError, match="closed the connection"):
        world.bare_token(b"\0alice\0wrong")
    assert world.clock.monotonic_ms() - began_ms >= DELAY_MS


def test_mechanism_that_is_not_enabled_is_answered_with_the_list(world: World) -> None:
    answer = world.handshake("GSSAPI")
    assert answer == SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    world.assert_closed()


def test_expired_token_is_refused_with_a_status(world: World) -> None:
    world.handshake("OAUTHBEARER")
    client = bearer(unsecuredLoginLifetimeSeconds="1")
    world.clock.advance(5_000)
    refused = world.token(client.initial_response())
    assert refused.error_code == ErrorCode.NONE
    assert b"invalid_token" in bytes(refused.auth_bytes)
    after = client.evaluate_challenge(bytes(refused.auth_bytes))
    assert after is not None
    assert world.token(after).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    world.assert_closed()


def test_token_without_the_required_scope_is_refused() -> None:
    jaas = 'OAuthBearerLoginModule required unsecuredValidatorRequiredScope="kafka";'
    world = World({f"{PREFIX}oauthbearer.sasl.jaas.config": jaas})
    world.handshake("OAUTHBEARER")
    refused = world.token(bearer().initial_response())
    assert b"insufficient_scope" in bytes(refused.auth_bytes)


@pytest.mark.parametrize(
    "request_",
    [requests.metadata("t"), Request(ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(ALICE))],
    ids=["metadata", "token"],
)
def test_other_request_before_the_login_closes(
    world: World, caplog: pytest.LogCaptureFixture, request_: Request
) -> None:
    with pytest.raises(NetworkError):
        world.call(request_)
    assert "before authentication" in caplog.text


def test_other_request_during_the_login_closes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.handshake()
    with pytest.raises(NetworkError):
        world.call(requests.metadata("t"))
    assert "unexpected request (API 3) during authentication" in caplog.text


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11", b"\0\x11\0\1\0\0\0\1\0\0\x7f\xff", bytes(200)])
def test_frame_that_is_no_request_closes(world: World, frame: bytes) -> None:
    connection = world.connect()
    with pytest.raises(NetworkError):
        connection.request([frame]).result(60_000)
    assert world.log_in().error_code == ErrorCode.NONE  # on a new connection


def test_large_request_before_the_login_closes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    connection = world.connect()
    with pytest.raises(NetworkError):
        connection.request([bytes(524_289)]).result(60_000)
    assert "expected 0 to 524288" in caplog.text


def test_second_handshake_before_a_token_closes(world: World) -> None:
    world.handshake()
    with pytest.raises(NetworkError):
        world.handshake()


# Authenticating again (KIP-368).


@pytest.fixture
def hourly() -> World:
    """A broker whose clients must log in again after an hour."""
    return World({"connections.max.reauth.ms": "3600000"})


def test_session_lifetime_is_told(hourly: World) -> None:
    assert hourly.log_in().session_lifetime_ms == 3_600_000
    hourly.clock.advance(1_000_000)
    assert hourly.log_in().session_lifetime_ms == 3_600_000


def test_lifetime_of_a_token_limits_that_of_the_session(hourly: World) -> None:
    answer = hourly.log_in(bearer(unsecuredLoginLifetimeSeconds="60"))
    assert 50_000 < answer.session_lifetime_ms <= 60_000


def test_lifetime_of_a_mechanism_takes_precedence() -> None:
    own = {"connections.max.reauth.ms": "5000", f"{PREFIX}plain.connections.max.reauth.ms": "7000"}
    assert World(own).log_in().session_lifetime_ms == 7_000


def test_connection_past_its_lifetime_is_closed(hourly: World, caplog: pytest.LogCaptureFixture) -> None:
    hourly.log_in()
    hourly.clock.advance(3_600_001)
    with pytest.raises(NetworkError):
        hourly.call(requests.metadata("t"))
    assert "without a re-authentication" in caplog.text


def test_client_that_cannot_log_in_again_is_closed_as_well(hourly: World) -> None:
    hourly.log_in(version=0)
    hourly.clock.advance(3_600_001)
    with pytest.raises(NetworkError):
        hourly.call(requests.metadata("t"))


@pytest.mark.parametrize(
    ("client", "problem"),
    [
        (PlainSaslClient("bob", Password("builder")), "Cannot change the principal"),
        (bearer(), "Cannot change the mechanism"),
    ],
    ids=["principal", "mechanism"],
)
def test_principal_and_mechanism_cannot_change(hourly: World, client: SaslClient, problem: str) -> None:
    hourly.log_in()
    hourly.clock.advance(5_000)
    answer = hourly.log_in(client)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert problem in str(answer.error_message)
    hourly.assert_closed()


def test_logging_in_again_too_soon_is_refused_without_a_close(hourly: World) -> None:
    hourly.log_in()
    assert hourly.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert hourly.create_topic("t") == 0


def test_token_after_the_login_is_an_illegal_state(world: World) -> None:
    world.log_in()
    assert world.token(ALICE).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert world.create_topic("t") == 0


# Several listeners.


def test_listeners_have_their_own_mechanisms_and_users() -> None:
    world = World(
        {
            "listeners": f"SASL_PLAINTEXT://machine-0:{PORT},B://machine-0:9093,PLAINTEXT://machine-0:9094",
            "listener.security.protocol.map": "B:SASL_PLAINTEXT",
            "listener.name.b.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.b.plain.sasl.jaas.config": 'PlainLoginModule required user_eve="apple";',
        }
    )
    assert world.log_in().error_code == ErrorCode.NONE
    world.go_to(9093)
    assert world.handshake("OAUTHBEARER").mechanisms == ("PLAIN",)
    world.assert_closed()
    assert world.log_in().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    world.assert_closed()
    assert world.log_in(PlainSaslClient("eve", Password("apple"))).error_code == ErrorCode.NONE
    world.go_to(9094)
    assert world.create_topic("t") == 0


# Certificates.


class Served:
    """Notes the principals of the requests that it gets."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        self.principals.append(str(exchange.principal))


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", "User:CN=Alice,OU=x"),
        ("RULE:^CN=(.*?),.*$/$1/L", "User:alice"),
        ("RULE:^CN=Bob.*$/bob/,DEFAULT", "User:CN=Alice,OU=x"),
    ],
)
def test_certificate_makes_the_principal_of_its_connection(rules: str, principal: str) -> None:
    served, exchange = Served(), RecordedExchange()
    exchange.peer_certificate = b"CN=Alice,OU=x"
    handler = SslAuthentication(served, SslPrincipalMapper.parse(rules), lambda der: der.decode())
    for _ in range(2):
        handler.on_request(exchange, memoryview(b""))
    assert served.principals == [principal] * 2


def test_client_without_a_certificate_is_anonymous() -> None:
    served, exchange = Served(), RecordedExchange()
    handler = SslAuthentication(served, SslPrincipalMapper.parse("DEFAULT"), lambda der: der.decode())
    handler.on_request(exchange, memoryview(b""))
    assert served.principals == ["User:ANONYMOUS"]


def test_certificate_that_no_rule_matches_closes() -> None:
    served, exchange = Served(), RecordedExchange()
    exchange.peer_certificate = b"CN=Alice"
    handler = SslAuthentication(served, SslPrincipalMapper.parse("RULE:^X$/x/"), lambda der: der.decode())
    handler.on_request(exchange, memoryview(b""))
    assert not served.principals
    assert "no rule of ssl.principal.mapping.rules" in exchange.closed


def test_certificate_whose_name_cannot_be_read_closes() -> None:
    served, exchange = Served(), RecordedExchange()
    exchange.peer_certificate = b"no DER"
    handler = SslAuthentication(served, SslPrincipalMapper.parse("DEFAULT"), peer_name_of)
    handler.on_request(exchange, memoryview(b""))
    assert "certificate is damaged" in exchange.closed


def test_broker_looks_for_new_certificates_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[None] = []
    monkeypatch.setattr(simulation, "Ports", partial(Ports, renew_certificates=lambda: looks.append(None)))
    World().pass_time(30_000)
    assert 2 <= len(looks) <= 4


# Whatever arrives.


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda key, version, rest: key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest,
                st.sampled_from([3, 17, 18, 36]),
                st.integers(0, 3),
                st.binary(max_size=40),
            ),
            st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "X"]).map(
                lambda name: (
                    RequestHeader(17, 1, 1, None).encode()
                    + join(APIS[ApiKey.SASL_HANDSHAKE].encode_request(1, SaslHandshakeRequest(name)))
                )
            ),
        ),
        max_size=6,
    )
)
def test_any_frames_are_answered_or_end_the_connection(frames: list[bytes]) -> None:
    world = fuzzed_world()
    exchange = RecordedExchange()
    exchange.listener = "SASL_PLAINTEXT"
    server = world.machine._server
    assert server is not None
    for frame in frames:
        exchange.calls.clear()
        try:
            server.handler.on_request(exchange, memoryview(bytearray(frame)))
        except RemoteWireError:
            return  # the network closes the connection
        assert exchange.calls
        assert exchange.principal == ANONYMOUS
        if exchange.closed:
            return


@cache
def fuzzed_world() -> World:
    return World()
