"""``minikafka log``: look into the files of a log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from minikafka.records.message_set import StoredRecord

app = typer.Typer(help="Look into the files of a log.", no_args_is_help=True)


@app.callback()
def log() -> None:
    """Look into the files of a log."""


@app.command()
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", exists=True, dir_okay=False, readable=True, show_default=False),
    ],
    text: Annotated[bool, typer.Option("--text", help="Keys and values as text, not as base64.")] = False,
) -> int:
    """Print one JSON record a line; say on stderr where a file is damaged, and end with 1 then."""
    from minikafka.base.files import RealFiles
    from minikafka.cli.output import note, print_json
    from minikafka.cli.progress import Progress
    from minikafka.log.dump import Damage, dump_records

    damaged = False
    with Progress("dumping", hidden=sys.stdout.isatty()) as progress:
        for path in files:
            for one in dump_records(RealFiles(), str(path)):
                if isinstance(one, Damage):
                    damaged = True
                    note(f"minikafka: {one}")
                else:
                    print_json(as_row(one, text))
                    progress.advance()
    return 1 if damaged else 0


def as_row(record: StoredRecord, text: bool) -> dict[str, object]:
    """What stands in a line: bytes are base64, or text when asked for. Control records say that they are."""
    from minikafka.cli.output import base64_or_none, text_or_none

    show = text_or_none if text else base64_or_none
    row: dict[str, object] = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "key": show(record.key),
        "value": show(record.value),
        "headers": [[name, show(value)] for name, value in record.headers],
        "codec": record.codec.name.lower(),
        "magic": record.magic,
    }
    if record.control:
        row["control"] = True
    return row
