"""``minikafka produce``: lines from stdin become messages."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.text import counted
from minikafka.cli.options import Bootstrap, CodecName, DataDir, Format, OutputFormat, Topic

if TYPE_CHECKING:
    from minikafka.cli.progress import Progress
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.clients.produce.send_future import SendFuture

LINGER_MS = 5
BATCH_BYTES = 65_536
INTERRUPTED_TIMEOUT_MS = 3_000
"""How long what was typed before Ctrl-C may still take."""
RETRIES = "minikafka.clients.produce.retries"
"""The logger of what is tried again."""
SHOWN_BYTES = 40
"""Of a line that cannot be sent."""
MESSAGE_ERRORS = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP}
)
"""Refusals that a message brings upon itself."""


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
    """Send each line of stdin as a message; return when all replicas in sync have all of them.

    A line that no broker takes, as it is too large, does not keep the others back.
    """
    if key_separator == "":
        raise ConfigError("--key-separator", key_separator, "must not be empty")

    from minikafka.base.ids import check_topic_name
    from minikafka.cli.connect import cluster_client
    from minikafka.cli.output import note, print_json, warnings_as_notes
    from minikafka.cli.progress import Progress
    from minikafka.clients.produce.config import ACKS_ALL, BatchingConfig
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.records.format.message_set import Codec

    check_topic_name(topic)
    config = BatchingConfig(
        acks=ACKS_ALL, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES, compression=Codec.parse(codec)
    )
    # What was not acknowledged is told here, once.
    logging.getLogger("minikafka.clients.produce").addHandler(logging.NullHandler())
    with (
        warnings_as_notes(RETRIES),
        cluster_client(bootstrap, data_dir, writes=True) as cluster,
        # A bar would be in the way of lines that somebody types.
        Progress(f"producing to {topic}", hidden=sys.stdin.isatty(), lines=True) as progress,
    ):
        sent = send_all(
            BatchingProducer(cluster, config), topic, messages(sys.stdin.buffer, key_separator), progress
        )
    if sent.interrupted:
        if sent.missing:
            note(f"minikafka: {sent.summary}")
        raise KeyboardInterrupt
    if sent.stop_cause is not None and sent.failure not in {None, sent.stop_cause}:
        note(f"minikafka: {sent.summary}; line {sent.failed_line}: {sent.failure}")
    if sent.failure is not None or sent.stop_cause is not None:
        raise sent.error()
    if style is Format.JSON:
        print_json({"topic": topic, "messages": sent.given})
    else:
        note(f"{counted(sent.given, 'message')} to {topic}")


class SendResults:
    """What became of the messages so far. ``notice`` may be called by any thread."""

    def __init__(self) -> None:
        self.given = 0
        self.acknowledged = 0
        self.failure: MinikafkaError | None = None
        self.failed_line = 0
        """Line of the first message of those that ``failure`` is about; from 1."""
        self.stop_cause: MinikafkaError | None = None
        """Why no more was read: the first error that no message has brought upon itself."""
        self.all_read = False
        self.interrupted = False
        self._lock = threading.Lock()

    def notice(self, line: int, delivery: SendFuture) -> None:
        """The message of ``line`` was acknowledged, or never will be."""
        if delivery.error is not None:
            self.fail(line, delivery.error)
            return
        with self._lock:
            self.acknowledged += 1

    def fail(self, line: int, error: MinikafkaError) -> None:
        """The message of ``line`` failed. The first error is kept, with the first line that it is about."""
        with self._lock:
            if self.failure is None or (self.failure is error and line < self.failed_line):
                self.failure, self.failed_line = error, line
            if self.stop_cause is None and not _is_message_error(error):
                self.stop_cause = error

    @property
    def missing(self) -> int:
        """How many messages that were read have not been acknowledged."""
        return self.given - self.acknowledged

    @property
    def summary(self) -> str:
        """How many messages are not there, and whether all lines were read."""
        unread = "" if self.all_read else f"; nothing was read after line {self.given}"
        return f"{self.missing} of {counted(self.given, 'message')} not acknowledged{unread}"

    def error(self) -> MinikafkaError:
        """What ``produce`` fails with: of the kind of what stopped it, or of the first failure, and with what
        became of all messages.
        """
        reason = self.stop_cause or self.failure
        assert reason is not None
        where = f", at line {self.failed_line}" if _is_message_error(reason) else ""
        text = f"{self.summary}; the first reason{where}: "
        if isinstance(reason, BrokerError):
            told: MinikafkaError = BrokerError(reason.code, text + (reason.detail or reason.code.name))
        elif isinstance(reason, NetworkError):
            told = NetworkError(text + str(reason))
        else:
            return reason
        told.__cause__ = reason.__cause__
        return told


def _is_message_error(error: MinikafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code in MESSAGE_ERRORS


def send_all(
    producer: BatchingProducer, topic: str, pairs: Iterable[tuple[bytes | None, bytes]], progress: Progress
) -> SendResults:
    """Send ``pairs`` of key and value and close ``producer``; ``progress`` shows what was acknowledged.

    A message that is itself to blame (OF_A_MESSAGE) fails alone, as in Kafka's console producer. After the
    first failure of another kind no more is read and what is still on its way is given up, as it would fail
    too, each after its own two minutes. Before a line that cannot be read (ConfigError) all gets its time.
    Ctrl-C leaves it a few seconds.
    """
    sent = SendResults()
    patience_ms = None
    try:
        for line, (key, value) in enumerate(pairs, start=1):
            sent.given = line
            try:
                delivery = producer.send(topic, value, key=key)
            except (BrokerError, NetworkError) as error:
                # Of what was sent before it is told how much has arrived.
                if not _is_message_error(error) and (isinstance(error, BrokerError) or line == 1):
                    raise
                sent.fail(line, error)
                if sent.stop_cause is not None:
                    break
                continue
            delivery.on_done(partial(sent.notice, line))
            progress.advance(sent.acknowledged - progress.done)
            if sent.stop_cause is not None:
                patience_ms = 0
                break
        else:
            sent.all_read = True
            producer.flush()
    except ConfigError as error:
        sent.stop_cause = sent.stop_cause or error
    except KeyboardInterrupt:
        sent.interrupted = True
        patience_ms = INTERRUPTED_TIMEOUT_MS
    finally:
        producer.close(patience_ms)
    return sent


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
            begin = text[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
            raise ConfigError(
                "--key-separator",
                key_separator,
                f"is not in line {number}, which begins with {begin!r}: it was not sent, nor what comes "
                "after it; what came before was",
            )
        yield key, value
