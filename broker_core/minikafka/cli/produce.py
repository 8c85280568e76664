"""``minikafka produce``: sends lines of stdin or of files as messages."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minikafka.base.clock import SystemClock
from minikafka.base.config.types import digits, integer, one_of
from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import check_topic_name
from minikafka.base.text import counted
from minikafka.base.times import parse_moment
from minikafka.cli.connection import connect
from minikafka.cli.options import Bootstrap, CodecName, CommandConfig, DataDir, Format, OutputFormat, Topic
from minikafka.cli.records.input import (
    STDIN,
    GivenMessage,
    InputForm,
    Place,
    check_files,
    given_messages,
    parse_header,
)
from minikafka.cli.terminal.output import note, print_object, warnings_as_notes
from minikafka.cli.terminal.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.clients.produce.send_future import SendFuture

LINGER_MS = 5
BATCH_BYTES = 65_536
INTERRUPTED_TIMEOUT_MS = 3_000
"""The time limit after Ctrl-C for lines that were read before."""
RETRIES = "minikafka.clients.produce.retries"
"""The logger of retries."""
MESSAGE_ERRORS = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP}
)
"""The error codes that one message causes; other messages may succeed."""
CHOSEN = -1
"""The value of --partition for a partition that the key chooses, as in kcat."""
_PARTITION = integer(CHOSEN, 2**31 - 1)
_FORM = one_of("lines", "json")


def parse_partition(text: str) -> int:
    """Parse ``--partition``. Raise ConfigError."""
    number: int = _PARTITION.parse("--partition", text)
    return number


def parse_input(text: str) -> str:
    """Parse ``--input``. Raise ConfigError."""
    form: str = _FORM.parse("--input", text)
    return form


def parse_timestamp(text: str, now_ms: int | None = None) -> int:
    """Parse ``--timestamp``: ms since the epoch, or a time. Raise ConfigError. now_ms: None for that of the
    system.
    """
    number = digits(text.strip())
    if number is not None:
        return number
    return parse_moment("--timestamp", text, SystemClock().now_ms() if now_ms is None else now_ms)


KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="S", help="The text before S is the key.", show_default=False
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="K", help="The key of every message.", show_default=False)
]
MessageHeaders = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header of every message; may be repeated.",
        show_default=False,
    ),
]
ToPartition = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        metavar="P",
        help="The partition of every message; -1 to choose by the key. [by the key, or as in the JSON]",
        show_default=False,
        parser=parse_partition,
    ),
]
Timestamp = Annotated[
    int | None,
    typer.Option(
        "--timestamp",
        metavar="T",
        help="The time of every message: ISO 8601, ms since 1970, or how long ago (1h). "
        "[now, or as in the JSON]",
        show_default=False,
        parser=parse_timestamp,
    ),
]
Tombstones = Annotated[
    bool, typer.Option("--tombstone", "-Z", help="Send an empty value as null, which deletes the key.")
]
Input = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="lines|json",
        help="The form of a line: text, or an object as `consume --format json` prints it.",
        parser=parse_input,
    ),
]
Whole = Annotated[bool, typer.Option("--whole", help="Each file is one message, not each of its lines.")]
Files = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="Read these instead of stdin.", show_default=False)
]
MoreFiles = Annotated[
    list[str] | None,
    typer.Option("--lines-from", "-l", metavar="FILE", help="The same as FILE.", show_default=False),
]


def produce(
    topic: Topic,
    files: Files = None,
    key_separator: KeySeparator = None,
    key: Key = None,
    headers: MessageHeaders = None,
    partition: ToPartition = None,
    timestamp_ms: Timestamp = None,
    tombstones: Tombstones = False,
    form: Input = "lines",
    whole: Whole = False,
    more_files: MoreFiles = None,
    codec: CodecName = "none",
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Send each line of stdin, or of files, as a message; end when all in-sync replicas have all of them.

    A line that a broker refuses, for example because it is too large, does not stop the others.
    """
    if key_separator == "":
        raise ConfigError("--key-separator", key_separator, "must not be empty")
    for option, value in (("--key", key), ("--input", "json" if form == "json" else None)):
        if key_separator is not None and value is not None:
            raise ConfigError("--key-separator", key_separator, f"conflicts with {option} {value}")
    if whole and (key_separator is not None or form == "json"):
        raise ConfigError("--whole", "yes", "conflicts with --key-separator and --input json")
    check_topic_name(topic)
    names = [*(files or ()), *(more_files or ())]
    check_files(names)
    given = InputForm(
        json=form == "json",
        whole=whole,
        key_separator=key_separator,
        key=None if key is None else key.encode("utf-8", "surrogateescape"),
        headers=tuple(parse_header(text) for text in headers or ()),
        partition=None if partition == CHOSEN else partition,
        chooses_partition=partition == CHOSEN,
        timestamp_ms=timestamp_ms,
        empty_is_null=tombstones,
    )
    reads_stdin = not names or STDIN in names
    at = (bootstrap, data_dir, command_config)
    _send(topic, given_messages(names, given), codec, at, style, reads_stdin)


