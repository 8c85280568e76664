"""Authentication of clients: the request handlers of listeners with SASL and with TLS, before the dispatcher.

A connection to a listener with SASL is a state machine (``security.sasl.server_states``), which is kept in
the memory of the connection. This module decodes what the client sends, carries out the machine's steps, and
passes requests to the dispatcher once the client is authenticated. The principal of the connection is then
set, for ACLs, quotas and logs.

A failure is answered after ``connection.failed.authentication.delay.ms``, so that guessing is slow, and then
the connection is closed. Its reason goes to the log; the client gets a text that tells nothing about users.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from functools import partial

from minikafka.base.clock import Clock
from minikafka.base.errors import AuthenticationFailed, RemoteWireError, StoreError
from minikafka.base.secrets import Password
from minikafka.base.text import shorten
from minikafka.net.interfaces import Exchange, RequestHandler
from minikafka.net.key_cache import KeyCache
from minikafka.registry.cluster import unknown_users_secret
from minikafka.security.certificates import peer_name_of
from minikafka.security.principals import KafkaPrincipal, SslPrincipalMapper
from minikafka.security.sasl import oauthbearer, plain
from minikafka.security.sasl.mechanism import SaslServer
from minikafka.security.sasl.oauthbearer import OAuthBearerSaslServer, OAuthBearerToken, TokenRefusal
from minikafka.security.sasl.plain import PlainSaslServer
from minikafka.security.sasl.scram import ScramMechanism, ScramSaslServer, UnknownUsers, base36
from minikafka.security.sasl.server_states import (
    ApiVersionsAnswer,
    AuthenticateAnswer,
    EnabledMechanism,
    HandshakeAnswer,
    SaslServerAuthenticator,
    SaslState,
    Step,
    TokenAnswer,
)
from minikafka.security.sasl.signed_tokens import SignedTokenValidator
from minikafka.server.config.listener_security import SaslListener, ServerMechanism
from minikafka.server.context import RequestContext, decode_request
from minikafka.server.core.broker import Broker
from minikafka.server.handlers import list_api_versions
from minikafka.server.metrics.broker_metrics import BrokerMetrics
from minikafka.server.metrics.definitions import AUTHENTICATIONS
from minikafka.server.served_versions import newest_versions
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import is_valid
from minikafka.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateResponse
from minikafka.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeResponse
from minikafka.wire.frame_parts import Part
from minikafka.wire.framing import RequestHeader

_log = logging.getLogger(__name__)

_KEY_AND_VERSION = struct.Struct(">hh")
_STATES, _CERTIFICATE_SEEN = "sasl states", "certificate seen"
"""Keys of a connection's memory."""
_NONCE_BYTES = 17


class ListenerHandlers:
    """A request handler that passes requests to the handler of their listener."""

    def __init__(self, by_listener: Mapping[str, RequestHandler], others: RequestHandler) -> None:
        self._by_listener = by_listener
        self._others = others

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Serve one request."""
        self._by_listener.get(exchange.listener, self._others).on_request(exchange, frame)


class SslAuthentication:
    """The request handler of a listener with TLS and without SASL: the certificate makes the principal."""

    def __init__(
        self, handler: RequestHandler, mapper: SslPrincipalMapper, name_of: Callable[[bytes], str]
    ) -> None:
        """name_of: returns the distinguished name of a certificate in DER."""
        self._handler = handler
        self._mapper = mapper
        self._name_of = name_of

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Serve one request. The first one of a connection sets its principal."""
        if _CERTIFICATE_SEEN not in exchange.memory:
            certificate = exchange.peer_certificate
            if certificate is not None:
                try:
                    exchange.principal = self._mapper.principal(self._name_of(certificate))
                except AuthenticationFailed as error:
                    exchange.close(f"authentication failed on {exchange.listener}: {error.reason}")
                    return
                except StoreError as error:
                    exchange.close(f"authentication failed on {exchange.listener}: {error}")
                    return
            exchange.memory[_CERTIFICATE_SEEN] = True
        self._handler.on_request(exchange, frame)


