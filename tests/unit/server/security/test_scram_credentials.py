"""The credentials that a broker knows: as configured, at once, and never in a log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from minikafka.base.secrets import Password
from minikafka.registry.users import ClientEntity
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism
from minikafka.server.security.scram_credentials import ScramCredentials

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = ClientEntity.of(user="alice smith")


def credential(password: str, mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return ScramCredential.create(mechanism, Password(password), b"salt", 4096)


def settings(password: str, mechanism: ScramMechanism = SHA_256) -> Mapping[str, str]:
    return {mechanism.value: credential(password, mechanism).to_text(), "producer_byte_rate": "5"}


def test_a_credential_is_found_by_user_and_mechanism() -> None:
    known = ScramCredentials()
    known.replace({ALICE: {**settings("a"), **settings("b", SHA_512)}})
    assert known.credential(SHA_256, "alice smith") == credential("a")
    assert known.credential(SHA_512, "alice smith") == credential("b", SHA_512)
    assert known.credential(SHA_256, "alice%20smith") is None


def test_a_change_and_a_deletion_hold_at_once() -> None:
    known = ScramCredentials()
    known.change(ALICE, settings("old"))
    known.change(ALICE, settings("new"))
    assert known.credential(SHA_256, "alice smith") == credential("new")
    known.change(ALICE, {"producer_byte_rate": "5"})
    assert known.credential(SHA_256, "alice smith") is None
    known.change(ALICE, settings("new"))
    known.replace({})
    assert known.credential(SHA_256, "alice smith") is None


def test_iterations_are_those_of_all_users_at_the_moment() -> None:
    known = ScramCredentials()
    assert known.iterations(SHA_256) == ()
    others = {ClientEntity.of(user=str(number)): settings("a") for number in range(2)}
    known.replace(others)
    strong = ScramCredential.create(SHA_256, Password("a"), b"salt", 4097)
    known.change(ALICE, {SHA_256.value: strong.to_text()})
    assert known.iterations(SHA_256) == [4096, 4096, 4097]
    assert not known.iterations(SHA_512)
    known.change(ALICE, {})
    assert known.iterations(SHA_256) == [4096, 4096]


@pytest.mark.parametrize(
    "entity",
    [
        ClientEntity.of(user="<default>"),
        ClientEntity.of(user="alice smith", client_id="app"),
        ClientEntity.of(client_id="alice smith"),
    ],
    ids=str,
)
def test_only_a_user_has_credentials(entity: ClientEntity) -> None:
    known = ScramCredentials()
    known.change(entity, settings("a"))
    known.replace({entity: settings("a")})
    assert not known._of_users


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tiger",
        credential("a").to_text().replace("4096", "4095"),
        credential("a").to_text().replace("salt=", "pepper="),
        credential("a", SHA_512).to_text(),
    ],
)
def test_an_invalid_credential_is_ignored_with_one_warning(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = ScramCredentials()
    configs = {**settings("b", SHA_512), SHA_256.value: text}
    for _ in range(2):
        known.replace({ALICE: configs})
        known.change(ALICE, configs)
    assert known.credential(SHA_256, "alice smith") is None
    assert known.credential(SHA_512, "alice smith") == credential("b", SHA_512)
    (line,) = caplog.messages
    assert "ignored an invalid credential of user 'alice smith': SCRAM-SHA-256=" in line
    assert len(text) < 2 or text not in line


def test_a_change_is_logged_without_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    known = ScramCredentials()
    with caplog.at_level(logging.INFO):
        known.change(ALICE, settings("a"))
        known.change(ALICE, settings("a"))
        known.change(ALICE, {})
    assert caplog.messages == [
        "credentials of user 'alice smith' changed: SCRAM-SHA-256",
        "credentials of user 'alice smith' changed: none",
    ]
