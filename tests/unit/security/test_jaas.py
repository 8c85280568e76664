"""JAAS configurations in a setting."""

from __future__ import annotations

import contextlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.jaas import ControlFlag, JaasConfig

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    return {
        name: value.value for name, value in JaasConfig.parse(f"{PLAIN} required {text};").options.items()
    }


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        JaasConfig.parse(text)
    return str(refused.value)


def test_login_module_flag_and_options_are_read() -> None:
    config = JaasConfig.parse(f'{PLAIN} required username="alice" password="tiger";')
    assert config.login_module == PLAIN
    assert config.control_flag is ControlFlag.REQUIRED
    assert config.options == {"username": Password("alice"), "password": Password("tiger")}


@pytest.mark.parametrize("prefix", ["", "kafkashaded.", "shadedmskiam."])
def test_simple_name_is_the_same_in_every_package(prefix: str) -> None:
    assert JaasConfig.parse(f"{prefix}{PLAIN} required;").simple_name == "PlainLoginModule"


def test_class_without_a_package_is_its_simple_name() -> None:
    assert JaasConfig.parse("PlainLoginModule required;").simple_name == "PlainLoginModule"


@pytest.mark.parametrize("flag", ["REQUIRED", "requisite", "Sufficient", "oPTIONAL"])
def test_control_flag_is_read_in_any_case(flag: str) -> None:
    assert JaasConfig.parse(f"{PLAIN} {flag};").control_flag.value == flag.lower()


# Texts that the manuals of managed clusters give.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # Azure Event Hubs
            'username="$ConnectionString" password="Endpoint=sb://ns/;SharedAccessKeyName=R;SharedAccessKey=a/b+c="',
            {
                "username": "$ConnectionString",
                "password": "Endpoint=sb://ns/;SharedAccessKeyName=R;SharedAccessKey=a/b+c=",
            },
        ),
        ("username='KEY' password='SE\"CRET'", {"username": "KEY", "password": 'SE"CRET'}),
        (
            'awsRoleArn="arn:aws:iam::123:role/x" awsStsRegion=eu-west-1 awsDebugCreds=true',
            {"awsRoleArn": "arn:aws:iam::123:role/x", "awsStsRegion": "eu-west-1", "awsDebugCreds": "true"},
        ),
        ("username=alice\n  password = 12.5-3_$x", {"username": "alice", "password": "12.5-3_$x"}),
        (
            "useKeyTab=true principal=kafka@EXAMPLE.COM",
            {"useKeyTab": "true", "principal": "kafka@EXAMPLE.COM"},
        ),
        ('unsecuredLoginListClaim_scope="|a|b"', {"unsecuredLoginListClaim_scope": "|a|b"}),
        ("", {}),
        ('password=""', {"password": ""}),
        ("p=1 p=2", {"p": "2"}),
        ("pässwort=wörd", {"pässwort": "wörd"}),
    ],
)
def test_values_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert options(text) == expected


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r"a\"b", 'a"b'),
        (r"a\\b", "a\\b"),
        (r"\a\b\f\n\r\t\v", "\a\b\f\n\r\t\v"),
        (r"\101\60\7", "A0\a"),
        (r"\0478", "'8"),
        (r"\477", "'7"),  # a first digit above 3 takes one more
        (r"\$\x\;", "$x;"),
        ("//no /*comment*/", "//no /*comment*/"),
    ],
)
def test_escapes_in_quotes_are_those_of_java(written: str, value: str) -> None:
    assert options(f'p="{written}"') == {"p": value}


def test_comments_are_passed_over() -> None:
    config = JaasConfig.parse(f"/* cloud */ {PLAIN} required // flag\n a=1/* b=2;\n */c=3 ; // end")
    assert {name: value.value for name, value in config.options.items()} == {"a": "1", "c": "3"}


def test_users_of_a_broker_are_the_options_with_their_prefix() -> None:
    config = JaasConfig.parse(
        f'{PLAIN} required username="admin" password="x" user_admin="x" user_alice="a;b" user_a.b="c";'
    )
    assert config.users == {"admin": Password("x"), "alice": Password("a;b"), "a.b": Password("c")}