class SaslAuthentication:
    """The request handler of a listener with SASL."""

    def __init__(
        self,
        handler: RequestHandler,
        answer_versions: Callable[[Exchange, memoryview], bool],
        mechanisms: Mapping[str, EnabledMechanism],
        supports: Callable[[int, int], bool],
        failure_delay_ms: int,
        clock: Clock,
        metrics: BrokerMetrics,
    ) -> None:
        """handler: serves the requests of authenticated clients. answer_versions: answers ApiVersions before
        that, in any version, and returns False if it refuses the request. It counts for no quota, as nobody
        knows whose request it is.

        supports: takes the key and the version of an API; returns True for versions that the broker has.
        """
        self._handler = handler
        self._answer_versions = answer_versions
        self._mechanisms = mechanisms
        self._supports = supports
        self._failure_delay_ms = failure_delay_ms
        self._clock = clock
        self._metrics = metrics

    def on_request(self, exchange: Exchange, frame: memoryview) -> None:
        """Serve one request, or one token."""
        states = exchange.memory.get(_STATES)
        if states is None:
            states = exchange.memory[_STATES] = SaslServerAuthenticator(self._mechanisms, self._supports)
        if states.expects_bare_token:
            step = states.receive_token(bytes(frame), self._clock.now_ms())
            self._carry_out(exchange, frame, states, step, None)
            return
        if len(frame) < _KEY_AND_VERSION.size:
            self._fail(exchange, states.receive_malformed(f"{len(frame)} bytes"), ())
            return
        api_key, version = _KEY_AND_VERSION.unpack_from(frame)
        step = states.receive_request(api_key, version, self._clock.now_ms())
        if step is None and states.state is SaslState.COMPLETE and api_key != ApiKey.SASL_HANDSHAKE:
            self._handler.on_request(exchange, frame)
            return
        try:
            self._receive(exchange, frame, states, step)
        except RemoteWireError as error:
            self._fail(exchange, states.receive_malformed(str(error)), ())

    def _receive(
        self, exchange: Exchange, frame: memoryview, states: SaslServerAuthenticator, step: Step | None
    ) -> None:
        """Serve a request of the authentication. Raises RemoteWireError if it is invalid."""
        header, body = RequestHeader.decode(frame)
        exchange.times.header = header
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            context = RequestContext(header, SASL_AUTHENTICATE, exchange)
            if step is None:
                token = SASL_AUTHENTICATE.decode_request(header.api_version, body).auth_bytes
                step = states.receive_authenticate(bytes(token), self._clock.now_ms())
        else:
            context = RequestContext(header, SASL_HANDSHAKE, exchange)
            if step is None:
                mechanism = SASL_HANDSHAKE.decode_request(header.api_version, body).mechanism
                step = states.receive_handshake(header.api_version, mechanism)
        self._carry_out(exchange, frame, states, step, context)

    def _carry_out(
        self,
        exchange: Exchange,
        frame: memoryview,
        states: SaslServerAuthenticator,
        step: Step,
        context: RequestContext | None,
    ) -> None:
        """Answer. ``context``: None for a token, which has no header."""
        if isinstance(step.answer, ApiVersionsAnswer):
            if not self._answer_versions(exchange, frame):
                states.api_versions_refused()
            return
        parts = _encoded(context, step.answer)
        if step.failure is not None:
            self._fail(exchange, step, parts)
            return
        if states.state is SaslState.COMPLETE:
            exchange.principal = KafkaPrincipal.user(states.authorization_id)
            exchange.authenticated()
            self._count(exchange, "success")
        exchange.respond(parts)

    def _fail(self, exchange: Exchange, step: Step, parts: list[Part] | tuple[()]) -> None:
        # The peer may have sent a long text.
        reason = f"authentication failed on {exchange.listener}: {shorten(str(step.failure))}"
        self._count(exchange, "failure")
        exchange.close(reason, parts, self._failure_delay_ms)

    def _count(self, exchange: Exchange, result: str) -> None:
        self._metrics.count(AUTHENTICATIONS, exchange.listener, result)


def _encoded(
    context: RequestContext | None, answer: HandshakeAnswer | AuthenticateAnswer | TokenAnswer | None
) -> list[Part]:
    if answer is None:
        return []
    if isinstance(answer, TokenAnswer):
        return [answer.token]
    assert context is not None, "the answer to a request"
    if isinstance(answer, HandshakeAnswer):
        return context.encoded(SaslHandshakeResponse(answer.error_code, answer.mechanisms))
    return context.encoded(
        SaslAuthenticateResponse(
            answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms
        )
    )


