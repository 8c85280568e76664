#!/usr/bin/env python
# ruff: noqa: E501
"""Write the generated pages of docs/reference from the code's own tables.

    python scripts/generate_reference.py            write the pages
    python scripts/generate_reference.py --check    write nothing; status 1 names the pages that are stale

``tests/test_docs.py`` makes the same check. Meanings that the code's tables do not have are in
``reference_texts.py``.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT / "spark_source", ROOT / "broker_core", ROOT):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from minikafka.base.config.config_def import ConfigDef, ConfigKey  # noqa: E402
from minikafka.wire.api import ApiKey  # noqa: E402
from scripts import reference_texts as texts  # noqa: E402
from scripts.recorded_versions import versions_of_3_9  # noqa: E402
from scripts.reference_metrics import broker_metrics, client_metrics  # noqa: E402
from scripts.reference_tables import NOTE, table  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
LARGEST = {-(2**63): "-2^63", 2**63 - 1: "2^63 - 1", 2**31 - 1: "2^31 - 1"}


def matched(names: Iterable[str], meanings: Mapping[str, Any], what: str) -> None:
    """Raise SystemExit unless ``meanings`` has exactly ``names``."""
    known = set(names)
    missing, left = sorted(known - set(meanings)), sorted(set(meanings) - known)
    if missing or left:
        raise SystemExit(
            f"reference_texts.py: {what} without a meaning: {missing}; with no such name: {left}"
        )


def shown(value: object) -> str:
    """Return a default as a reader writes it."""
    text = LARGEST.get(value, str(value)) if isinstance(value, int) else str(value)  # type: ignore[call-overload]
    if isinstance(value, bool):
        text = text.lower()
    for number, name in LARGEST.items():
        text = text.replace(str(number), name)
    return f"`{text}`" if text else "empty"


def allowed(key: ConfigKey) -> str:
    """Return what a setting's type allows."""
    text = key.type.allowed
    for number, short in LARGEST.items():
        text = text.replace(str(number), short)
    return text


def default_of(key: ConfigKey) -> str:
    """Return the default of a setting as a reader writes it; empty without one."""
    return "" if key.default_text is None else shown(key.default_text)


def broker_properties() -> str:
    """Return the page of broker properties and topic settings."""
    from minikafka.log.config import TOPIC_CONFIG
    from minikafka.server.config.properties import BROKER_CONFIG, GROUPS

    parts = [
        "# Broker properties",
        NOTE,
        (
            "A broker takes Kafka's own property names: in the file of `minikafka broker FILE`, or as `minikafka up --set NAME=VALUE`. "
            "Defaults are those of Kafka 0.10.1, with the differences that `minikafka.server.config.properties` lists. "
            "Times are in milliseconds and sizes in bytes where the name does not say otherwise. "
            "A broker warns of names that it does not use."
        ),
    ]
    for group in GROUPS:
        parts.append(f"## {group}")
        parts.append(
            table(
                "Property | Default | Allowed | Meaning",
                (
                    [f"`{name}`", default_of(key), allowed(key), key.doc]
                    for name, key in BROKER_CONFIG.keys.items()
                    if key.group == group
                ),
            )
        )
    parts.append("## Topic settings")
    parts.append(
        "Set with `minikafka topic create --config` and `minikafka config set topic`. A topic's own value wins over the broker's property."
    )
    parts.append(
        table(
            "Setting | Default | Allowed | Broker property | Meaning",
            (
                [
                    f"`{name}`",
                    default_of(key),
                    allowed(key),
                    ", ".join(f"`{synonym.name}`" for synonym in key.synonyms),
                    key.doc,
                ]
                for name, key in TOPIC_CONFIG.keys.items()
            ),
        )
    )
    return "\n\n".join(parts) + "\n"


