"""The APIs of the protocol, one module each: its request and its response, as ``wire.schema`` describes them.

A field that a newer version has put between others is given by name (``kw_only``), so that callers which need
no newer version stay as they are.

These modules do without ``from __future__ import annotations``: text would be evaluated again for ``schema``,
at twice the cost.
"""
