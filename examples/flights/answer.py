"""The same question answered without Kafka or Spark: pandas, straight from the CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

WESTERN_ZONE = "America/Los_Angeles"


class Delays(NamedTuple):
    """One row of the result: a carrier's flights scheduled to leave in one hour of the day, over the year.

    flights: all; departed, arrived: those with a known delay. Delays are means in minutes, None where there
    is none. wet: flights scheduled in an hour with rain or snow. western: flights to the Pacific time zone.
    """

    carrier: str
    name: str | None
    hour: int
    flights: int
    departed: int
    departure_delay: float | None
    arrived: int
    arrival_delay: float | None
    wet: int
    western: int


def batch_answer(files: Path) -> list[Delays]:
    """All rows by carrier and hour."""
    import pandas as pd

    flights = pd.read_csv(files / "flights.csv")
    airlines = pd.read_csv(files / "airlines.csv")
    airports = pd.read_csv(files / "airports.csv")
    weather = pd.read_csv(files / "weather.csv", usecols=["origin", "time_hour", "precip"])
    joined = (
        flights.merge(airlines, on="carrier", how="left")
        .merge(weather, on=["origin", "time_hour"], how="left")
        .merge(airports[["faa", "tzone"]], left_on="dest", right_on="faa", how="left")
    )
    joined["wet"] = joined["precip"] > 0
    joined["western"] = joined["tzone"] == WESTERN_ZONE
    found = joined.groupby(["carrier", "hour"], sort=True).agg(
        airline=("name", "first"),
        flights=("flight", "size"),
        departed=("dep_delay", "count"),
        departure=("dep_delay", "sum"),
        arrived=("arr_delay", "count"),
        arrival=("arr_delay", "sum"),
        wet=("wet", "sum"),
        western=("western", "sum"),
    )
    return [
        Delays(
            carrier,
            row.airline,
            int(hour),
            int(row.flights),
            int(row.departed),
            mean(int(row.departure), int(row.departed)),
            int(row.arrived),
            mean(int(row.arrival), int(row.arrived)),
            int(row.wet),
            int(row.western),
        )
        for (carrier, hour), row in zip(found.index, found.itertuples(index=False), strict=True)
    ]


def mean(total: int, count: int) -> float | None:
    """Of whole minutes: the sums are exact, so two ways to the same rows give the same bits."""
    return total / count if count else None
