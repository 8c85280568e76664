"""meta.properties: whose data it is."""

from __future__ import annotations

import errno

import pytest

from minikafka.base.errors import StorageError
from minikafka.base.files import read_file
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.checkpoints.meta_properties import (
    MetaProperties,
    agreed_meta,
    claim_directories,
    known_cluster,
    read_meta,
    write_meta,
)


def disk(**texts: str) -> MemoryFiles:
    files = MemoryFiles()
    for name in ("one", "two"):
        files.make_dirs(name)
        if name in texts:
            files.open(f"{name}/meta.properties", create=True).write_at(0, texts[name].encode())
    return files


def test_the_file_of_a_real_broker_is_read() -> None:
    files = disk(one="#\n#Sat Nov 21 06:10:02 UTC 2026\nbroker.id=3\nversion=0\n")
    assert read_meta(files, "one") == MetaProperties(3)
    assert read_meta(files, "two") is None


@pytest.mark.parametrize(
    "text",
    [
        "version=1\nbroker.id=3\n",
        "version=0\n",
        "version=0\nbroker.id=x\n",
        "version=0\nbroker.id=\\u00b2\n",
        "",
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(StorageError, match=r"one/meta\.properties: "):
        read_meta(disk(one=text), "one")


def test_a_new_directory_gets_the_brokers_id() -> None:
    files = disk(one="version=0\nbroker.id=3\n")
    files.sync_dir("")
    assert claim_directories(files, ["one", "two"], 3) == MetaProperties(3)
    files.power_cut()
    assert read_meta(files, "two") == MetaProperties(3)


def test_the_directories_decide_when_the_broker_has_no_id() -> None:
    files = disk(two="version=0\nbroker.id=7\n")
    assert claim_directories(files, ["one", "two"], None) == MetaProperties(7)
    assert agreed_meta(files, ["one"]) == MetaProperties(7)
    assert claim_directories(disk(), ["one", "two"], None) is None


def test_directories_of_different_brokers_are_refused() -> None:
    files = disk()
    write_meta(files, "one", MetaProperties(1))
    write_meta(files, "two", MetaProperties(2))
    with pytest.raises(StorageError, match="one of broker 1, two of broker 2"):
        agreed_meta(files, ["one", "two"])


def test_data_of_another_broker_is_refused() -> None:
    with pytest.raises(StorageError, match="belongs to broker 1, not to broker 2"):
        claim_directories(disk(one="version=0\nbroker.id=1\n"), ["one"], 2)


def test_cluster_is_written_beside_what_a_file_says_already() -> None:
    files = disk(one="#\nversion=0\nbroker.id=3\ndirectory.id=abc\n")
    assert claim_directories(files, ["one", "two"], 3, "a-cluster") == MetaProperties(3, "a-cluster")
    assert [read_meta(files, name) for name in ("one", "two")] == [MetaProperties(3, "a-cluster")] * 2
    text = read_file(files, "one/meta.properties")
    assert text == b"#\nversion=0\nbroker.id=3\ndirectory.id=abc\ncluster.id=a-cluster\n"
    assert known_cluster(files, ["one", "two", "three"]) == "a-cluster"


def test_directories_of_different_clusters_are_refused() -> None:
    files = disk()
    write_meta(files, "one", MetaProperties(1, "a"))
    write_meta(files, "two", MetaProperties(1, "b"))
    with pytest.raises(StorageError, match=r"one of cluster a, two of cluster b; configure those of one"):
        known_cluster(files, ["one", "two"])


def test_full_disk_does_not_keep_a_broker_from_its_directories() -> None:
    files = disk(one="version=0\nbroker.id=3\n")
    files.fail_next_open(errno.ENOSPC, match="meta.properties.tmp")
    assert claim_directories(files, ["one"], 3, "a-cluster") == MetaProperties(3, "a-cluster")
    assert read_meta(files, "one") == MetaProperties(3)
