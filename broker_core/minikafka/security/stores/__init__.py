"""Key stores and trust stores, from bytes: which format they have, and what is in them.

    formats        PEM, PKCS12 or JKS, by the first bytes
    jks            the JKS format, Java's own
    key_material   a key with its certificates, or the certificates of CAs, from a store of any format
    pem            PEM, in files and in properties
    pkcs12         PKCS12, read by ``cryptography``

Imports only ``base``.
"""
