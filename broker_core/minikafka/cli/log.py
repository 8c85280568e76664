"""``minikafka log``: prints and checks the files of a log."""

from __future__ import annotations

import binascii
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.errors import StorageError
from minikafka.cli.cluster import log_dirs
from minikafka.cli.options import Format, OutputFormat
from minikafka.cli.terminal.output import json_bytes, note, print_json, print_rows
from minikafka.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from minikafka.log.tools.verify import Finding, PartitionReport
    from minikafka.records.format.message_set import StoredRecord

app = typer.Typer(help="Print and check the files of logs, and show their sizes.", no_args_is_help=True)
app.command("dirs", short_help="Show the data directories of brokers and their sizes.")(log_dirs)

MEGABYTE = 1_000_000
COLUMNS = ("topic", "partition", "start_offset", "end_offset", "segments", "records", "bytes", "problems")


@app.command(short_help="Print the records of files as JSON, one a line.")
def dump(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True, show_default=False),
    ],
    text: Annotated[
        bool, typer.Option("--text", help="Print keys and values as text, not as base64.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check everything, and print one line per file, not its records.")
    ] = False,
) -> int:
    """Print one JSON record a line: of segments, indexes, snapshots and checkpoints, recognized by name.

    Damage is reported on stderr with its position, and the status is 1.
    """
    damaged = False
    for path in files:
        try:
            damaged |= _verified(str(path)) if verify else _dumped(str(path), text)
        except StorageError as error:
            note(f"minikafka: {error}")
            damaged = True
    return 1 if damaged else 0


def _dumped(path: str, text: bool) -> bool:
    """Print the content of a file. Return True if it is damaged."""
    from minikafka.base.files import RealFiles
    from minikafka.log.tools.dump import Damage, dump_records
    from minikafka.log.tools.dump_files import FileKind, file_rows, kind_of

    files = RealFiles()
    rows = dump_records(files, path) if kind_of(path)[0] is FileKind.SEGMENT else file_rows(files, path)
    damaged = False
    with Progress("dumping", hidden=sys.stdout.isatty()) as progress:
        for row in rows:
            if isinstance(row, Damage):
                damaged = True
                note(f"minikafka: {row}")
            elif isinstance(row, Mapping):
                print_json(row)
            else:
                sys.stdout.buffer.write(line_of(row, _text if text else _base64))
                progress.advance()
    return damaged


def _base64(data: bytes | None) -> str:
    return "null" if data is None else f'"{binascii.b2a_base64(data, newline=False).decode("ascii")}"'


def _text(data: bytes | None) -> str:
    return "null" if data is None else _quoted(data.decode("utf-8", "backslashreplace"))


_quoted = json.JSONEncoder(ensure_ascii=False).encode


def line_of(record: StoredRecord, show: Callable[[bytes | None], str]) -> bytes:
    """Return the line of JSON for a record; ``show`` converts bytes to JSON.

    Formatted manually: a general encoder takes as long as all the rest.
    """
    timestamp = record.timestamp_ms if record.timestamp_ms >= 0 else "null"
    headers = ",".join(f"[{_quoted(name)},{show(value)}]" for name, value in record.headers)
    control = ',"control":true' if record.control else ""
    line = (
        f'{{"offset":{record.offset},"timestamp":{timestamp},"key":{show(record.key)},'
        f'"value":{show(record.value)},"headers":[{headers}],"codec":"{record.codec.name.lower()}",'
        f'"magic":{record.magic}{control}}}'
    )
    return json_bytes(line) + b"\n"


def _verified(path: str) -> bool:
    """Check a file and print its summary. Return True if there is a problem."""
    from minikafka.base.files import RealFiles
    from minikafka.log.tools.verify import verify_file

    with _checking(os.path.getsize(path)) as more:
        report = verify_file(RealFiles(), path, more)
    print_json(report.summary)
    return _print_findings(report.findings)


def _print_findings(findings: Iterable[Finding]) -> bool:
    """Print the findings on stderr. Return True if there is a problem among them."""
    problems = False
    for finding in findings:
        problems |= not finding.note
        note(f"minikafka: {'note: ' if finding.note else ''}{finding.text}")
    return problems


@contextlib.contextmanager
def _checking(total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a check, in MB. Yields the function to call with the bytes of each piece."""
    done = 0
    with Progress("MB checked", total_bytes // MEGABYTE, lines=True) as progress:

        def more(count: int) -> None:
            nonlocal done
            done += count
            if done // MEGABYTE > progress.done:
                progress.advance(done // MEGABYTE - progress.done)

        yield more


@app.command()
def verify(
    data_dir: Annotated[Path, typer.Argument(metavar="DATA_DIR", show_default=False)],
    style: OutputFormat = Format.TABLE,
) -> int:
    """Check all logs of a data directory, of minikafka or of Kafka. Prints one line per partition; changes
    nothing.

    Problems and stale files are reported on stderr. Status 1 if there is a problem.
    """
    from minikafka.base.files import RealFiles
    from minikafka.embedded.lock import is_in_use
    from minikafka.log.tools.verify import (
        data_directories,
        list_directory,
        verify_checkpoints,
        verify_partitions,
    )

    files, rows, problems = RealFiles(), [], False
    found = [
        (list_directory(files, path), is_in_use(path)) for path in data_directories(files, str(data_dir))
    ]
    with _checking(sum(directory.total_bytes for directory, _ in found)) as more:
        for directory, in_use in found:
            if in_use:
                note(f"minikafka: note: {directory.path} is in use: a broker may be writing to it")
            problems |= _print_findings(directory.findings)
            reports = []
            for report in verify_partitions(files, directory, in_use=in_use, on_bytes=more):
                problems |= _print_findings(report.findings)
                reports.append(report)
                rows.append(_row(report))
            problems |= _print_findings(verify_checkpoints(directory, reports, in_use=in_use))
    print_rows(rows, COLUMNS, style)
    return 1 if problems else 0


def _row(report: PartitionReport) -> dict[str, object]:
    return {
        "topic": report.partition.topic,
        "partition": report.partition.partition,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "segments": report.segments,
        "records": report.records,
        "bytes": report.size_bytes,
        "problems": sum(not finding.note for finding in report.findings),
    }
