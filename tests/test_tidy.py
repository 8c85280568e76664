"""Rules of the house that no linter knows: sizes, imports of each floor, what must not stand in the tree.

A rule that something old cannot meet yet names it in its ratchet, with the number that holds today: that
number may only fall, and an entry that is no longer needed must go.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import names_marks

ROOT = Path(__file__).resolve().parent.parent
DIRECTORIES = (
    ".ci",
    "benchmarks",
    "broker_core",
    "deploy",
    "docs",
    "examples",
    "scala_shim",
    "scripts",
    "spark_source",
    "tests",
)

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

MODULE_RATCHET: dict[str, int] = {
    "broker_core/minikafka/log/log.py": 709,  # one class
    "broker_core/minikafka/log/manager.py": 654,  # one noun: all logs of a broker, in all its directories
    "broker_core/minikafka/server/zookeeper/zookeeper_client.py": 629,  # one class
}
"""path -> lines today."""
FUNCTION_RATCHET: dict[str, int] = {}
"""path:qualified name -> lines today."""
IMPORT_RATCHET: dict[str, int] = {
    # The top floor of names, which nothing in the broker core imports (contract "floors").
    "broker_core/minikafka/spark/metrics.py:pyspark_minikafka": 1,
    # It counts and measures, a thread apart from others; no decision depends on it.
    "broker_core/minikafka/base/metrics.py:threading": 1,
    "broker_core/minikafka/base/metrics.py:time": 1,
    # It starts the processes that compile, and waits for what they report; no data passes through it.
    "broker_core/minikafka/records/kernels/cache.py:select": 1,
    "broker_core/minikafka/records/kernels/cache.py:time": 1,
}
"""path:imported module -> 1."""

PRODUCT = ("broker_core/", "spark_source/")

SHORT_MODULE_LINES = 60
SHORT_FOLDERS = ("broker_core/minikafka/wire/apis/", "broker_core/minikafka/server/handlers/")
"""One file for each API, however short."""
SHORT_MODULES = {
    "broker_core/minikafka/base/clock.py": "a port",
    "broker_core/minikafka/base/exports.py": "imported by every package before anything else",
    "broker_core/minikafka/base/printable.py": "imported by every log line; needs nothing else",
    "broker_core/minikafka/base/text.py": "no other floor may hold it",
    "broker_core/minikafka/base/values.py": "a decorator for all floors",
    "broker_core/minikafka/net/service_manager.py": "a protocol of systemd",
    "broker_core/minikafka/spark/metrics.py": "names of the Spark source under minikafka",
    "broker_core/minikafka/cli/terminal/signals.py": "imported by commands that run until stopped",
    "broker_core/minikafka/clients/admin/controller_requests.py": "shared by all administration",
    "broker_core/minikafka/clients/admin/zookeeper/reassignments.py": "a noun of the administration",
    "broker_core/minikafka/clients/admin/zookeeper/topics.py": "a noun of the administration",
    "broker_core/minikafka/clients/fetch/isolation_level.py": "public, imported without a fetcher",
    "broker_core/minikafka/clients/network/arguments.py": "shared by all clients",
    "broker_core/minikafka/clients/network/response_errors.py": "shared by all clients",
    "broker_core/minikafka/clients/network/used_versions.py": "a table",
    "broker_core/minikafka/clients/produce/partitioner.py": "a plug-in point",
    "broker_core/minikafka/console/access.py": "shared by sessions and pages",
    "broker_core/minikafka/embedded/pytest_plugin.py": "an entry point",
    "broker_core/minikafka/groups/states.py": "a table",
    "broker_core/minikafka/server/config/releases.py": "a table",
    "broker_core/minikafka/server/config/transactions.py": "a table",
    "broker_core/minikafka/server/coordination/coordinators.py": "a port",
    "broker_core/minikafka/server/groups/group_loader.py": "runs on a thread of its own",
    "broker_core/minikafka/server/transactions/transaction_loader.py": "runs on a thread of its own",
    "broker_core/minikafka/log/checkpoints/partition_metadata.py": "the format of a file",
    "broker_core/minikafka/log/cleanup/cleaner_control.py": "a port",
    "broker_core/minikafka/log/probe.py": "writes to a disk that the log does not use",
    "broker_core/minikafka/log/recovery/opening_progress.py": "structured lines that a parent process reads",
    "broker_core/minikafka/net/sasl_probe.py": "imported when a listener closes connections",
    "broker_core/minikafka/records/arrow/buffers.py": "the only place that knows the memory pool",
    "broker_core/minikafka/records/format/record.py": "values of every format",
    "broker_core/minikafka/records/format/stored_batch.py": "shared by clients and brokers",
    "broker_core/minikafka/records/kernels/arrays.py": "imported without a compiler",
    "broker_core/minikafka/records/kernels/signatures.py": "types of all kernels",
    "broker_core/minikafka/net/zookeeper_tls.py": "joins what two floors know",
    "broker_core/minikafka/registry/kinds.py": "the table of all kinds of znodes",
    "broker_core/minikafka/registry/zookeeper_address.py": "imported by configurations, without a client",
    "broker_core/minikafka/security/stores/formats.py": "chooses the reader, so that only one is imported",
    "broker_core/minikafka/transactions/loading.py": "stands above the shard, which it makes",
    "broker_core/minikafka/server/config/event_log.py": "a section of the configuration",
    "broker_core/minikafka/server/config/fetching.py": "a section of the configuration",
    "broker_core/minikafka/server/control/protocol_compatibility.py": "one check at the start",
    "broker_core/minikafka/server/core/new_leaders.py": "shared by two APIs",
    "broker_core/minikafka/server/metrics/process.py": "knows the system's files",
    "broker_core/minikafka/server/inter_broker_connector.py": "the simulation has no sockets",
    "spark_source/pyspark_minikafka/catalog.py": "imported where pyarrow is not",
    "spark_source/pyspark_minikafka/formats/query_formats.py": "a value that is pickled",
    "spark_source/pyspark_minikafka/formats/string_format.py": "a format",
    "spark_source/pyspark_minikafka/private_topics.py": "names that reads and writes share",
    "spark_source/pyspark_minikafka/reading/estimate.py": "imported for joins alone",
    "spark_source/pyspark_minikafka/writing/staged.py": "imported for writes exactly once alone",
    "spark_source/pyspark_minikafka/report.py": "imported by every process of a query",
}
"""path -> why a module below the limit stands alone. One without such a reason joins its noun."""

QUESTION = re.compile(r"(?:What|Who|Whom|Whose|Where|How|Whether|When)\b")
"""The first word of a docstring that a reader has to decode. It says what the thing is or does."""

BANNED_WORDS = {
    "isr_wanted": "proposed_isr",
    "laggard": "a replica out of sync",
    "filthiest": "next_cleanable",
    "doubted": "bounced_brokers",
    "undelivered": "FetchBuffer",
    "narrowing": "PushedFilters",
    "guest": "the protocol's own noun",
    "news": "changes",
    "told": "reported, or notified",
}
"""Private words, and what Kafka or plain English says instead. The product has none in a name or text."""

TEST_NAME_LENGTH_MAX = 70
"""Said of what is done and what comes of it; about 60 is better."""

SOCKETS = frozenset({"socket", "selectors", "socketserver", "select", "ssl", "asyncio"})
NONDETERMINISM = frozenset(
    {"time", "random", "secrets", "threading", "queue", "concurrent", "multiprocessing", "asyncio", "uuid"}
)
CORE = "broker_core/minikafka/"
WITH_SOCKETS = (f"{CORE}net/", f"{CORE}registry/zookeeper.py", "spark_source/pyspark_minikafka/workers.py")
"""The last one opens none: it sets an option of the one that Spark's worker has."""
PURE_FLOORS = (
    "base",
    "records",
    "wire",
    "security",
    "log",
    "partition",
    "controller",
    "groups",
    "transactions",
)

