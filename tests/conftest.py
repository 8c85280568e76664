"""What every test of the project shares.

Hypothesis profiles: ``default`` for each run; ``--hypothesis-profile=thorough`` for a long search. No profile
has a deadline, because a busy machine is no finding; both print what replays a failure.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", max_examples=25, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2_000)
settings.load_profile("default")

WITH_PROCESSES = ("faults", "interop", "spark", "unit/embedded")
"""Directories whose tests are all marked ``process``; elsewhere a test that starts one says so itself."""

SPARK_OF_THEIR_OWN = (
    "tests/spark/test_documented_programs.py",
    "tests/spark/test_embedded.py",
    "tests/spark/test_flights.py",
    "tests/spark/test_registry_example.py",
)
"""Their tests start Spark in other processes, and are the longest."""

SPARK_OF_A_FILE = (
    "tests/spark/test_connect.py",
    "tests/spark/test_local_cluster.py",
    "tests/spark/test_shim.py",
)
"""All tests of one of them share a Spark in another process."""

SPARK_STREAMS = (
    "tests/spark/test_group",
    "tests/spark/test_lag.py",
    "tests/spark/test_several_brokers.py",
    "tests/spark/test_stream",
)
"""Their streams wait one after another: with a session of their own they do so beside the batches."""

ONE_BY_ONE = ("tests/test_", "tests/unit/")
"""Their tests stay together only where a file has fixtures that they share."""

PURE = "not process and not slow"
"""The pure suite's expression. Asked for in these words, it does not even import the directories above."""

PROCESSES = "(process or slow) and not long"
"""The gate's expression for the rest. Asked for in these words, it imports no module without such a mark."""

LONGEST_S = {
    "property/test_streams.py": 4.4,
    "scenarios/test_restored_zookeeper.py": 3.6,
    "scenarios/test_scripts.py": 3.4,
    "unit/records/test_down_conversion.py": 1.8,
    "unit/wire/test_memory.py": 2.3,
    "test_tidy.py": 2.2,
    "property/test_records_roundtrip.py": 1.6,
    "scenarios/test_invalid_znodes.py": 1.6,
    "unit/records/append/test_wrappers.py": 1.4,
    "unit/records/test_pieces.py": 1.3,
    "unit/clients/group/test_consumer.py": 1.2,
    "unit/spark_source/test_source.py": 1.2,
    "unit/spark_source/test_scale.py": 1.1,
    "property/test_controller.py": 1.1,
    "unit/server/test_dispatch.py": 1.1,
    "property/test_idempotent_producer.py": 1.0,
}
"""Processor seconds of the pure suite's longest files; any other takes about one for 50,000 bytes."""

TESTS = Path(__file__).parent
NOT_PURE = frozenset(TESTS / name for name in WITH_PROCESSES)

# Thousands of tests are objects that live until the end, and each full turn of the collector visits them all,
# a fifth of the pure suite's work. So it passes over what was there at the start. A simulated broker leaves a
# thousand objects in circles: few of them may gather, or the next ones are made in memory that is not cached.
gc.set_threshold(10_000, 20, 20)

# Hundreds of interpreters that tests start would compile the product anew, and each run all tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["MINIKAFKA_CONFIG_HOME"] = os.devnull  # not the profiles of who runs the tests
os.environ.pop("MINIKAFKA_PROFILE", None)

# The tests start many Java programs that live for seconds: these come up in half the time.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK_CLASSES = Path(sys.prefix, "spark-classes.jsa")
"""Made by ``scripts/archive_spark_classes.py``: a session of Spark's comes up with half the work again."""
if SPARK_CLASSES.exists():
    JAVA_OPTIONS += f" -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable"
os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what holds no test of the two expressions above, as to import it costs more than most tests.

    And the files that are no part of this worker's share.
    """
    asked, is_test = config.getoption("markexpr"), collection_path.match("test_*.py")
    if asked == PROCESSES:
        return True if is_test and not has_marks(collection_path) else None
    if asked != PURE:
        return None
    if collection_path.is_dir():
        return True if collection_path in NOT_PURE else None
    share = getattr(config, "workerinput", {}).get("share")
    return True if is_test and share is not None and str(collection_path) not in share else None


def has_marks(module: Path) -> bool:
    """True if tests of a module may start processes, or be slow."""
    if not NOT_PURE.isdisjoint(module.parents):
        return True
    inside = module.parents[: module.parents.index(TESTS)]
    return any(names_marks(file) for file in (module, *(folder / "conftest.py" for folder in inside)))


@functools.cache
def names_marks(file: Path) -> bool:
    """True if a file gives tests the mark ``process`` or ``slow``."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return "mark.process" in text or "mark.slow" in text


def in_shares(config: pytest.Config) -> bool:
    """Return True for the whole pure suite with xdist: each worker collects and runs files of its own.

    Else each of them collects all, and the tests of a file, with what they share, are spread over all.
    """
    return (
        config.getoption("markexpr") == PURE
        and config.getoption("dist", "no") == "load"
        and config.args_source is pytest.Config.ArgsSource.TESTPATHS
    )


