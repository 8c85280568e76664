"""The module that Spark imports to find the source: it never raises, and reports missing packages."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.serializers import CPickleSerializer

import pyspark_minikafka
from pyspark_minikafka import source
from pyspark_minikafka.source import MinikafkaSource, MissingDependency

HIDES_US = """
import sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark_minikafka":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hiding())
"""
PACKAGE = Path(pyspark_minikafka.__file__).parent
PATHS = os.pathsep.join([str(PACKAGE.parent), str(PACKAGE.parents[1] / "broker_core")])


def run(code: str, **environment: str) -> str:
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**given, "PYTHONPATH": PATHS, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_spark_finds_a_default_source_by_its_name() -> None:
    assert pyspark_minikafka.DefaultSource is MinikafkaSource
    assert MinikafkaSource.name() == "minikafka"


def test_importing_loads_nothing_but_the_standard_library_and_pyspark() -> None:
    loaded = run("""
        import sys
        import pyspark.sql.datasource
        before = set(sys.modules)
        import pyspark_minikafka
        new = {name for name in set(sys.modules) - before if not name.startswith("pyspark_minikafka")}
        print(sorted(name for name in new if name.partition(".")[0] not in sys.stdlib_module_names))
    """)
    assert loaded == "[]"


@pytest.mark.parametrize(
    ("module", "packages", "apis"),
    [
        ("reading.stream", "base clients net wire", "api_versions list_offsets metadata"),
        (
            "reading.task_reader",
            "base clients net records wire",
            "api_versions current_leader fetch list_offsets metadata offset_for_leader_epoch",
        ),
    ],
)
def test_a_process_that_plans_or_reads_imports_no_more_than_that_takes(
    module: str, packages: str, apis: str
) -> None:
    loaded = run(f"""
        import sys
        import pyspark_minikafka.{module}
        print(*sorted(name for name in sys.modules if name.startswith("minikafka.")))
    """).split()
    assert {name.split(".")[1] for name in loaded} == set(packages.split())
    asked = {name.split(".")[-1] for name in loaded if name.startswith("minikafka.wire.apis.")}
    assert asked == set(apis.split())
    writes_or_administers = tuple(f"minikafka.clients.{name}" for name in ("admin", "group", "producer"))
    assert [name for name in loaded if name.startswith(writes_or_administers)] == []


def test_importing_never_raises_without_pyspark() -> None:
    assert (
        run("""
        import sys
        sys.modules["pyspark"] = None
        import pyspark_minikafka
        print(hasattr(pyspark_minikafka, "DefaultSource"))
    """)
        == "False"
    )


def test_workers_run_this_python_unless_another_was_chosen() -> None:
    show = "import os, pyspark_minikafka; print(os.environ['PYSPARK_PYTHON'])"
    assert run(show) == sys.executable
    assert run(show, PYSPARK_PYTHON="python-of-choice") == "python-of-choice"


def test_a_missing_dependency_is_named_when_the_source_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> None:
        raise ModuleNotFoundError("No module named 'numba'")

    monkeypatch.setattr(source.importlib, "import_module", not_there)
    found = MinikafkaSource({"subscribe": "t"})
    for use in (found.schema, lambda: found.writer(None, False)):  # type: ignore[arg-type]
        with pytest.raises(MissingDependency, match="numba") as problem:
            use()
        assert "pip install" in str(problem.value)
        assert sys.executable in str(problem.value)


def test_spark_names_the_parameter_schema_when_it_calls() -> None:
    tree = ast.parse((PACKAGE / "source.py").read_text())
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for name in ("reader", "streamReader", "writer", "streamWriter"):
        assert functions[name].args.args[1].arg == "schema"


def test_wrong_options_are_refused_where_the_schema_is_asked_for() -> None:
    with pytest.raises(Exception, match="exactly one of the options"):
        MinikafkaSource({}).schema()


def test_class_is_pickled_by_name_and_reports_missing_package(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(CPickleSerializer().dumps(MinikafkaSource))
    load = f"""
        from pyspark.serializers import CPickleSerializer
        try:
            print(CPickleSerializer().loads(open({str(sent)!r}, "rb").read()).__module__)
        except ImportError as problem:
            print(problem)
    """
    assert run(load) == "pyspark_minikafka.source"
    # However it is installed, sitecustomize comes before it is asked for.
    (tmp_path / "sitecustomize.py").write_text(HIDES_US)
    said = run(load, PYTHONPATH=str(tmp_path))
    assert "install minikafka for that Python, on the Spark Connect server and on every executor" in said
    assert sys.executable in said


class Registered:
    """A session that knows of registrations only."""

    def __init__(self, problem: str = "") -> None:
        self.dataSource = self
        self.problem = problem
        self.known: list[type] = []

    def register(self, found: type) -> None:
        if self.problem:
            raise AnalysisException(self.problem)
        self.known.append(found)


def test_registering_twice_or_after_discovery_does_nothing() -> None:
    session = Registered()
    pyspark_minikafka.register(session)  # type: ignore[arg-type]
    assert session.known == [MinikafkaSource]
    pyspark_minikafka.register(Registered("[DATA_SOURCE_ALREADY_EXISTS] …"))  # type: ignore[arg-type]
    with pytest.raises(AnalysisException, match="no more"):
        pyspark_minikafka.register(Registered("no more"))  # type: ignore[arg-type]
