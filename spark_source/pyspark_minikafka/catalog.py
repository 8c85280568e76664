"""Refuses tables of Spark's catalog (``CREATE TABLE … USING minikafka``): Python sources lack their options.

Spark passes a table's options when the table is created, but not to reads and writes. Rows would then go to
the embedded cluster instead of the one that the table names. With the jar of
``pyspark_minikafka.shim_path()`` such tables work; it removes the option ``provider`` by which they are
detected here.
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
    """Raise ConfigError if Spark asks for the columns of a table that it is about to create."""
    if "provider" in options:
        raise ConfigError(
            "CREATE TABLE",
            options["provider"],
            f"Spark does not pass a table's options to Python sources; {_INSTEAD}",
        )


def refuse_without_options(options: Mapping[str, str]) -> None:
    """Raise ConfigError for a read or a write without options, which is how those of a table arrive."""
    if not _SPARKS_OWN.issuperset(name.lower() for name in options):
        return
    raise ConfigError(
        "options",
        None,
        "none are set; set what to read (subscribe, …) or where to write (topic, kafka.bootstrap.servers or "
        "minikafka.data.dir). For a table in the catalog, Spark passes no options to a Python source; "
        f"{_INSTEAD}",
    )
