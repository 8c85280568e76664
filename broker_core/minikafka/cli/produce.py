"""``minikafka produce``: sends lines from stdin as messages."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

from minikafka.base.errors import BrokerError, ConfigError, ErrorCode, MinikafkaError, NetworkError
from minikafka.base.ids import check_topic_name
from minikafka.base.text import counted
from minikafka.cli import connect
from minikafka.cli.options import (
    Bootstrap,
    CodecName,
    CommandConfig,
    DataDir,
    Format,
    OutputFormat,
    Topic,
    value_option,
)
from minikafka.cli.output import note, print_json, warnings_as_notes
from minikafka.cli.progress import Progress

if TYPE_CHECKING:
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.clients.produce.send_future import SendFuture

LINGER_MS = 5
BATCH_BYTES = 65_536
INTERRUPTED_TIMEOUT_MS = 3_000
"""The time limit after Ctrl-C for lines that were read before."""
RETRIES = "minikafka.clients.produce.retries"
"""The logger of retries."""
SHOWN_BYTES = 40
"""The bytes of an invalid line that the error shows."""
MESSAGE_ERRORS = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP}
)
"""The error codes that one message causes; other messages may succeed."""


def produce(
    topic: Topic,
    key_separator: Annotated[
        str | None, value_option("--key-separator", "S", "The text before S is the key.")
    ] = None,
    codec: CodecName = "none",
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    data_dir: DataDir = None,
    style: OutputFormat = Format.TABLE,
) -> None:
    """Send each line of stdin as a message; end when all in-sync replicas have all of them.

    A line that a broker refuses, for example because it is too large, does not stop the others.
    """
    if key_separator == "":
        raise ConfigError("--key-separator", key_separator, "must not be empty")

    from minikafka.clients.common_client_configs import ACKS_ALL
    from minikafka.clients.produce.config import BatchingConfig
    from minikafka.clients.produce.producer import BatchingProducer
    from minikafka.records.format.message_set import Codec

    check_topic_name(topic)
    config = BatchingConfig(
        acks=ACKS_ALL, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES, compression=Codec.parse(codec, "--codec")
    )
    # The command itself reports unacknowledged messages, once.
    logging.getLogger("minikafka.clients.produce").addHandler(logging.NullHandler())
    with (
        warnings_as_notes(RETRIES),
        connect.cluster_client(bootstrap, data_dir, command_config, writes=True) as cluster,
        # No progress bar among typed lines.
        Progress(f"producing to {topic}", hidden=sys.stdin.isatty(), lines=True) as progress,
    ):
        sent = send_all(
            BatchingProducer(cluster, config), topic, messages(sys.stdin.buffer, key_separator), progress
        )
    if sent.interrupted and sent.missing:
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
    if sent.interrupted:
        raise KeyboardInterrupt


class SendResults:
    """The results of the messages so far. ``record_result`` may be called by any thread."""

    def __init__(self) -> None:
        self.given = 0
        self.acknowledged = 0
        self.failure: MinikafkaError | None = None
        self.failed_line = 0
        """The first line that failed with ``failure``; from 1."""
        self.stop_cause: MinikafkaError | None = None
        """The error that ended the reading: the first one that is not in MESSAGE_ERRORS."""
        self.all_read = False
        self.interrupted = False
        self._lock = threading.Lock()

    def record_result(self, line: int, delivery: SendFuture) -> None:
        """Record that the message of ``line`` was acknowledged or has failed."""
        if delivery.error is not None:
            self.fail(line, delivery.error)
            return
        with self._lock:
            self.acknowledged += 1

    def fail(self, line: int, error: MinikafkaError) -> None:
        """Record that the message of ``line`` has failed. The first error is kept, with its first line."""
        with self._lock:
            if self.failure is None or (self.failure is error and line < self.failed_line):
                self.failure, self.failed_line = error, line
            if self.stop_cause is None and not _is_message_error(error):
                self.stop_cause = error

    @property
    def missing(self) -> int:
        """The number of messages that were read and not acknowledged."""
        return self.given - self.acknowledged

    @property
    def summary(self) -> str:
        """The number of unacknowledged messages, and the last line if not all were read."""
        unread = "" if self.all_read else f"; nothing was read after line {self.given}"
        return f"{self.missing} of {counted(self.given, 'message')} not acknowledged{unread}"

    def error(self) -> MinikafkaError:
        """Return the error of the command: the type of ``stop_cause``, or of the first failure, with the
        summary of all messages.
        """
        reason = self.stop_cause or self.failure
        assert reason is not None
        where = f", at line {self.failed_line}" if _is_message_error(reason) else ""
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
    producer: BatchingProducer, topic: str, pairs: Iterable[tuple[bytes | None, bytes]], progress: Progress
) -> SendResults:
    """Send ``pairs`` of key and value and close ``producer``; ``progress`` shows the acknowledged messages.

    A message with an error of its own (MESSAGE_ERRORS) fails alone, as in Kafka's console producer. After the
    first failure of another kind reading stops and unacknowledged messages are abandoned: they would fail
    too, each after its own two minutes. After an invalid line (ConfigError) the messages before it have their
    full time; after Ctrl-C a few seconds.
    """
    sent = SendResults()
    timeout_ms = None
    try:
        for line, (key, value) in enumerate(pairs, start=1):
            sent.given = line
            try:
                delivery = producer.send(topic, value, key=key)
            except (BrokerError, NetworkError) as error:
                # If messages were sent before, the error reports how many were acknowledged.
                if not _is_message_error(error) and (isinstance(error, BrokerError) or line == 1):
                    raise
                sent.fail(line, error)
                if sent.stop_cause is not None:
                    break
                continue
            delivery.on_done(partial(sent.record_result, line))
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


def messages(lines: Iterable[bytes], key_separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield key and value of each line, without its newline.

    Raise ConfigError at the first line without the separator.
    """
    separator = None if key_separator is None else key_separator.encode("utf-8")
    for number, line in enumerate(lines, start=1):
        text = line[:-1] if line.endswith(b"\n") else line
        if separator is None:
            yield None, text
            continue
        key, found, value = text.partition(separator)
        if not found:
            shown = text[:SHOWN_BYTES].decode("utf-8", "backslashreplace")
            raise ConfigError(
                "--key-separator",
                key_separator,
                f"not found in line {number}, which starts with {shown!r}; the lines before it were sent, "
                "this and later ones were not",
            )
        yield key, value
