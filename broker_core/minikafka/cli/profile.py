"""``minikafka profile``: names for clusters and the properties with which commands connect to them."""

from __future__ import annotations

from typing import Annotated

import typer

from minikafka.base.config.property_files import key_values, read_properties
from minikafka.base.errors import ConfigError
from minikafka.base.secrets import redact_all
from minikafka.cli.connection import profiles
from minikafka.cli.connection.profiles import BOOTSTRAP_SERVERS, Profile, check_name
from minikafka.cli.options import Format, OutputFormat, text_argument, value_option
from minikafka.cli.terminal.output import print_object, print_rows, say

app = typer.Typer(help="Name clusters, and choose the one that commands use.", no_args_is_help=True)

Name = Annotated[str, text_argument("NAME")]
COLUMNS = ["profile", "in_use", "bootstrap", "security"]


@app.command("list")
def list_(style: OutputFormat = Format.TABLE) -> None:
    """List the profiles, and the one in use."""
    used = profiles.in_use()
    rows: list[dict[str, object]] = []
    for name in profiles.names():
        properties = Profile(name).read()
        rows.append(
            {
                "profile": name,
                "in_use": used is not None and used.name == name,
                "bootstrap": properties.get(BOOTSTRAP_SERVERS),
                "security": properties.get("security.protocol", "PLAINTEXT"),
            }
        )
    print_rows(rows, COLUMNS, style, nothing="there are no profiles; `minikafka profile create` makes one")


@app.command(short_help="Make a profile.")
def create(
    name: Name,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="The brokers.", show_default=False),
    ] = None,
    file: Annotated[
        str | None, value_option("--from-file", "FILE", "A file of client properties to begin with.", str)
    ] = None,
    settings: Annotated[
        list[str] | None, value_option("--set", "KEY=VALUE", "A client property; may be repeated.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Use it from now on.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a profile of this name.")] = False,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Make a profile of client properties, in a file for this user alone.

    Its properties are those of --command-config: bootstrap.servers, security.protocol, ssl.*, sasl.*.
    """
    from minikafka.cli.connection.command_config import CommandConfig, warn_of_unknown_names

    profile = Profile(check_name(name))
    before = profile.path.read_text(encoding="utf-8") if profile.path.exists() else None
    if before is not None and not replace:
        raise ConfigError("NAME", name, "there is a profile of this name; set --replace to replace it")
    properties = {} if file is None else read_properties(file, "--from-file")
    properties |= key_values("--set", settings)
    if bootstrap is not None:
        properties[BOOTSTRAP_SERVERS] = bootstrap
    if not properties.get(BOOTSTRAP_SERVERS):
        raise ConfigError("--bootstrap", None, "required, unless the file has bootstrap.servers")
    CommandConfig.of(properties, f"profile {name}")
    warn_of_unknown_names(properties, f"profile {name}")
    profiles.write(profile, properties)
    if use:
        profiles.use(profile)
    _report(profile, "created", style)


@app.command(short_help="Use a profile from now on.")
def use(name: Name, style: OutputFormat = Format.TABLE) -> None:
    """Use a profile in all commands that name no cluster by options or the environment."""
    profile = Profile(check_name(name), "NAME")
    profile.read()
    profiles.use(profile)
    _report(profile, "using", style)


@app.command(short_help="Use no profile any more.")
def clear() -> None:
    """Use no profile any more: commands connect to 127.0.0.1:9092, or as options say."""
    profiles.use(None)
    say("using no profile")


@app.command(short_help="Show the properties of a profile.")
def show(
    name: Annotated[str | None, text_argument("NAME", "[the one in use]")] = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Show the properties of a profile, without secrets, and the path of its file, which may be edited."""
    profile = profiles.active(names_cluster=False) if name is None else Profile(check_name(name), "NAME")
    if profile is None:
        raise ConfigError("NAME", None, "required, as no profile is in use")
    properties = redact_all(profile.read())
    if style is not Format.TABLE:
        print_object({"profile": profile.name, "file": str(profile.path), "properties": properties}, style)
        return
    say(f"{profile.name}: {profile.path}")
    print_rows(
        [{"property": key, "value": value} for key, value in properties.items()], PROPERTY_COLUMNS, style
    )


PROPERTY_COLUMNS = ["property", "value"]


@app.command()
def delete(name: Name, style: OutputFormat = Format.TABLE) -> None:
    """Delete a profile."""
    profile = Profile(check_name(name), "NAME")
    profiles.delete(profile)
    _report(profile, "deleted", style)


def _report(profile: Profile, done: str, style: Format) -> None:
    if style is Format.TABLE:
        say(f"{done} profile {profile.name}")
    else:
        print_object({"profile": profile.name, "file": str(profile.path), "done": done}, style)
