"""Cipher suites by IANA's names, which Java and Kafka's ``ssl.cipher.suites`` have, as OpenSSL names them.

Suites of TLS 1.3 have the same names in both. Of TLS 1.2 there are those with forward secrecy and, for peers
that have nothing better, those with RSA key exchange; suites without encryption or authentication, and those
with RC4, DES, 3DES or MD5, are refused.
"""

from __future__ import annotations

from minikafka.base.config.unknown_names import closest_match, did_you_mean

_TLS_1_3 = (
    "TLS_AES_128_CCM_8_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_ELLIPTIC = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
_RSA = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}
_TLS_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_": ("ECDHE-ECDSA-", _ELLIPTIC),
    "TLS_ECDHE_RSA_WITH_": ("ECDHE-RSA-", _ELLIPTIC),
    "TLS_DHE_RSA_WITH_": ("DHE-RSA-", _RSA | {"CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305"}),
    "TLS_RSA_WITH_": ("", _RSA),
}

OPENSSL_NAMES = dict.fromkeys(_TLS_1_3, "") | {
    exchange + cipher: prefix + name
    for exchange, (prefix, ciphers) in _TLS_1_2.items()
    for cipher, name in ciphers.items()
}
"""IANA's name of a suite -> OpenSSL's; empty for a suite of TLS 1.3, whose name is the same."""


def check_suite(name: str) -> None:
    """Raise ValueError for a suite that is not known, or not secure."""
    if name not in OPENSSL_NAMES:
        meant = did_you_mean(closest_match(name, OPENSSL_NAMES))
        raise ValueError(
            f"{name!r} is not one of the cipher suites that are supported, by IANA's names{meant}"
        )


def is_tls_1_3(name: str) -> bool:
    """Return True for a suite of TLS 1.3, which no earlier version has."""
    return name in _TLS_1_3