def spark_options() -> str:
    """Return the page of options of the Spark source and sink."""
    from minikafka.base.config.config_def import definition_of
    from minikafka.clients.produce.config import BatchingConfig
    from pyspark_minikafka.options import kafka_options, options

    def rows(config: ConfigDef, compared: Mapping[str, tuple[str, str]]) -> list[list[str]]:
        prefixed = re.compile(r"(?:kafka|minikafka)\.(offsets\.storage|zookeeper\.connect)")
        keys = [key for name, key in config.keys.items() if not prefixed.fullmatch(name)]
        matched((key.name for key in keys), compared, "options of Spark")
        also = " Also with the prefix `kafka.` or `minikafka.`."
        return [
            [
                f"`{key.name}`",
                default_of(key) or ("see the meaning" if "by default" in key.doc.lower() else "none"),
                *compared[key.name],
                key.doc + (also if f"kafka.{key.name}" in config.keys else ""),
            ]
            for key in keys
        ]

    header = "Option | Default | Spark | Spark's connector | Meaning"
    reads = rows(options.SOURCE_CONFIG, texts.SPARK_SOURCE)
    writes = rows(options.SINK_CONFIG, texts.SPARK_SINK)
    parts = [
        "# Spark options",
        NOTE,
        texts.SPARK_OPTIONS,
        "## Reading",
        table(header, (row for row in reads if row not in writes)),
        "## Writing",
        table(header, (row for row in writes if row not in reads)),
        "## Reading and writing",
        table(header, (row for row in reads if row in writes)),
        texts.SPARK_FORMATS,
        "## Client properties",
        "Kafka's own, with the prefix `kafka.`.",
    ]
    connection = definition_of(kafka_options.ConnectionOptions).keys
    clients: tuple[tuple[str, Mapping[str, ConfigKey]], ...] = (
        ("Connections", connection),
        ("Reads", definition_of(kafka_options.FetchOptions).keys),
        ("Writes", definition_of(BatchingConfig).keys),
    )
    for title, keys in clients:
        parts.append(f"### {title}")
        defaults = kafka_options.SINK_DEFAULTS if title == "Writes" else {}
        parts.append(
            table(
                "Property | Default | Allowed | Meaning",
                (
                    [
                        f"`kafka.{name}`",
                        shown(defaults[name]) if name in defaults else default_of(key) or "see the meaning",
                        allowed(key),
                        key.doc.partition("; by default")[0].rstrip(".") + "."
                        if name in defaults
                        else key.doc,
                    ]
                    for name, key in keys.items()
                    if keys is connection or name not in connection
                ),
            )
        )
    parts += other_properties()
    return "\n\n".join(parts) + "\n"


LISTENER_SETTINGS = ("ssl.client.auth", "ssl.principal.mapping.rules")
"""Settings of TLS that clients do not use."""


def client_properties() -> str:
    """Return the page of settings of the Python clients."""
    from minikafka.base.config.config_def import definition_of
    from minikafka.cli.connection.command_config import CommandConfig
    from minikafka.clients.consumer.config import ConsumerConfig
    from minikafka.clients.group.config import GroupConsumerConfig
    from minikafka.clients.produce.config import BatchingConfig, TransactionalConfig
    from minikafka.clients.producer.producer_config import ProducerConfig
    from minikafka.security.sasl.sasl_config import SaslConfig
    from minikafka.security.ssl_config import SslConfig
    from minikafka.security.zookeeper_config import ZOOKEEPER_SECURITY

    parts = [
        "# Client properties",
        NOTE,
        (
            "The settings of the Python clients, under Kafka's own names. Pass them to `from_properties`, as text or as Python values; "
            "the fields of the classes have the same settings. Blanks around a text are removed, and `true`, `false` and other words are read in any case. "
            "Every invalid setting is named in one error; an unknown name alone is a warning. Times are in milliseconds and sizes in bytes."
        ),
    ]
    parts += [
        "## Security",
        (
            "Every client below takes these too, and so does a file of `--command-config`: `minikafka.ClientSecurity.from_properties` reads them for a "
            "`ClusterClient`, whose producers and consumers have its security. `security.protocol` is `PLAINTEXT` (the default), `SSL`, `SASL_PLAINTEXT` or "
            "`SASL_SSL`. A setting that the protocol does not use is a warning; settings that do not fit together are refused. Values of passwords, keys and "
            "`sasl.jaas.config` are never shown."
        ),
    ]
    for title, config in (("TLS", SslConfig), ("SASL", SaslConfig)):
        parts.append(f"### {title}")
        rows = (
            (name, key) for name, key in definition_of(config).keys.items() if name not in LISTENER_SETTINGS
        )
        parts.append(
            table(
                "Property | Default | Allowed | Meaning",
                ([f"`{name}`", default_of(key), allowed(key), key.doc] for name, key in rows),
            )
        )
    parts.append("## `--command-config`")
    parts.append(
        "A file of these properties and those of security. Properties of other clients in it are passed over; "
        "a name that no client knows is a warning."
    )
    rows = definition_of(CommandConfig).keys.items()
    parts.append(
        table(
            "Property | Default | Allowed | Meaning",
            ([f"`{name}`", default_of(key), allowed(key), key.doc] for name, key in rows),
        )
    )
    for config in (BatchingConfig, TransactionalConfig, GroupConsumerConfig, ProducerConfig, ConsumerConfig):
        parts.append(f"## {config.__module__.rpartition('.')[0]}.{config.__name__}")
        parts.append(
            table(
                "Property | Field | Default | Allowed | Meaning",
                (
                    [f"`{name}`", f"`{key.field}`", class_name(default_of(key)), allowed(key), key.doc]
                    for name, key in definition_of(config).keys.items()
                ),
            )
        )
    parts.append(
        "And the security of ZooKeeper's client, with the meaning that it has for [brokers](broker-properties.md): "
        + ", ".join(f"`{name}`" for name in sorted(ZOOKEEPER_SECURITY))
        + "."
    )
    return "\n\n".join(parts) + "\n"