# Kafka's own default of log.dir is no path of one machine.
MACHINE_PATHS = re.compile(r"(?<![\w.~}])/(?:home|root|Users|work|mnt|opt|tmp|srv)/(?!kafka-logs\b)[\w.]")
URL_HOST = re.compile(r"https?://([\w.-]+)")
PUBLIC_HOSTS = frozenset(
    {
        "adoptium.net",
        "docs.python.org",
        "docs.pytest.org",
        "github.com",
        "login.example.com",
        "login.microsoftonline.com",
        "namespace.servicebus.windows.net",
        "kafka.apache.org",
        "numba.readthedocs.io",
        "pypi.org",
        "spark.apache.org",
        "www.apache.org",
        "www.w3.org",
        "zookeeper.apache.org",
        "0.0.0.0",
        "127.0.0.1",
        "example.com",
    }
)
INDEX_OPTIONS = re.compile(r"--(?:extra-)?index-url|PIP_(?:EXTRA_)?INDEX_URL|--find-links|--trusted-host")


# What a rule finds, as {where: how much}. Finders take text, so that the tests below can show that they find.


class Facts(NamedTuple):
    """The results of one walk over a module's syntax tree, which several rules use."""

    functions: list[tuple[str, int]]
    """Every function with its qualified name and its lines, from ``def`` to its last line."""
    questions: list[str]
    """Names of what has a docstring that opens with the word of a question."""
    imports: list[tuple[str, tuple[str, ...]]]
    """Each imported module with the names that are taken out of it, also inside functions and by name."""


