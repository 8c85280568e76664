"""``minikafka produce``: lines from stdin become messages."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Optional

import typer

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.cli.options import Bootstrap, CodecName, DataDir, Format, OutputFormat, Topic

LINGER_MS = 5
BATCH_BYTES = 65_536


def produce(
    topic: Topic,
    key_separator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--key-separator", metavar="S", help="What comes before it is the key.", show_default=False
        ),
    ] = None,
    codec: CodecName = "none",
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Send each line of stdin as a message; return when all replicas in sync have all of them."""
    if key_separator == "":
        raise ConfigError("--key-separator", key_separator, "must not be empty")

    from minikafka.base.ids import check_topic_name
    from minikafka.cli.connect import connected
    from minikafka.cli.output import counted, note, print_json
    from minikafka.cli.progress import Progress
    from minikafka.clients.producer.config import ACKS_ALL, ProducerConfig
    from minikafka.clients.producer.delivery import Delivery
    from minikafka.clients.producer.producer import Producer
    from minikafka.records.message_set import Codec

    check_topic_name(topic)
    config = ProducerConfig(
        acks=ACKS_ALL, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES, compression=Codec.parse(codec)
    )
    failures: list[MinikafkaError] = []

    def notice(delivery: Delivery) -> None:
        if delivery.error is not None:
            failures.append(delivery.error)

    with (
        connected(bootstrap, data_dir, writes=True) as cluster,
        # A bar would be in the way of lines that somebody types.
        Progress(f"producing to {topic}", hidden=sys.stdin.isatty(), lines=True) as progress,
    ):
        producer = Producer(cluster, config)
        try:
            for key, value in messages(sys.stdin.buffer, key_separator):
                producer.send(topic, value, key=key).on_done(notice)
                progress.advance()
                if failures:
                    break
        finally:
            producer.close()
    if failures:
        note(
            f"minikafka: not acknowledged: {len(failures)} of {counted(progress.done, 'message')}; "
            "the first reason:"
        )
        raise failures[0]
    if style is Format.JSON:
        print_json({"topic": topic, "messages": progress.done})
    else:
        note(f"{counted(progress.done, 'message')} to {topic}")


def messages(lines: Iterable[bytes], key_separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """Key and value of each line, which loses its newline and nothing else.

    Raises ConfigError at the first line that has no separator; the lines before it were good.
    """
    separator = None if key_separator is None else key_separator.encode("utf-8")
    for number, line in enumerate(lines, start=1):
        text = line[:-1] if line.endswith(b"\n") else line
        if separator is None:
            yield None, text
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise ConfigError(
                "--key-separator", key_separator, f"is not in line {number}; what came before was sent"
            )
        yield key, value