def class_name(text: str) -> str:
    """Return a default that is a class by its name."""
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)


def other_properties() -> list[str]:
    """Return the sections of client properties for security, and of those refused or without effect."""
    from minikafka.base.config.unknown_names import NOT_YET
    from minikafka.clients.common_client_configs import UNSUPPORTED_NAMES, WITHOUT_EFFECT
    from pyspark_minikafka.options import kafka_options

    parts = []
    parts.append("### TLS and SASL")
    parts.append(
        "`kafka.security.protocol` and [all properties of TLS and SASL](client-properties.md#security) with the prefix `kafka.`. Files "
        "must be on the driver and on every executor. [Managed clusters](../guides/managed-clusters.md) has the options of the services."
    )
    parts.append("### Refused")
    parts.append(
        table(
            "Property | Reason",
            [[f"`kafka.{name}`", reason] for name, reason in kafka_options.REJECTED.items()]
            + [[f"`kafka.{name}`", NOT_YET] for name in UNSUPPORTED_NAMES],
        )
    )
    parts.append("### Without effect")
    parts.append(
        "Accepted with a warning; the value must still be one that Kafka accepts: "
        + ", ".join(f"`{name}`" for name in WITHOUT_EFFECT)
        + "."
    )
    return parts


def protocol_versions() -> str:
    """Return the page of APIs, versions and fields."""
    from minikafka.clients.network.used_versions import NEWEST_USED
    from minikafka.server.served_versions import NEWEST_IN_0_10_1, NEWEST_SERVED
    from minikafka.wire.api_table import APIS, describe

    def name_of(key: int) -> str:
        return APIS[ApiKey(key)].name if key in APIS else texts.OTHER_APIS[key]

    def row(key: int, theirs: int | None) -> list[str]:
        name = name_of(key)
        link = f"[{name}](#{name.lower()})" if key in NEWEST_SERVED else name
        newest = [table.get(ApiKey(key)) if key in APIS else None for table in (NEWEST_SERVED, NEWEST_USED)]
        shown = ["" if version is None else str(version) for version in (*newest, NEWEST_IN_0_10_1.get(key))]
        reason = texts.OLDER_VERSIONS.get(name, "")
        return [link, str(key), shown[0], "" if theirs is None else str(theirs), shown[1], shown[2], reason]

    theirs = versions_of_3_9()
    older = [name_of(key) for key, newest in theirs.items() if NEWEST_SERVED.get(key, -1) < newest]
    matched(older, texts.OLDER_VERSIONS, "APIs with fewer versions than Kafka 3.9.1")
    served = [replace(APIS[key], max_version=newest) for key, newest in NEWEST_SERVED.items()]
    parts = [
        "# Protocol versions",
        NOTE,
        *texts.PROTOCOL_VERSIONS,
        table(
            "API | Key | Newest version | of Kafka 3.9.1 | of our clients | beside 0.10.1 | Why less than Kafka",
            (row(key, theirs.get(key)) for key in sorted({*theirs, *NEWEST_SERVED})),
        ),
    ]
    for api in served:
        parts.append(f"## {api.name}")
        parts.append("```\n" + describe([api]) + "\n```")
    return "\n\n".join(parts) + "\n"