def statements(body: Iterable[ast.AST], prefix: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Return every statement below ``body`` with the qualified name of what it is in.

    Expressions hold none, and are most of a tree.
    """
    for node in body:
        yield node, prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{prefix}{node.name}."
        else:
            inside = prefix
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from statements(getattr(node, field, ()), inside)


@functools.cache
def facts_of(source: str) -> Facts:
    """Parse a module once for all rules: the tree has a thousand of them."""
    tree = ast.parse(source)
    facts = Facts([], [], [])
    for node, prefix in [(tree, ""), *statements(tree.body)]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            facts.functions.append((prefix + node.name, node.end_lineno - node.lineno + 1))
        elif isinstance(node, ast.Import):
            facts.imports.extend((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            facts.imports.append((node.module, tuple(alias.name for alias in node.names)))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text and QUESTION.match(text.lstrip()):
                facts.questions.append(getattr(node, "name", "module"))
    if "import_module" in source or "__import__" in source:
        facts.imports.extend((name, ()) for name in imported_by_name(tree))
    return facts


def imported_by_name(tree: ast.Module) -> Iterator[str]:
    """Return the modules that calls import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"}:
                yield str(node.args[0].value)


def long_functions(path: str, source: str) -> dict[str, int]:
    """Functions over the limit."""
    if len(source.splitlines()) <= FUNCTION_LINES_MAX:
        return {}
    functions = facts_of(source).functions
    return {f"{path}:{name}": lines for name, lines in functions if lines > FUNCTION_LINES_MAX}


def long_module(path: str, source: str) -> dict[str, int]:
    """The module itself when it is over the limit."""
    lines = len(source.splitlines())
    return {path: lines} if lines > MODULE_LINES_MAX else {}


def is_short(path: str, source: str) -> bool:
    """Return True if a module of the product needs a reason to stand alone."""
    stands_alone = path.endswith(("__init__.py", "__main__.py")) or path.startswith(SHORT_FOLDERS)
    return path.startswith(PRODUCT) and not stands_alone and len(source.splitlines()) < SHORT_MODULE_LINES


def question_docstrings(path: str, source: str) -> list[str]:
    """Return the docstrings, as path and name, that open with the word of a question."""
    return [f"{path}:{name}" for name in facts_of(source).questions]


def banned_words(path: str, text: str) -> list[str]:
    """Return the lines with a private word, also as a part of a name."""
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(BANNED_WORDS)})s?(?![a-z])", re.IGNORECASE)
    return [
        f"{path}:{number}: {word.group().lower()}"
        for number, line in enumerate(text.splitlines(), 1)
        for word in pattern.finditer(line)
    ]


