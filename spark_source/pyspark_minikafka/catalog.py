"""Tables of Spark's catalog (``CREATE TABLE … USING minikafka``), whose options never reach a Python source.

Spark hands them over when the table is made, and leaves them out of every read and write. Rows would then go
to the embedded cluster in place of the one that the table names, so such tables are refused: the jar of
``pyspark_minikafka.shim_path()`` makes them work, and takes out what tells them here.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.errors import ConfigError

_INSTEAD = (
    "use CREATE TEMPORARY VIEW … USING minikafka OPTIONS (…), or start Spark with the jar of "
    "pyspark_minikafka.shim_path()"
)
_SPARKS_OWN = frozenset({"path", "checkpointlocation"})


def refuse_new_table(options: Mapping[str, str]) -> None:
    """ConfigError where Spark asks for the columns of a table that it is about to make."""
    if "provider" in options:
        raise ConfigError(
            "CREATE TABLE",
            options["provider"],
            f"Spark keeps a table's options from Python sources: {_INSTEAD}",
        )


def refuse_without_options(options: Mapping[str, str]) -> None:
    """ConfigError for a read or a write with no option at all, which is what is left of a table's."""
    if not _SPARKS_OWN.issuperset(name.lower() for name in options):
        return
    raise ConfigError(
        "options",
        None,
        "none are given: say what to read (subscribe, …) or where to write (topic, kafka.bootstrap.servers "
        f"or minikafka.data.dir). Of a table in the catalog Spark hands none to a Python source: {_INSTEAD}",
    )
