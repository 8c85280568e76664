"""What may stand after ``--data-dir``."""

from __future__ import annotations

import os
from pathlib import Path

from minikafka.base.cache_dirs import make_private
from minikafka.base.errors import ConfigError

OPTION = "--data-dir"


def named(text: str | Path, option: str = OPTION) -> Path:
    """A directory's name. ConfigError for none, which would silently mean the current directory."""
    if not str(text).strip():
        raise ConfigError(option, text, "must name a directory; the current one is .")
    return Path(text)


def check_usable(data_dir: Path) -> None:
    """Raise ConfigError unless a cluster can be kept there. The directory need not exist yet."""
    place = data_dir.absolute()
    found = next(one for one in (place, *place.parents) if os.path.lexists(one))
    if not found.is_dir():
        what = "it" if found == place else str(found)
        raise ConfigError(OPTION, str(data_dir), f"{what} is not a directory; name another place")
    if not os.access(found, os.W_OK | os.X_OK):
        what = "it" if found == place else str(found)
        raise ConfigError(OPTION, str(data_dir), f"{what} cannot be written by this user; name another place")


def make(data_dir: Path) -> None:
    """Make a directory for this user alone, with those above it. ConfigError where that cannot be."""
    try:
        make_private(data_dir)
    except OSError as error:
        reason = f"cannot be made ({error.strerror}); name another place"
        raise ConfigError(OPTION, str(data_dir), reason) from None


def check_cluster(data_dir: Path) -> None:
    """Raise ConfigError unless a cluster was kept there before: whoever reads must not begin an empty one."""
    check_usable(data_dir)
    # Written at every start, before anything else of a broker.
    if not (data_dir / "broker-0.properties").is_file():
        raise ConfigError(
            OPTION,
            str(data_dir),
            f"there is no minikafka cluster in it; start one with `minikafka up --data-dir {data_dir}`, "
            "or correct the path",
        )