def test_required_option_that_is_missing_or_empty_is_named() -> None:
    config = JaasConfig.parse(f'{PLAIN} required username="";', "listener.name.x.plain.sasl.jaas.config")
    for option in ("username", "password"):
        with pytest.raises(ConfigError, match=f"listener.name.x.plain.sasl.jaas.config: .*{option}"):
            config.required(option)
    assert JaasConfig.parse(f"{PLAIN} required a=1;").required("a") == Password("1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a login module"),
        (" // nothing", "expected a login module"),
        (";", "expected a login module"),
        (PLAIN, "expected a control flag: required, requisite, sufficient, optional"),
        (f"{PLAIN} username=a;", "expected a control flag"),
        (f"{PLAIN};", "expected a control flag"),
        (f"KafkaClient {{ {PLAIN} required; }};", "between the braces"),
        (f"{PLAIN} required", "must end with ';' (character"),
        (f"{PLAIN} required a=hunter", "must end with ';' (character 73 of 73)"),
        (f"{PLAIN} required =1;", "expected an option"),
        (
            f"{PLAIN} required password=hunter two;",
            "put values with blanks in double quotes (character 85 of 85)",
        ),
        (f"{PLAIN} required password hunter;", "expected '='"),
        (f"{PLAIN} required password=;", "expected the value"),
        (f"{PLAIN} required password==hunter;", "expected the value"),
        (f'{PLAIN} required password="hunter;', "double quotes has no closing quote"),
        (f'{PLAIN} required password="hun\nter";', "double quotes has no closing quote"),
        (f"{PLAIN} required password='hunter;", "single quotes has no closing quote"),
        (f"{PLAIN} required password=hun/ter;", "a '/' must be part of a comment"),
        (f"{PLAIN} required /* hunter;", "a comment has no end"),
        (f"{PLAIN} required a=1\x85;", "control character"),
        (f"{PLAIN} required a=hun;ter", "exactly one login module"),
        (f"{PLAIN} required;;", "exactly one login module"),
        (f"{PLAIN} required; {PLAIN} required;", "exactly one login module"),
    ],
)
def test_error_says_what_is_wrong_without_a_part_of_the_text(text: str, says: str) -> None:
    message = problem(text)
    assert message.startswith("sasl.jaas.config")
    assert says in message
    assert "hun" not in message
    assert "ter;" not in message


def test_no_value_is_shown_or_left_in_an_error() -> None:
    config = JaasConfig.parse(Password(f'{PLAIN} required password="tiger";'))
    assert "tiger" not in repr(config)
    with pytest.raises(ConfigError) as refused:
        JaasConfig.parse(f"{PLAIN} required password=tiger x;")
    assert b"tiger" not in pickle.dumps(refused.value)
    assert refused.value.__cause__ is None


def quoted(value: str) -> str:
    return (
        '"' + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").replace("\r", r"\r") + '"'
    )


WORDS = st.text(
    st.characters(min_codepoint=33, exclude_characters="\"'/;=", exclude_categories=["Cc", "Cs"]), min_size=1
)


@given(WORDS, st.sampled_from(ControlFlag), st.dictionaries(WORDS, st.text(max_size=20), max_size=4))
def test_what_is_written_in_quotes_is_read_back(module: str, flag: ControlFlag, given_options: dict) -> None:
    text = "".join(f" {name}={quoted(value)}" for name, value in given_options.items())
    config = JaasConfig.parse(f"{module} {flag.value}{text};")
    assert (config.login_module, config.control_flag) == (module, flag)
    assert {name: value.value for name, value in config.options.items()} == given_options


@given(st.text(alphabet="ab=;\"'\\/* \n{}\x85", max_size=40), st.booleans())
def test_any_text_raises_only_a_configuration_error(text: str, with_module: bool) -> None:
    with contextlib.suppress(ConfigError):
        JaasConfig.parse(f"M required {text};" if with_module else text)