def error_codes() -> str:
    """Return the page of Kafka's error codes."""
    from minikafka.base import errors

    matched((code.name for code in errors.ErrorCode), texts.ERROR_MEANINGS, "error codes")
    return (
        "\n\n".join(
            [
                "# Error codes",
                NOTE,
                "Kafka's numeric codes, as they are in responses and in `BrokerError.code`. *Retriable*: the same request may succeed later.",
                table(
                    "Code | Name | Retriable | Meaning",
                    (
                        [
                            str(int(code)),
                            f"`{code.name}`",
                            "yes" if code.is_retriable else "",
                            texts.ERROR_MEANINGS[code.name],
                        ]
                        for code in errors.ErrorCode
                    ),
                ),
            ]
        )
        + "\n"
    )


def commands(command: Any, path: str) -> Iterable[tuple[str, Any]]:
    """Return every command below ``command`` with its full name."""
    children = getattr(command, "commands", None)
    if not children:
        yield path, command
        return
    for name, child in children.items():
        if not child.hidden:  # other names of commands
            yield from commands(child, f"{path} {name}")


def one_line(text: str | None) -> str:
    """Return ``text`` without line breaks."""
    return re.sub(r"\s+", " ", (text or "").replace("\b", "")).strip()


def cli() -> str:
    """Return the page of commands, from typer."""
    import typer.main

    from minikafka.cli.commands import app

    found = list(commands(typer.main.get_command(app), "minikafka"))
    parts = [
        "# Commands",
        NOTE,
        "`minikafka COMMAND --help` prints the same. Status 0: done. 1: it failed. 2: the request is impossible. 3: still under way (`reassign verify`). 130: Ctrl-C came before it was done (0 for a command that runs until Ctrl-C).",
        table(
            "Command | Purpose",
            (
                [f"[`{path}`](#{path.replace(' ', '-')})", first_sentence_of(command.help)]
                for path, command in found
            ),
        ),
    ]
    for path, command in found:
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        usage = " ".join(["[OPTIONS]", *map(argument_usage, arguments)])
        parts.append(f"## {path}")
        parts.append(f"```\n{path} {usage}\n```")
        parts += [one_line(part) for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))]
        rows = [option_row(parameter) for parameter in command.params if "--help" not in parameter.opts]
        if rows:
            parts.append(table("Argument or option | Default | Meaning", rows))
    return "\n\n".join(parts) + "\n"


def argument_usage(parameter: Any) -> str:
    """Return an argument as a usage line has it."""
    name = (parameter.metavar or parameter.name or "").upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def value_of(parameter: Any) -> str:
    """Return what stands for an option's value: its own name for it, its choices, or the option's name."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    choices = getattr(getattr(parameter, "type", None), "choices", None)
    if choices is None and isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        choices = [member.value for member in annotation]
    return parameter.metavar or ("|".join(map(str, choices)) if choices else parameter.name.upper())


def option_row(parameter: Any) -> list[str]:
    """Return name, default and meaning of an argument or option."""
    if parameter.param_type_name == "argument":
        name = f"`{argument_usage(parameter)}`"
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        value = "" if parameter.is_flag else " " + value_of(parameter)
        name = f"`{names}{value}`"
    default = parameter.default
    if isinstance(default, enum.Enum):
        default = default.value
    simple = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    return [name, f"`{default}`" if simple and default != "" else "", one_line(parameter.help)]


def first_sentence(thing: object) -> str:
    """Return the first sentence of a docstring; empty for what only repeats its base's."""
    return first_sentence_of(inspect.getdoc(thing))


def first_sentence_of(text: str | None) -> str:
    """Return the first sentence of the first paragraph of ``text``."""
    text = one_line((text or "").split("\n\n")[0])
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0]


