"""The web console: pages about any Kafka cluster, made on the server, in an extra of its own.

``server`` runs it, ``app`` joins its parts, ``views`` has a module for each noun, and ``templates`` and
``static`` have the pages and their style. Only this package imports starlette, uvicorn and jinja2. It uses
``clients`` like any program, and connects as the command line says (``cli.console``).
"""