def long_test_names(path: str, source: str) -> list[str]:
    """Return the names of tests over the limit."""
    names = (name.rpartition(".")[2] for name, _ in facts_of(source).functions)
    return [
        f"{path}: {name}" for name in names if name.startswith("test_") and len(name) > TEST_NAME_LENGTH_MAX
    ]


def banned_in(path: str) -> frozenset[str]:
    """What the module at ``path`` must not import."""
    banned: frozenset[str] = frozenset()
    if path.startswith(("broker_core/", "spark_source/")):
        if not path.startswith(WITH_SOCKETS):
            banned |= SOCKETS
        if (
            path.startswith(tuple(f"{CORE}{floor}/" for floor in PURE_FLOORS))
            and path != f"{CORE}base/clock.py"
        ):
            banned |= NONDETERMINISM
    if path.startswith("broker_core/"):
        banned |= {"pyspark", "pyspark_minikafka"}
    return banned


def banned_imports(path: str, source: str) -> dict[str, int]:
    """Imports that the floor of ``path`` forbids."""
    banned = banned_in(path)
    if not banned:
        return {}
    imported = {name.partition(".")[0] for name, _ in facts_of(source).imports}
    return {f"{path}:{name}": 1 for name in imported & banned}


def circle(sources: Mapping[str, str]) -> list[str]:
    """Modules (name -> text) that import each other in a circle, also where only types are meant."""
    graph: dict[str, set[str]] = {}
    for name, source in sources.items():
        found = graph[name] = set()
        for module, taken in facts_of(source).imports:
            below = [f"{module}.{attribute}" for attribute in taken]
            found.update(inner if inner in sources else module for inner in below or [module])
        found.discard(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def machine_traces(path: str, text: str) -> list[str]:
    """Lines that hold a path of one machine, a package index, or a host that is not a public one."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        strange = [host for host in URL_HOST.findall(line) if "." in host and host not in PUBLIC_HOSTS]
        if MACHINE_PATHS.search(line) or INDEX_OPTIONS.search(line) or strange:
            found.append(f"{path}:{number}: {line.strip()[:100]}")
    return found


def against(ratchet: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """What is worse than the ratchet says, and the entries that can be lowered or go."""
    worse = [f"{where} has {size}" for where, size in found.items() if size > ratchet.get(where, 0)]
    loose = [
        f"{where}: the ratchet says {size}, now {found.get(where, 'within the limit')}"
        for where, size in ratchet.items()
        if found.get(where, 0) < size
    ]
    return sorted(worse + loose)


@functools.cache
def texts() -> list[tuple[str, str]]:
    """Every text file of the tree with its path from the root."""
    found = []
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name not in {"LICENSE", ".git"}]
    for directory in DIRECTORIES:
        files += [path for path in (ROOT / directory).rglob("*") if path.is_file()]
    for path in sorted(files):
        relative = path.relative_to(ROOT).as_posix()
        if "__pycache__" in relative or ".egg-info" in relative:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            found.append((relative, text))
    return found


def modules() -> Iterator[tuple[str, str]]:
    """Every Python file of the tree, scripts without a suffix not included."""
    return ((path, text) for path, text in texts() if path.endswith(".py"))


# The rules on the tree.


def test_what_python_has_compiled_is_where_python_looks_for_it() -> None:
    found = [path for directory in DIRECTORIES for path in (ROOT / directory).rglob("*.pyc")]
    assert [path for path in found if path.parent.name != "__pycache__"] == []


def test_every_module_stays_under_its_limit() -> None:
    found: dict[str, int] = {}
    for path, source in modules():
        found |= long_module(path, source)
    assert against(MODULE_RATCHET, found) == []


def test_every_function_stays_under_its_limit() -> None:
    found: dict[str, int] = {}
    for path, source in modules():
        found |= long_functions(path, source)
    assert against(FUNCTION_RATCHET, found) == []


def test_every_short_module_has_a_reason() -> None:
    assert sorted(path for path, source in modules() if is_short(path, source)) == sorted(SHORT_MODULES)


def test_no_docstring_of_the_product_opens_with_a_question() -> None:
    product = ((path, source) for path, source in modules() if path.startswith(PRODUCT))
    assert [found for path, source in product for found in question_docstrings(path, source)] == []


def test_the_product_uses_no_private_word() -> None:
    product = ((path, source) for path, source in modules() if path.startswith(PRODUCT))
    assert [found for path, source in product for found in banned_words(path, source)] == []


def test_names_of_tests_are_short() -> None:
    tests = ((path, source) for path, source in modules() if path.startswith("tests/"))
    assert [found for path, source in tests for found in long_test_names(path, source)] == []


def test_no_floor_imports_what_it_must_not() -> None:
    found: dict[str, int] = {}
    for path, source in modules():
        found |= banned_imports(path, source)
    assert against(IMPORT_RATCHET, found) == []


def test_no_modules_import_each_other() -> None:
    """One of two that need each other stands above, and is told of by a Protocol of the lower one."""
    names = {
        path[: -len(".py")].replace("/", ".").removesuffix(".__init__"): text for path, text in modules()
    }
    assert circle({name.partition(".")[2]: text for name, text in names.items()}) == []


def test_the_tree_names_no_machine_and_no_package_index() -> None:
    this = Path(__file__).resolve().relative_to(ROOT).as_posix()
    assert [line for path, text in texts() if path != this for line in machine_traces(path, text)] == []


# The rules themselves: each is shown to find what it is for.


def test_marks_of_processes_are_where_conftest_looks_for_them() -> None:
    """A test whose mark ``conftest.names_marks`` does not see is left out, and no test would fail."""
    marking = [file for file in sorted((ROOT / "tests").rglob("*.py")) if names_marks(file)]
    known = re.compile(r"(test_.*|conftest)\.py")
    assert [str(file) for file in marking if not known.fullmatch(file.name)] == []


def test_a_function_one_line_too_long_is_found() -> None:
    body = "        x = 1\n" * FUNCTION_LINES_MAX
    source = f"class A:\n    def f(self):\n{body}"
    assert long_functions("m.py", source) == {"m.py:A.f": FUNCTION_LINES_MAX + 1}


def test_a_function_of_just_the_limit_passes() -> None:
    body = "    x = 1\n" * (FUNCTION_LINES_MAX - 1)
    assert long_functions("m.py", f"def f():\n{body}") == {}


def test_a_function_inside_a_branch_or_a_function_is_measured() -> None:
    source = "if True:\n    def f():\n        async def g():\n            pass\n"
    assert facts_of(source).functions == [("f", 3), ("f.g", 2)]


def test_a_module_one_line_too_long_is_found() -> None:
    assert long_module("m.py", "\n" * (MODULE_LINES_MAX + 1)) == {"m.py": MODULE_LINES_MAX + 1}
    assert long_module("m.py", "\n" * MODULE_LINES_MAX) == {}


def test_short_module_is_found_unless_it_is_an_api() -> None:
    assert is_short(f"{CORE}log/probe.py", "x = 1\n")
    assert not is_short(f"{CORE}log/probe.py", "\n" * SHORT_MODULE_LINES)
    assert not is_short(f"{CORE}server/handlers/heartbeat.py", "x = 1\n")
    assert not is_short(f"{CORE}log/__init__.py", "x = 1\n")


def test_docstring_that_opens_with_a_question_is_found() -> None:
    source = 'class A:\n    """What is held."""\n    def f(self):\n        """Return whether it holds."""\n'
    assert question_docstrings("m.py", source) == ["m.py:A"]


def test_private_word_is_found_in_names_and_texts() -> None:
    assert banned_words("m.py", "isr_wanted = 1\n# nobody was told\nclass Undelivered:") == [
        "m.py:1: isr_wanted",
        "m.py:2: told",
        "m.py:3: undelivered",
    ]
    assert banned_words("m.py", "guesthouse = newsletter") == []


def test_long_name_of_a_test_is_found() -> None:
    name = "test_" + "x" * (TEST_NAME_LENGTH_MAX - 4)
    assert long_test_names("m.py", f"def {name}():\n    pass") == [f"m.py: {name}"]
    assert long_test_names("m.py", f"def {name[1:]}():\n    pass") == []


@pytest.mark.parametrize(
    "statement",
    [
        "import socket",
        "import os, socket as s",
        "from socket import create_connection",
        "def f():\n    import socket",
        "import importlib\nimportlib.import_module('socket')",
        "__import__('socket')",
    ],
)
def test_every_way_to_import_is_seen(statement: str) -> None:
    path = f"{CORE}clients/network/metadata.py"
    assert banned_imports(path, statement) == {f"{path}:socket": 1}


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("server/core/broker.py", "import selectors"),
        ("registry/store.py", "import socket"),
        ("registry/memory.py", "import socket"),
        ("base/ids.py", "import uuid"),
        ("base/files.py", "from time import sleep"),
        ("records/append/validation.py", "import threading"),
        ("records/kernels/__init__.py", "import time"),
        ("wire/schema.py", "import random"),
        ("log/log.py", "import concurrent.futures"),
        ("partition/partition.py", "import time"),
        ("controller/controller.py", "import queue"),
        ("server/core/broker.py", "import pyspark"),
    ],
)
def test_a_banned_import_is_found(path: str, statement: str) -> None:
    assert len(banned_imports(CORE + path, statement)) == 1


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        (f"{CORE}net/server.py", "import socket, selectors, threading, time"),
        (f"{CORE}registry/zookeeper.py", "import socket, threading"),
        (f"{CORE}base/clock.py", "import time"),
        (f"{CORE}server/housekeeper.py", "import threading, time"),
        ("spark_source/pyspark_minikafka/source.py", "import pyspark, time, threading"),
        ("tests/unit/net/test_server.py", "import socket, time"),
    ],
)
def test_an_allowed_import_passes(path: str, statement: str) -> None:
    assert banned_imports(path, statement) == {}


def test_a_circle_of_imports_is_found_also_for_types() -> None:
    sources = {
        "p": "",
        "p.a": "from p import b",
        "p.b": "import typing\nif typing.TYPE_CHECKING:\n    from p.c import C",
        "p.c": "import p.a",
    }
    assert set(circle(sources)) == {"p.a", "p.b", "p.c"}
    assert circle(sources | {"p.c": "import os"}) == []


def test_the_spark_source_opens_no_socket() -> None:
    assert banned_in("spark_source/pyspark_minikafka/writing/writer.py") >= {"socket", "selectors"}


@pytest.mark.parametrize(
    "line",
    [
        "data = open('/home/ann/data.csv')",
        "cd /root/x",
        "`/tmp/venv/bin/python`",
        "see /work/shared",
        "pip install --index-url x",
        "url = 'https://pypi.internal.example/simple'",
    ],
)
def test_a_trace_of_one_machine_is_found(line: str) -> None:
    assert len(machine_traces("f", f"first\n{line}\n")) == 1


@pytest.mark.parametrize(
    "line",
    ["/brokers/topics/T", "tmp_path / 'x'", "see https://kafka.apache.org/documentation", "$HOME/work/x"],
)
def test_ordinary_paths_and_public_hosts_pass(line: str) -> None:
    assert machine_traces("f", line) == []


def test_a_ratchet_holds_and_only_falls() -> None:
    assert against({"a": 80}, {"a": 80}) == []
    assert against({"a": 80}, {"a": 81}) == ["a has 81"]
    assert against({"a": 80}, {"a": 79}) == ["a: the ratchet says 80, now 79"]
    assert against({"a": 80}, {}) == ["a: the ratchet says 80, now within the limit"]
    assert against({}, {"b": 1}) == ["b has 1"]
