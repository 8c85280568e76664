"""``minikafka up`` with listeners of one's own in place of ``--host`` and ``--port``."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.cli.commands import error_line
from minikafka.cli.connection import connect
from minikafka.net.ports import free_port
from tests.support.secured_kafka import jaas

pytestmark = pytest.mark.process

DEADLINE_S = 30


def test_listeners_replace_port_and_odd_address_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = (
            f"listeners=IN://127.0.0.1:{free_port()},OUT://127.0.0.1:0",
            "advertised.listeners=IN://kafka.invalid:9092,OUT://127.0.0.1:0",
            "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
        )
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "minikafka.cli.main", "up", "--data-dir", str(tmp_path / "d")),
                *("--port", str(other.getsockname()[1])),
                *(word for setting in settings for word in ("--set", setting)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = process.stdout.readline()
            printed = process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
            process.communicate()
    assert ready.startswith("ready kafka.invalid:9092 "), printed
    assert printed.startswith(
        "minikafka: listener IN advertises kafka.invalid:9092, which this host cannot resolve"
    )
    assert (process.returncode, rest) == (0, "")


def test_unreachable_advertised_address_does_not_suggest_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = SimpleNamespace(bootstrap_servers=f"127.0.0.1:{free_port()}")
    monkeypatch.setattr(connect, "_local_cluster", lambda data_dir, *, writes: served)
    monkeypatch.setattr(connect, "REACH_TIMEOUT_MS", 50)
    with pytest.raises(MinikafkaError) as failure, connect.cluster_client(None, tmp_path):
        pass
    status, line = error_line(failure.value)
    assert status == 1
    assert line.count(served.bootstrap_servers) == 1
    assert line.endswith(
        f": cannot connect: Connection refused; the cluster of {tmp_path} advertises this address "
        "(advertised.listeners); use another of its addresses with --bootstrap"
    )


def test_cluster_whose_brokers_cannot_log_in_to_each_other_is_not_ready(tmp_path: Path) -> None:
    own = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    login = jaas("PLAIN", 'username="broker" password="tiger" user_broker="lion"')
    settings = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "sasl.enabled.mechanisms=PLAIN",
        f"{own}={login}",
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "minikafka.cli.main", "up", "--data-dir", str(tmp_path / "d")),
            *(word for setting in settings for word in ("--set", setting)),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("minikafka: broker 0: cannot log in to its own inter-broker listener: ")
    assert f"(of this broker: {own})" in lines[-1]
    assert "tiger" not in done.stderr
