"""Profiles: the properties with which commands connect to a cluster, each under a name.

A profile is a file of client properties, as ``--command-config`` takes it, at ``profiles/NAME.properties`` in
the directory of the user's settings: MINIKAFKA_CONFIG_HOME, or ``minikafka`` in XDG_CONFIG_HOME or
``~/.config``. Files that commands write there are for their owner alone. The file ``profile`` beside them has
the name of the profile in use.

Precedence: options, then the environment, then the profile. A profile named by ``--profile`` or
MINIKAFKA_PROFILE always applies, and ``--bootstrap`` only replaces its address. The profile in use applies
where neither options nor the environment name a cluster: its credentials go to no other one.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.cache_dirs import make_private
from minikafka.base.config.property_files import read_properties, write_properties
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import is_secret
from minikafka.base.text import first_of
from minikafka.cli.terminal.output import note

HOME_VARIABLE = "MINIKAFKA_CONFIG_HOME"
PROFILE_OPTION = "--profile"
PROFILE_VARIABLE = "MINIKAFKA_PROFILE"
BOOTSTRAP_SERVERS = "bootstrap.servers"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SUFFIX = ".properties"
NAMED_MAX = 10
"""The most profiles that an error names."""

_typed: list[str] = []
"""The profile that the command line names, if any."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile. origin: the option or variable that names it; empty for the one in use."""

    name: str
    origin: str = ""

    @property
    def path(self) -> Path:
        """The file of its properties."""
        return _home() / "profiles" / f"{self.name}{_SUFFIX}"

    def read(self) -> Mapping[str, str]:
        """Return the properties. Raise ConfigError if there is no such profile, or its file is invalid. Print
        a note if other users can read secrets in it.
        """
        origin = self.origin or "profile in use"
        if not self.path.exists():
            known = first_of(names(), NAMED_MAX) or "none"
            allowed = f"there is no such profile (there are: {known}); `minikafka profile create` makes one"
            raise ConfigError(origin, self.name, allowed)
        found = read_properties(str(self.path), origin)
        mode = self.path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and any(map(is_secret, found)):
            note(f"minikafka: {self.path} has secrets that other users can read; run chmod 600 {self.path}")
        return found


def choose(name: str | None) -> None:
    """Set the profile that the command line names; None for none."""
    _typed[:] = [] if name is None else [name]


def check_name(name: str, origin: str = "NAME") -> str:
    """Return a valid name of a profile. Raise ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(origin, name, "must be a name of letters, digits, dots, dashes and underscores")
    return name


def _home() -> Path:
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "minikafka"


def names() -> list[str]:
    """Return the names of all profiles, sorted."""
    found = (_home() / "profiles").glob(f"*{_SUFFIX}")
    return sorted(path.name.removesuffix(_SUFFIX) for path in found)


def in_use() -> Profile | None:
    """Return the profile in use, which ``profile use`` has set; None for none."""
    try:
        name = (_home() / "profile").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Profile(name) if _NAME.fullmatch(name) else None


def active(*, names_cluster: bool) -> Profile | None:
    """Return the profile that applies; ``names_cluster``: options or the environment name a cluster."""
    if _typed:
        return Profile(check_name(_typed[0], PROFILE_OPTION), PROFILE_OPTION)
    from_environment = os.environ.get(PROFILE_VARIABLE)
    if from_environment:
        return Profile(check_name(from_environment, PROFILE_VARIABLE), PROFILE_VARIABLE)
    return None if names_cluster else in_use()


def use(profile: Profile | None) -> None:
    """Set the profile in use; None for none."""
    file = _home() / "profile"
    if profile is None:
        file.unlink(missing_ok=True)
        return
    make_private(_home())
    file.write_text(f"{profile.name}\n", encoding="utf-8")


def write(profile: Profile, properties: Mapping[str, str]) -> None:
    """Write a profile, for its owner alone."""
    make_private(profile.path.parent)
    write_properties(str(profile.path), properties)


def delete(profile: Profile) -> None:
    """Delete a profile, and stop using it. Raise ConfigError if there is none."""
    profile.read()
    profile.path.unlink()
    with contextlib.suppress(OSError):
        if in_use() == Profile(profile.name):
            use(None)
