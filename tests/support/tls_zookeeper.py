"""A ZooKeeper that wants TLS, and certificates of its clients: the embedded one has neither."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import trustme

from minikafka.embedded.java import find_java, jar_directories
from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.net.ports import can_connect, free_port
from tests.support.tls import key_and_chain

START_TIMEOUT_S = 60


@contextlib.contextmanager
def tls_zookeeper(ca: trustme.CA, directory: Path) -> Iterator[str]:
    """Run it over ``directory``; yield its address, an IP address as in its certificate."""
    (directory / "key.pem").write_text(key_and_chain(ca.issue_cert("127.0.0.1")))
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    port = free_port()
    settings = {
        "dataDir": "./data",
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "admin.enableServer": "false",
        "tickTime": 500,
        "ssl.keyStore.location": directory / "key.pem",
        "ssl.trustStore.location": directory / "ca.pem",
    }
    (directory / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    jars = os.pathsep.join(f"{path}/*" for path in jar_directories(os.environ))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    process = ChildProcess(
        [find_java().path, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars, main, "zoo.cfg"],
        name="zookeeper",
        log=str(directory / "log"),
        directory=str(directory),
    )
    try:
        if not wait_until(lambda: can_connect("127.0.0.1", port), START_TIMEOUT_S):
            raise process.failure("does not accept connections")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