def signature(thing: Any) -> str:
    """Return the parameters of ``thing`` without annotations of types."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return "()"
    shortened = []
    for parameter in found.parameters.values():
        if parameter.name == "self" or parameter.name.startswith("_"):
            continue
        default = parameter.default
        if isinstance(default, enum.Enum):
            parameter = parameter.replace(default=default.value)
        elif default is not parameter.empty and not isinstance(
            default, str | int | float | bool | type(None)
        ):
            parameter = parameter.replace(default=Ellipsis)
        shortened.append(parameter.replace(annotation=parameter.empty))
    return str(found.replace(parameters=shortened, return_annotation=found.empty)).replace("Ellipsis", "…")


def members(thing: type) -> list[list[str]]:
    """Return name and meaning of each public method and property of a class, its own and its bases'."""
    rows = []
    for name in dict.fromkeys(
        name
        for base in thing.__mro__
        if base is not object
        for name in vars(base)
        if not name.startswith("_")
    ):
        attribute = inspect.getattr_static(thing, name)
        if isinstance(attribute, property):
            rows.append([f"`{name}`", first_sentence(attribute)])
        elif isinstance(attribute, staticmethod | classmethod) or inspect.isfunction(attribute):
            text = signature(getattr(thing, name))
            rows.append([f"`{name}{text}`", first_sentence(getattr(thing, name))])
    return rows


def python_api() -> str:
    """Return the page of public names, from each package's ``__all__``."""
    parts = [
        "# Python API",
        NOTE,
        "The public names, by the package from which programs import them. Docstrings have units, errors and details: `help(minikafka.GroupConsumer)`.",
    ]
    described: dict[int, str] = {}
    for package_name in texts.API_PACKAGES:
        package = importlib.import_module(package_name)
        parts.append(f"## {package_name}")
        parts.append(one_line((package.__doc__ or "").split("\n\n")[0]))
        for name in sorted(package.__all__):
            thing = getattr(package, name)
            if name == texts.SPARKS_NAME or (id(thing) in described and inspect.isclass(thing)):
                continue
            described[id(thing)] = package_name
            if not inspect.isclass(thing):
                continue
            parts.append(f"### {package_name}.{name}")
            if hasattr(thing, "__members__"):
                values = ", ".join(f"`{member}`" for member in thing.__members__)
                parts.append(f"{first_sentence(thing)} Values: {values}.")
                continue
            parts.append(first_sentence(thing))
            if not issubclass(thing, int | str):
                parts.append(
                    f"```\n{textwrap.fill(name + signature(thing), 110, subsequent_indent='    ')}\n```"
                )
            rows = members(thing)
            if rows:
                parts.append(table("Member | Purpose", rows))
        others = {name: getattr(package, name) for name in sorted(package.__all__)}
        others = {name: thing for name, thing in others.items() if not inspect.isclass(thing)}
        functions = [
            [f"`{name}{signature(thing)}`", first_sentence(thing)]
            for name, thing in others.items()
            if inspect.isfunction(thing)
        ]
        if functions:
            parts.append(table("Function | Purpose", functions))
        constants = [name for name, thing in others.items() if not inspect.isfunction(thing)]
        if constants:
            parts.append("Also: " + ", ".join(f"`{name}`" for name in constants) + ".")
    return "\n\n".join(parts) + "\n"


def znodes() -> str:
    """Return the page of the znodes and of what is done about invalid ones."""
    from minikafka.registry.kinds import KINDS

    parts = [
        "# Znodes",
        NOTE,
        (
            "The znodes whose data brokers, clients and tools read. A part in capital letters varies: topic T, partition P, group G, a number N. "
            "An invalid znode is passed over, as if it did not exist, with one warning until it changes; the last column is the end of that warning. "
            "A change of a value that cannot be read is refused."
        ),
        table(
            "Znode | Holds | Form | If it is invalid",
            ([f"`{kind.path}`", kind.holds, kind.source, kind.remedy] for kind in KINDS),
        ),
    ]
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli,
    "broker-properties.md": broker_properties,
    "metrics.md": broker_metrics,
    "client-properties.md": client_properties,
    "client-metrics.md": client_metrics,
    "spark-options.md": spark_options,
    "protocol-versions.md": protocol_versions,
    "error-codes.md": error_codes,
    "znodes.md": znodes,
    "python-api.md": python_api,
}


def is_stale(name: str) -> bool:
    """Return whether the page ``name`` is not what the code's tables say."""
    page = REFERENCE / name
    return not page.exists() or page.read_text(encoding="utf-8") != PAGES[name]()


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; return the exit status."""
    if arguments == ["--check"]:
        names = [name for name in PAGES if is_stale(name)]
        for name in names:
            print(
                f"docs/reference/{name} is stale: run python scripts/generate_reference.py", file=sys.stderr
            )
        return 1 if names else 0
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