def _send(
    topic: str,
    messages: Iterable[GivenMessage],
    codec: str,
    at: tuple[str | None, Path | None, str | None],
    style: Format,
    reads_stdin: bool,
) -> None:
    """Send ``messages`` and report them. Raise MinikafkaError if one was not acknowledged."""
    from minikafka.clients.common_client_configs import ACKS_ALL
    from minikafka.clients.produce.config import BatchingConfig
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.records.format.message_set import Codec

    config = BatchingConfig(
        acks=ACKS_ALL, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES, compression=Codec.parse(codec, "--codec")
    )
    # The command itself reports unacknowledged messages, once.
    logging.getLogger("minikafka.clients.produce").addHandler(logging.NullHandler())
    with (
        warnings_as_notes(RETRIES),
        connect.cluster_client(*at, writes=True) as cluster,
        # No progress bar among typed lines.
        Progress(f"producing to {topic}", hidden=reads_stdin and sys.stdin.isatty(), lines=True) as progress,
    ):
        sent = send_all(BatchingProducer(cluster, config), topic, messages, progress)
    if sent.interrupted and sent.missing:
        note(f"minikafka: {sent.summary}")
        raise KeyboardInterrupt
    if sent.stop_cause is not None and sent.failure not in {None, sent.stop_cause}:
        note(f"minikafka: {sent.summary}; {sent.failed_place}: {sent.failure}")
    if sent.failure is not None or sent.stop_cause is not None:
        raise sent.error()
    if style is not Format.TABLE:
        print_object({"topic": topic, "messages": sent.given}, style)
    else:
        note(f"{counted(sent.given, 'message')} to {topic}")
    if sent.interrupted:
        raise KeyboardInterrupt


class SendResults:
    """The results of the messages so far. ``record_result`` may be called by any thread."""

    def __init__(self) -> None:
        self.given = 0
        self.acknowledged = 0
        self.failure: MinikafkaError | None = None
        self.failed_place: Place | None = None
        """The first line that failed with ``failure``."""
        self.last_place: Place | None = None
        """The line that was read last."""
        self.stop_cause: MinikafkaError | None = None
        """The error that ended the reading: the first one that is not in MESSAGE_ERRORS."""
        self.all_read = False
        self.interrupted = False
        self._lock = threading.Lock()

    def record_result(self, place: Place, delivery: SendFuture) -> None:
        """Record that the message of ``place`` was acknowledged or has failed."""
        if delivery.error is not None:
            self.fail(place, delivery.error)
            return
        with self._lock:
            self.acknowledged += 1

    def fail(self, place: Place, error: MinikafkaError) -> None:
        """Record that the message of ``place`` has failed. The first error is kept, with its first line."""
        with self._lock:
            before = self.failed_place
            if before is None or (self.failure is error and place.number < before.number):
                self.failure, self.failed_place = error, place
            if self.stop_cause is None and not _is_message_error(error):
                self.stop_cause = error

    @property
    def missing(self) -> int:
        """The number of messages that were read and not acknowledged."""
        return self.given - self.acknowledged

    @property
    def summary(self) -> str:
        """The number of unacknowledged messages, and the last line if not all were read."""
        unread = "" if self.all_read else f"; nothing was read after {self.last_place}"
        return f"{self.missing} of {counted(self.given, 'message')} not acknowledged{unread}"

    def error(self) -> MinikafkaError:
        """Return the error of the command: the type of ``stop_cause``, or of the first failure, with the
        summary of all messages.
        """
        reason = self.stop_cause or self.failure
        assert reason is not None
        where = f", at {self.failed_place}" if _is_message_error(reason) else ""
        text = f"{self.summary}; first error{where}: "
        if isinstance(reason, BrokerError):
            error: MinikafkaError = BrokerError(reason.code, text + (reason.detail or reason.code.name))
        elif isinstance(reason, NetworkError):
            error = NetworkError(text + reason.problem, advice=reason.advice)
        else:
            return reason
        error.__cause__ = reason.__cause__
        return error


def _is_message_error(error: MinikafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code in MESSAGE_ERRORS


def send_all(
    producer: BatchingProducer, topic: str, messages: Iterable[GivenMessage], progress: Progress
) -> SendResults:
    """Send ``messages`` and close ``producer``; ``progress`` shows the acknowledged messages.

    A message with an error of its own (MESSAGE_ERRORS) fails alone, as in Kafka's console producer. After the
    first failure of another kind reading stops and unacknowledged messages are abandoned: they would fail
    too, each after its own two minutes. After an invalid line (ConfigError) the messages before it have their
    full time; after Ctrl-C a few seconds.
    """
    sent = SendResults()
    timeout_ms = None
    try:
        for place, key, value, headers, partition, timestamp_ms in messages:
            sent.given, sent.last_place = place.number, place
            try:
                delivery = producer.send(topic, value, key, partition, timestamp_ms, headers)
            except (BrokerError, NetworkError) as error:
                # If messages were sent before, the error reports how many were acknowledged.
                if not _is_message_error(error) and (isinstance(error, BrokerError) or place.number == 1):
                    raise
                sent.fail(place, error)
                if sent.stop_cause is not None:
                    break
                continue
            delivery.on_done(partial(sent.record_result, place))
            progress.advance(sent.acknowledged - progress.done)
            if sent.stop_cause is not None:
                timeout_ms = 0
                break
        else:
            sent.all_read = True
            producer.flush()
    except ConfigError as error:
        sent.stop_cause = sent.stop_cause or error
    except KeyboardInterrupt:
        sent.interrupted = True
        timeout_ms = INTERRUPTED_TIMEOUT_MS
    finally:
        producer.close(timeout_ms)
    return sent
