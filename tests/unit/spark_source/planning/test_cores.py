"""``planning/cores``: what the command line of a driver says about cores."""

from __future__ import annotations

import pytest

from pyspark_minikafka.planning.cores import cores_of, find_cores, host_cores

HOST = 12


@pytest.mark.parametrize(
    ("words", "cores"),
    [
        ("--conf spark.master=local[3]", 3),
        ("--master local[4,2]", 4),
        ("--master local", 1),
        ("--master local[*]", HOST),
        ("--conf spark.master=local[*] --conf spark.task.cpus=2", HOST // 2),
        ("-Dspark.master=local[5]", 5),
        ("--master local-cluster[2,3,1024]", 6),
        ("--master local[7] --conf spark.master=local[3]", 3),
        ("--master yarn --num-executors 5 --executor-cores 4", 20),
        ("--master yarn --conf spark.executor.instances=5", 5),
        ("--master spark://h:7077 --total-executor-cores 9", 9),
        ("--master spark://h:7077 --conf spark.cores.max=9 --conf spark.executor.cores=2", 9),
        ("--master yarn", HOST),
        ("--master yarn --num-executors many", HOST),
        ("--master local[2] --conf spark.task.cpus=9", 1),
        ("app.py --master", HOST),
        ("", HOST),
    ],
)
def test_cores_by_the_command_line(words: str, cores: int) -> None:
    assert cores_of(["java", "-Xmx1g", *words.split()], HOST) == cores


def test_a_value_with_line_breaks_is_one_word() -> None:
    assert cores_of(["java", "--conf", "spark.x=a\nb", "--conf", "spark.master=local[3]"], HOST) == 3


def test_a_process_without_a_jvm_has_the_cores_of_its_host() -> None:
    assert find_cores() == host_cores() >= 1
