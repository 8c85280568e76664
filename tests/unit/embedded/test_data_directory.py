from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.embedded import data_directory


def directory(tmp_path: Path, *numbers: int) -> Path:
    for number in numbers:
        (tmp_path / f"broker-{number}").mkdir()
        (tmp_path / f"broker-{number}" / "meta.properties").touch()
    return tmp_path


def test_a_new_directory_gets_one_broker_or_as_many_as_are_wanted(tmp_path: Path) -> None:
    assert [data_directory.broker_count(tmp_path, wanted) for wanted in (None, 1, 3)] == [1, 1, 3]
    assert data_directory.broker_count(None, None) == 1


def test_a_directory_is_served_by_all_that_it_has_or_by_more(tmp_path: Path) -> None:
    found = directory(tmp_path, 0, 2)
    (found / "broker-9").mkdir()  # made for a broker that never came up
    assert [data_directory.broker_count(found, wanted) for wanted in (None, 3, 5)] == [3, 3, 5]


def test_fewer_brokers_than_the_directory_has_are_refused(tmp_path: Path) -> None:
    found = directory(tmp_path, 0, 1, 2)
    with pytest.raises(ConfigError) as refused:
        data_directory.broker_count(found, 1, "--brokers")
    text = str(refused.value)
    assert text.startswith("--brokers=1: ")
    assert "has brokers 0, 1 and 2, and would be started without brokers 1 and 2: use 3; " in text
    assert text.endswith(f"remove {found / 'broker-1'} and {found / 'broker-2'}")


def test_logs_under_doubled_backslashes_are_found(tmp_path: Path) -> None:
    data_dir, doubled = tmp_path / r"a\b", tmp_path / r"a\\b"
    data_dir.mkdir()
    doubled.mkdir()
    directory(doubled, 0, 2)
    assert data_directory.existing_brokers(data_dir) == [0, 2]
    assert data_directory.broker_count(data_dir, None) == 3
    homes = [data_directory.broker_directory(data_dir, number) for number in range(3)]
    assert homes == [doubled / "broker-0", data_dir / "broker-1", doubled / "broker-2"]


def test_logs_at_the_right_path_precede_doubled_backslashes(tmp_path: Path) -> None:
    data_dir, doubled = tmp_path / r"a\b", tmp_path / r"a\\b"
    for place in (data_dir, doubled):
        place.mkdir()
        directory(place, 0)
    assert data_directory.existing_brokers(data_dir) == [0]
    assert data_directory.broker_directory(data_dir, 0) == data_dir / "broker-0"


@pytest.mark.parametrize("key", ["listeners", "log.dirs", "broker.id"])
def test_per_broker_property_is_refused_for_several_brokers(key: str) -> None:
    data_directory.check_shared_config([key, "num.partitions"], 1)
    with pytest.raises(ConfigError, match=f"--set='{key}': cannot be the same for 3 brokers"):
        data_directory.check_shared_config(["num.partitions", key], 3, "--set")


def test_each_broker_has_the_next_port_or_a_free_one() -> None:
    assert data_directory.broker_ports(9092, 3) == [9092, 9093, 9094]
    assert data_directory.broker_ports(0, 2) == [0, 0]
    with pytest.raises(ConfigError, match="3 brokers need ports up to 65536; the largest is 65535"):
        data_directory.broker_ports(65534, 3)


def test_config_of_an_unknown_broker_is_refused() -> None:
    data_directory.check_broker_configs({1: {}}, 2)
    with pytest.raises(
        ConfigError, match="broker_configs=2: no such broker: the cluster has brokers 0 and 1"
    ):
        data_directory.check_broker_configs({2: {}}, 2)
