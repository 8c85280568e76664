"""AWS_MSK_IAM: the client sends a request that is signed with AWS credentials, and Amazon MSK checks it.

    client   {"version":"2020_10_22","host":…,"user-agent":…,"action":"kafka-cluster:Connect","x-amz-…":…}
    server   {"version":"2020_10_22","request-id":…}

The fields are the query of a presigned address, ``https://BROKER/?Action=kafka-cluster:Connect&X-Amz-…``.
The presigned address of the host ``kafka.REGION.amazonaws.com`` is a token for OAUTHBEARER, in base64url. A
library signs, and is passed in.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlsplit

from minikafka.base.secrets import Password
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.mechanism import SaslClient

MECHANISM = "AWS_MSK_IAM"
ACTION = "kafka-cluster:Connect"
SERVICE = "kafka-cluster"
LIFETIME_S = 900
"""The time for which a signature is valid."""

_VERSION = "2020_10_22"
_SECRETS = ("x-amz-signature", "x-amz-security-token")
_REGION = re.compile(
    r"(?:af|ap|ca|cn|eu|il|me|mx|sa|us)(?:-gov|-iso[a-z]?)?"
    r"-(?:central|(?:north|south)?(?:east|west)?)(?<!-)-[0-9]{1,2}"
)
_NO_SESSION = "aws-msk-iam-auth"

TOKEN_HOST = "kafka.{region}.amazonaws.com"
"""The host whose presigned address is a token for OAUTHBEARER."""

Presign = Callable[[str, "str | None", int], str]
"""Takes a host, in which ``{region}`` stands for the region, a region, and the time to wait at most, in ms;
returns the presigned address of the host.

Without a region it is that of the AWS configuration. Raises AuthenticationFailed, and NetworkError if there
are no credentials in time.
"""


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """The options of a JAAS text, by which Amazon's login module finds credentials. None: not given."""

    profile_name: str | None = None
    role_arn: str | None = None
    role_session_name: str = _NO_SESSION
    role_external_id: str | None = None
    role_access_key_id: str | None = None
    role_secret_access_key: Password | None = None
    role_session_token: Password | None = None
    sts_region: str | None = None

    @classmethod
    def of(cls, jaas: JaasConfig) -> AwsOptions:
        """Return the options of ``jaas``."""

        def option(name: str) -> str | None:
            value = jaas.options.get(name)
            return value.value if value and value.value else None

        return cls(
            option("awsProfileName"),
            option("awsRoleArn"),
            option("awsRoleSessionName") or _NO_SESSION,
            option("awsRoleExternalId"),
            option("awsRoleAccessKeyId"),
            jaas.options.get("awsRoleSecretAccessKey"),
            jaas.options.get("awsRoleSessionToken"),
            option("awsStsRegion"),
        )


class AwsMskIamSaslClient(SaslClient):
    """The client's side of AWS_MSK_IAM."""

    ADVICE = f"check that the identity's IAM policy allows {ACTION} on the cluster, the region, and the clock"

    def __init__(self, presigned: Password, user_agent: str) -> None:
        """presigned: the address of the broker with its signature, of this exchange only."""
        url = urlsplit(presigned.value)
        query = {name.lower(): value for name, value in parse_qsl(url.query)}
        super().__init__(MECHANISM, *(Password(query[name]) for name in _SECRETS if name in query))
        self._fields = {"version": _VERSION, "host": url.hostname or "", "user-agent": user_agent, **query}

    def _initial_response(self) -> bytes:
        return json.dumps(self._fields, separators=(",", ":")).encode("ascii")

    def _evaluate(self, challenge: bytes) -> None:
        try:
            fields = json.loads(challenge)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise self._failed(
                f"the broker's answer of {len(challenge)} bytes is not that of Amazon MSK; "
                "check the address of the broker"
            )
        self.is_complete = True


def region_of(host: str) -> str | None:
    """Return the AWS region in the name of a broker; None if there is none."""
    return next((label for label in host.lower().split(".") if _REGION.fullmatch(label)), None)


def token_of(presigned: str, user_agent: str) -> Password:
    """Return the token for OAUTHBEARER of a presigned address."""
    address = f"{presigned}&User-Agent={quote(user_agent, safe='')}"
    return Password(urlsafe_b64encode(address.encode("ascii")).decode("ascii").rstrip("="))
