from __future__ import annotations

import gc
import importlib
import os
import socket
import sys
import zipfile
import zipimport
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from minikafka.base.errors import ConfigError
from minikafka.embedded import owners
from pyspark_minikafka import workers
from pyspark_minikafka.checkpoint.spark_checkpoint import CheckpointLocation
from pyspark_minikafka.location import Target
from pyspark_minikafka.options.options import Mode, sink_options, source_options
from pyspark_minikafka.schema import sink_columns
from pyspark_minikafka.workers import acknowledge_at_once, directory, forget_importers, freeze_modules
from pyspark_minikafka.writing.batch_writer import BatchWriter
from pyspark_minikafka.writing.writer import Sink


@pytest.fixture(params=["pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.5.jar"])
def archive(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An archive named as one of Spark's, on the path, of whose two modules one is imported."""
    path = tmp_path / str(request.param)
    with zipfile.ZipFile(path, "w") as file:
        for name in ("seen", "unseen"):
            file.writestr(f"archived_for_test/{name}.py", f"NAME = {name!r}")
        file.writestr("archived_for_test/__init__.py", "")
    monkeypatch.syspath_prepend(str(path))
    importlib.import_module("archived_for_test.seen")
    yield path
    for name in [name for name in sys.modules if name.startswith("archived_for_test")]:
        del sys.modules[name]
    for place in [place for place in sys.path_importer_cache if place.startswith(str(tmp_path))]:
        del sys.path_importer_cache[place]


def importers(archive: Path) -> list[str]:
    return [
        place
        for place, importer in sys.path_importer_cache.items()
        if isinstance(importer, zipimport.zipimporter) and importer.archive == str(archive)
    ]


def test_sparks_archive_has_no_importers_that_would_read_it_again(archive: Path) -> None:
    assert importers(archive)
    forget_importers()
    assert not importers(archive)


def test_what_was_not_imported_yet_still_can_be(archive: Path) -> None:
    forget_importers()
    importlib.invalidate_caches()
    assert importlib.import_module("archived_for_test.unseen").NAME == "unseen"


def test_an_archive_of_the_users_is_left_alone(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = archive.with_name("users.zip")
    archive.rename(users)
    monkeypatch.syspath_prepend(str(users))
    importlib.invalidate_caches()
    with pytest.raises(ImportError):
        importlib.import_module("archived_for_test_elsewhere")
    assert importers(users)
    forget_importers()
    assert importers(users)


def test_a_collection_of_garbage_does_not_look_at_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_modules_frozen", 0)
    freeze_modules()
    assert all(found is not workers.__dict__ for found in gc.get_objects())


def test_what_a_later_task_makes_is_collected_unless_modules_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_modules_frozen", 0)
    freeze_modules()
    circle: list[object] = []
    circle.append(circle)
    freeze_modules()
    assert any(found is circle for found in gc.get_objects())


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of one over TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            yield ours, theirs


QUICKACK = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="this system has no such option")


@pytest.fixture
def no_callback_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_jvm", None)
    yield
    gc.callbacks.remove(workers._after_collection)


@QUICKACK
def test_after_a_collection_of_garbage_a_connection_acknowledges_at_once(
    connection: tuple[socket.socket, socket.socket], no_callback_left: None
) -> None:
    worker, jvm = connection
    acknowledge_at_once()
    jvm.sendall(b"a task")
    worker.recv(6)
    worker.sendall(b"done")
    assert not worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    gc.collect()
    assert worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


@QUICKACK
def test_user_connections_and_pipes_close_when_closed(
    connection: tuple[socket.socket, socket.socket], no_callback_left: None
) -> None:
    users, other_side = connection
    out, into = os.pipe()
    with os.fdopen(out, "rb", buffering=0) as reads:
        with os.fdopen(into, "wb"):
            acknowledge_at_once()
        users.close()
        os.set_blocking(reads.fileno(), False)
        assert reads.read() == b""
    other_side.settimeout(10)
    assert other_side.recv(1) == b""
    gc.collect()


def test_a_worker_in_a_sessions_directory_is_where_its_jvm_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tmp_path / "userFiles-1" / "3f2a"
    session.mkdir(parents=True)
    monkeypatch.setattr(owners, "find_owner", lambda: owners.Owner(7, "once"))
    monkeypatch.setattr(owners, "working_directory", {7: "/where/it/started"}.get)
    monkeypatch.chdir(session)
    assert directory({"SPARK_JOB_ARTIFACT_UUID": "3f2a"}) == "/where/it/started"
    assert directory({"SPARK_JOB_ARTIFACT_UUID": "another"}) == str(session)
    assert directory({}) == str(session)


def work_in_a_session(
    directory: Path, monkeypatch: pytest.MonkeyPatch, started_in: Callable[[int], str | None]
) -> None:
    (directory / "3f2a").mkdir()
    monkeypatch.chdir(directory / "3f2a")
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "3f2a")
    monkeypatch.setattr(owners, "working_directory", started_in)


