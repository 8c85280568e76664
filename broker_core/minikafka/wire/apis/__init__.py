"""The APIs of the protocol, one module each: its request and its response, as ``wire.schema`` describes them.

These modules do without ``from __future__ import annotations``: text would be evaluated again for ``schema``,
at twice the cost.
"""
