"""Kafka's wire protocol: conversion between bytes and values, without sockets, threads or clocks.

``schema``       messages as classes of annotated fields (``fields``), compiled once per version (``codegen``)
``apis``         one module per API with all its versions; import only the ones that are used
``api``          the ApiKey numbers and the Api class; ``api_table``: all APIs by key, and their description
``framing``      the length before every message, and the headers
``classic``      the texts' compact protocol: requests of Kafka 0.7, answered by MessageSetSend
``fetch_session_handler``  the end of a fetch session that sends the requests
``consumer_protocol``  subscriptions and assignments of consumer groups
``frame_parts``  the parts of an encoded message: memory, unread file slices, and lazy parts

``python -m minikafka.wire`` prints every API, version and field. Which of the versions a broker serves, and
which the clients use, is said in ``server.served_versions`` and ``clients.network.used_versions``.
"""
