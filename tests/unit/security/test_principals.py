"""Principals, and ssl.principal.mapping.rules."""

from __future__ import annotations

import contextlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed, ConfigError, ErrorCode
from minikafka.security.principals import ANONYMOUS, KafkaPrincipal, SslPrincipalMapper

NAME = "CN=Duke,OU=JavaSoft,O=Sun Microsystems,C=US"


def mapped(rules: str, name: str = NAME) -> str:
    return SslPrincipalMapper.parse(rules).principal(name).name


def test_principal_is_written_as_type_and_name() -> None:
    assert str(KafkaPrincipal.user("alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_name_of_a_principal_may_hold_colons() -> None:
    assert KafkaPrincipal.parse("Role:a:b") == KafkaPrincipal("Role", "a:b")


PARTS = ",OU=x,O=x,L=x,ST=x"


@pytest.mark.parametrize("name", ["CN=" + "x" * 998, f"CN=x{PARTS * 8}"])
def test_long_name_is_for_no_rule(name: str) -> None:
    rules = "RULE:CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)/$1@$2/,DEFAULT"
    with pytest.raises(AuthenticationFailed) as refused:
        SslPrincipalMapper.parse(rules).principal(name)
    assert refused.value.reason.endswith("are for 1000 and 32")
    assert SslPrincipalMapper.parse("DEFAULT").principal(name).name == name
    shorter = name[:1000].rpartition(",ST=x")[0] or name[:1000]
    assert SslPrincipalMapper.parse(rules).principal(shorter).name == shorter


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_principal_without_type_or_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME"):
        KafkaPrincipal.parse(text)


@given(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9).filter(lambda kind: ":" not in kind))
def test_principal_is_parsed_from_its_text(name: str, kind: str) -> None:
    principal = KafkaPrincipal(kind, name)
    assert KafkaPrincipal.parse(str(principal)) == principal


def test_default_rule_keeps_the_distinguished_name() -> None:
    assert SslPrincipalMapper.parse("DEFAULT").principal(NAME) == KafkaPrincipal.user(NAME)


# The cases of Kafka's SslPrincipalMapperTest.
KAFKAS = r"""
    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,
    RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,
    RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,
    RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,
    DEFAULT
"""


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_rule_that_matches_makes_the_name(name: str, principal: str) -> None:
    assert mapped(KAFKAS, name) == principal


def test_rule_must_match_the_whole_name() -> None:
    assert mapped("RULE:CN=(Duke)/$1/,DEFAULT") == NAME


@pytest.mark.parametrize(
    ("replacement", "name"),
    [
        ("$1@$4", "Duke@$4"),  # there is no fourth group
        ("$12", "Duke2"),
        ("$0", NAME),
        ("$", "$"),
        (r"\$1", "$1"),
        (r"\/$2", "/JavaSoft"),
        (r"a\\b", r"a\b"),
        (r"\n", "n"),
        ("", ""),
        ("$1" + "0" * 5000, "Duke" + "0" * 5000),
        (r"[$3]", "[]"),
    ],
)
def test_replacement_is_read_as_java_reads_it(replacement: str, name: str) -> None:
    assert mapped(rf"RULE:^CN=(.*?),OU=(.*?),(xx)?O=.*$/{replacement}/") == name


def test_pattern_may_hold_commas_and_escaped_slashes() -> None:
    assert mapped(r" RULE:^CN=(a\/b),.*$/$1/U , ,DEFAULT ", "CN=a/b,C=US") == "A/B"


def test_classes_of_characters_are_those_of_ascii_as_in_java() -> None:
    rules = r"RULE:^CN=(\w+)$/$1/,DEFAULT"
    assert mapped(rules, "CN=bob") == "bob"
    assert mapped(rules, "CN=böb") == "CN=böb"


def test_name_that_no_rule_matches_is_refused_with_the_rules() -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        mapped("RULE:^CN=x$/y/")
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert NAME in refused.value.reason
    assert "RULE:^CN=x$/y/" in refused.value.reason
    assert NAME not in str(refused.value)


@pytest.mark.parametrize(
    "rules",
    [
        "",
        " , ",
        "DEFAULTX",
        "RULE:",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "RULE:(/b/",
        r"RULE:\p{Alpha}/b/",
        "rule:a/b/",
        "DEFAULT RULE:a/b/",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"expected DEFAULT|must have|regular expression"):
        SslPrincipalMapper.parse(rules)


@given(st.text(alphabet="RULE:DEFAULT/,()$\\1a*[ ", max_size=30), st.text(max_size=20))
def test_any_rules_and_names_raise_only_own_errors(rules: str, name: str) -> None:
    with contextlib.suppress(ConfigError, AuthenticationFailed):
        SslPrincipalMapper.parse(rules).principal(name)


def test_failed_authentication_travels_between_processes() -> None:
    error = AuthenticationFailed("user 'bob' is unknown", "no")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.reason, str(copy)) == ("user 'bob' is unknown", "SASL_AUTHENTICATION_FAILED: no")
