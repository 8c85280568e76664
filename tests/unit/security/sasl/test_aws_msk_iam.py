"""AWS_MSK_IAM: the message of a presigned address, its answer, and regions in names of brokers."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.errors import AuthenticationFailed
from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.aws_msk_iam import AwsMskIamSaslClient, AwsOptions, region_of, token_of

HOST = "b-1.demo.kafka.us-west-2.amazonaws.com"
PRESIGNED = (
    f"https://{HOST}/?Action=kafka-cluster%3AConnect"
    "&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=KEY%2F20260101%2Fus-west-2%2Fkafka-cluster%2Faws4_request"
    "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host"
    "&X-Amz-Security-Token=session-token%3D&X-Amz-Signature=0123abcd"
)


def client() -> AwsMskIamSaslClient:
    return AwsMskIamSaslClient(Password(PRESIGNED), "minikafka/1")


def test_message_has_the_fields_of_the_presigned_address() -> None:
    message = client().initial_response()
    assert b" " not in message
    assert json.loads(message) == {
        "version": "2020_10_22",
        "host": HOST,
        "user-agent": "minikafka/1",
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "KEY/20260101/us-west-2/kafka-cluster/aws4_request",
        "x-amz-date": "20260101T000000Z",
        "x-amz-expires": "900",
        "x-amz-signedheaders": "host",
        "x-amz-security-token": "session-token=",
        "x-amz-signature": "0123abcd",
    }


def test_answer_of_the_service_completes_the_login() -> None:
    sasl = client()
    sasl.initial_response()
    assert sasl.evaluate_challenge(b'{"version":"2020_10_22","request-id":"x"}') is None
    assert sasl.is_complete


@given(st.binary(max_size=20) | st.sampled_from([b"", b"[]", b"[" * 100_000]))
def test_other_answers_are_refused(answer: bytes) -> None:
    sasl = client()
    sasl.initial_response()
    with pytest.raises(AuthenticationFailed, match="not that of Amazon MSK"):
        sasl.evaluate_challenge(answer)


def test_signature_and_session_token_are_hidden_in_words_of_the_broker() -> None:
    assert client().without_secrets("bad 0123abcd session-token=") == "bad *** ***"


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.abc.c2.kafka.us-east-1.amazonaws.com", "us-east-1"),
        ("boot-abc.c1.kafka-serverless.eu-central-1.amazonaws.com", "eu-central-1"),
        ("b-1.demo.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.demo.kafka.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.demo.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("B-1.DEMO.KAFKA.CA-WEST-1.AMAZONAWS.COM", "ca-west-1"),
        ("us-kafka-1.example.com", None),
        ("us--1.example.com", None),
        ("localhost", None),
    ],
)
def test_region_is_a_part_of_the_brokers_name(host: str, region: str | None) -> None:
    assert region_of(host) == region


def test_token_for_oauthbearer_is_the_address_without_padding() -> None:
    token = token_of(PRESIGNED, "minikafka/1").value
    assert "=" not in token
    address = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert address == f"{PRESIGNED}&User-Agent=minikafka%2F1"


def test_options_are_those_of_amazons_login_module() -> None:
    options = AwsOptions.of(
        JaasConfig.parse(
            'IAMLoginModule required awsProfileName="dev" awsRoleArn="arn:aws:iam::1:role/r"'
            ' awsStsRegion="us-east-1" awsRoleExternalId="e" awsRoleAccessKeyId="k"'
            ' awsRoleSecretAccessKey="tiger" awsRoleSessionToken="t";'
        )
    )
    assert options == AwsOptions(
        "dev",
        "arn:aws:iam::1:role/r",
        "aws-msk-iam-auth",
        "e",
        "k",
        Password("tiger"),
        Password("t"),
        "us-east-1",
    )
    assert "tiger" not in repr(options)