@pytest.mark.parametrize("option", ["minikafka.resume.from", "checkpointLocation"])
def test_a_relative_checkpoint_lies_where_the_jvm_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    work_in_a_session(tmp_path, monkeypatch, lambda pid: str(tmp_path))
    (tmp_path / "checkpoints" / "query" / "offsets").mkdir(parents=True)
    given = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", option: "checkpoints/query"}
    found = source_options(given, Mode.STREAM).checkpoint
    assert found == CheckpointLocation(option, str(tmp_path / "checkpoints" / "query"))


def test_a_checkpoints_address_is_taken_as_it_is() -> None:
    for address in ("hdfs://host/c", "file:/c", "/c"):
        given = {"subscribe": "t", "checkpointLocation": address}
        assert source_options(given, Mode.STREAM).checkpoint == CheckpointLocation(
            "checkpointLocation", address
        )


def test_a_relative_directory_is_refused_where_nobody_knows_what_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_in_a_session(tmp_path, monkeypatch, lambda pid: None)
    with pytest.raises(ConfigError, match=r"minikafka-data.*must be absolute"):
        sink_options({"topic": "t"})
    absolute = sink_options({"topic": "t", "minikafka.data.dir": str(tmp_path)})
    assert absolute.location.data_dir == str(tmp_path)
    given = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "minikafka.resume.from": "checkpoint"}
    with pytest.raises(ConfigError, match=r"minikafka\.resume\.from.*must be absolute"):
        source_options(given, Mode.LOAD)


def test_a_worker_that_commits_a_write_has_none_of_them_either(archive: Path) -> None:
    columns = sink_columns(StructType().add("value", "binary"), "t")
    sink = Sink(sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"}), Target("h:1"), columns)
    BatchWriter(sink).commit([])
    assert not importers(archive)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set the environment of a Spark worker."""
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    monkeypatch.delenv("MINIKAFKA_TRACEBACK", raising=False)
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # so that the test leaves it as it was
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")
    monkeypatch.setattr(workers, "_hidden", False)
    return monkeypatch


def hides_traceback_of(problem: Exception) -> bool:
    with pytest.raises(type(problem)), workers.readable_errors():
        raise problem
    return "SPARK_HIDE_TRACEBACK" in os.environ


def test_a_worker_hides_the_traceback_of_a_refusal_and_of_nothing_else(
    environment: pytest.MonkeyPatch,
) -> None:
    assert hides_traceback_of(ConfigError("a", "b", "c"))
    assert not hides_traceback_of(ValueError("a defect"))
    assert hides_traceback_of(ConfigError("a", "b", "c"))
    with workers.readable_errors():
        assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_a_traceback_is_kept_for_who_asks_for_it_and_outside_of_workers(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("MINIKAFKA_TRACEBACK", "1")
    assert not hides_traceback_of(ConfigError("a", "b", "c"))
    environment.delenv("MINIKAFKA_TRACEBACK")
    environment.delenv("PYTHON_WORKER_FACTORY_SECRET")
    assert not hides_traceback_of(ConfigError("a", "b", "c"))