def authenticating(
    dispatcher: RequestHandler, broker: Broker, random_bytes: Callable[[int], bytes]
) -> RequestHandler:
    """Return the request handler of a broker: ``dispatcher``, after what its listeners demand of clients.

    Raises CoordinationError.
    """
    config, handlers = broker.config, dict[str, RequestHandler]()
    newest = newest_versions(config.beside_0_10)

    def answer_versions(exchange: Exchange, frame: memoryview) -> bool:
        context, request = decode_request(exchange, frame, {ApiKey.API_VERSIONS}, newest)
        if request is None:  # answered already: an unsupported version
            return False
        list_api_versions(broker, context, request)
        return is_valid(request, context.version)

    servers = SaslServers(broker, random_bytes)
    for name, security in config.security.items():
        if security.sasl is not None:
            handlers[name] = SaslAuthentication(
                dispatcher,
                answer_versions,
                servers.enabled(security.sasl),
                partial(_supports, newest),
                config.authentication.failure_delay_ms,
                broker.clock,
                broker.metrics,
            )
        elif security.ssl is not None:
            handlers[name] = SslAuthentication(dispatcher, security.ssl.principal_mapping_rules, peer_name_of)
    return ListenerHandlers(handlers, dispatcher) if handlers else dispatcher


def _supports(newest: Mapping[ApiKey, int], api_key: int, version: int) -> bool:
    key = ApiKey(api_key)
    return APIS[key].min_version <= version <= newest.get(key, -1)


class SaslServers:
    """Makes the server's side of SASL exchanges, with what this broker knows of users."""

    def __init__(self, broker: Broker, random_bytes: Callable[[int], bytes]) -> None:
        self._credentials = broker.scram_credentials
        self._random_bytes = random_bytes
        self._clock = broker.clock
        self._unknown_users: UnknownUsers | None = None
        self._store = broker.zk_client.store

    def enabled(self, listener: SaslListener) -> dict[str, EnabledMechanism]:
        """Return the mechanisms of a listener."""
        return {
            mechanism.name: EnabledMechanism(self._creator(mechanism), mechanism.max_reauth_ms)
            for mechanism in listener.mechanisms
        }

    def _creator(self, mechanism: ServerMechanism) -> Callable[[], SaslServer]:
        if mechanism.name == plain.MECHANISM:
            users: Mapping[str, Password] = {} if mechanism.jaas is None else mechanism.jaas.users
            return lambda: PlainSaslServer(users.get)
        if mechanism.name == oauthbearer.MECHANISM:
            validate = self._token_validator(mechanism)
            return lambda: OAuthBearerSaslServer(lambda text: validate(text, self._clock.now_ms()))
        scram, unknown_users = ScramMechanism(mechanism.name), self._made_up()
        return lambda: ScramSaslServer(
            scram,
            lambda user: self._credentials.credential(scram, user),
            unknown_users,
            base36(self._random_bytes(_NONCE_BYTES)),
        )

    def _token_validator(
        self, mechanism: ServerMechanism
    ) -> Callable[[str, int], OAuthBearerToken | TokenRefusal]:
        """Return the function that takes a token and the time, and returns what the token is worth."""
        if mechanism.unsecured_validator is not None:
            _log.warning(
                "tokens without a signature are accepted, which anyone can make: for development only. Set "
                "sasl.server.callback.handler.class to a class that validates signed ones"
            )
            return mechanism.unsecured_validator.validate
        config, jaas = mechanism.signed_tokens, mechanism.jaas
        assert config is not None, "checked with the configuration"
        assert jaas is not None, "made with the configuration"
        keys = KeyCache(config, jaas, self._clock)
        keys.start()
        return SignedTokenValidator(config, keys.keys, keys.key_is_missing).validate

    def _made_up(self) -> UnknownUsers:
        """Return the credentials of users that do not exist, made from a secret in ZooKeeper."""
        if self._unknown_users is None:
            secret = unknown_users_secret(self._store, self._random_bytes)
            self._unknown_users = UnknownUsers(secret, self._credentials.iterations)
        return self._unknown_users