def shares(count: int) -> list[list[str]]:
    """Divide the files of the pure suite: the longest first, each goes to the share that has least so far."""
    files = [path for path in TESTS.rglob("test_*.py") if NOT_PURE.isdisjoint(path.parents)]
    costs = {
        str(path): LONGEST_S.get(path.relative_to(TESTS).as_posix(), path.stat().st_size / 50_000)
        for path in files
    }
    found: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for path, cost in sorted(costs.items(), key=lambda item: (-item[1], item[0])):
        least = loads.index(min(loads))
        loads[least] += cost
        found[least].append(path)
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker its share."""
    if in_shares(node.config):
        number = int(node.workerinput["workerid"].removeprefix("gw"))
        node.workerinput["share"] = shares(node.workerinput["workercount"])[number]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """End the run if a worker ended before its tests: xdist would leave its share out without a word."""
    status = getattr(node, "workeroutput", {}).get("exitstatus", pytest.ExitCode.OK)
    if status in {pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR}:
        raise pytest.UsageError(f"worker {node.gateway.id} ended with {status}, and its tests were not run")


def pytest_configure(config: pytest.Config) -> None:
    """Keep pytest-randomly from seeding several generators three times a test; ``_seed`` does enough. Let
    programs be interrupted.
    """
    config.option.randomly_reset_seed = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run in the background of a script ignores it; programs that tests start would ignore Ctrl-C too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if in_shares(config):
        config.option.maxworkerrestart = "0"  # another worker would not have the share of one that crashed


def _seed(item: pytest.Item) -> None:
    """Make chance in a test depend on the run's seed and the test alone, not on the tests before it."""
    random.seed(f"{item.config.getoption('randomly_seed', '')} {item.nodeid}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out when the time is over at which this run has to end (``MINIKAFKA_TESTS_UNTIL``)."""
    until = os.environ.get("MINIKAFKA_TESTS_UNTIL")
    if until and time.time() > float(until):
        pytest.skip("the time of this run was over")
    _seed(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Seed once more: what several tests share may have been set up in this one."""
    _seed(item)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector away while tests are collected, and let it pass over all that this has made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """With xdist, send of each test what somebody reads: its outcome, what failed, and what took time.

    By default a worker sends six messages for each test, in plain Python, which is more work than most tests.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > 0.1:
            report.keywords = {}  # a third of the message, and nobody reads them there
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the pure suite (``-m "not process and not slow"``) free of real processes.

    What takes longest comes first, so that nobody waits for it at the end, and single tests are the last.
    """
    directories = tuple(f"tests/{name}/" for name in WITH_PROCESSES)
    for item in items:
        if item.nodeid.startswith(directories):
            item.add_marker(pytest.mark.process)
        elif any(map(item.get_closest_marker, ("process", "slow"))) and not has_marks(item.path):
            raise pytest.UsageError(
                f"{item.nodeid}: the gate would leave it out: write pytest.mark.process or pytest.mark.slow"
            )
    items.sort(
        key=lambda item: (
            not item.nodeid.startswith("tests/spark/"),
            item.nodeid.startswith(SPARK_OF_A_FILE + SPARK_OF_THEIR_OWN),
            item.get_closest_marker("slow") is None,
            item.get_closest_marker("process") is not None and item.nodeid == together(item.nodeid),
        )
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let each worker run all of its share, if there are shares.

    With ``-n N --dist loadscope --no-loadscope-reorder``, keep what shares something costly on one worker. In
    ``tests/spark`` that is most often one of two Spark sessions, elsewhere at most what a file shares.
    """
    from xdist.scheduler import EachScheduling, LoadScopeScheduling

    class Shares(EachScheduling):
        def schedule(self) -> None:
            collected = sum(len(share) for share in self.node2collection.values())
            config.pluginmanager.getplugin("session").testscollected = collected
            super().schedule()

    if in_shares(config):
        return Shares(config, log)

    class Scheduling(LoadScopeScheduling):
        def schedule(self) -> None:
            replaces_one = self.collection is not None
            super().schedule()
            if replaces_one:  # a worker does not begin a single test before it gets another, or none is left
                for node in self.nodes:
                    self._reschedule(node)

        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadscope" else None


def together(nodeid: str) -> str:
    """What a test belongs to that must stay together."""
    if nodeid.startswith(SPARK_OF_THEIR_OWN):
        return nodeid
    if nodeid.startswith(SPARK_STREAMS):
        return "tests/spark streams"
    if nodeid.startswith("tests/spark/") and not nodeid.startswith(SPARK_OF_A_FILE):
        return "tests/spark"
    file = nodeid.partition("::")[0]
    return nodeid if file.startswith(ONE_BY_ONE) and not shares_fixtures(file) else file


@functools.cache
def shares_fixtures(file: str) -> bool:
    """True if a test module, named as in a node id, has fixtures that its tests share."""
    return 'scope="module"' in (TESTS.parent / file).read_text(encoding="utf-8")
