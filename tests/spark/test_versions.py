"""The page of versions that ``scripts/matrix`` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark import versions

REPORT = """<testsuites><testsuite>
<testcase classname="m" name="test_a"/>
<testcase classname="m" name="test_b"><skipped message="why"/></testcase>
<testcase classname="" name="m"><skipped message="a module that was left out"/></testcase>{}
</testsuite></testsuites>"""
FAILED = '<testcase name="test_c"><failure message="why"/></testcase>'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """PySpark 4.0.5, which declares two versions of Python, with a report for one of them."""
    about = tmp_path / "spark-4.0" / "pyspark-4.0.5.dist-info"
    about.mkdir(parents=True)
    classifier = "Classifier: Programming Language :: Python ::"
    lines = [
        "Name: pyspark",
        "Version: 4.0.5",
        f"{classifier} 3.9",
        f"{classifier} 3.10",
        f"{classifier} 3.11",
    ]
    (about / "METADATA").write_text("\n".join([*lines, "", "Version: 9", ""]))
    (tmp_path / "spark-4.0-python-3.10.xml").write_text(REPORT.format(""))
    return tmp_path


def test_a_version_supports_the_pythons_that_it_declares(root: Path) -> None:
    directory = str(root / "spark-4.0")
    assert versions.main(["supports", directory, "3.11"]) == 0
    assert versions.main(["supports", directory, "3.14"]) == 1


def test_the_page_tells_what_passed_from_what_was_not_run(root: Path) -> None:
    text = versions.page(root, root)
    assert "| PySpark 4.0.5 | 1 passed, 1 skipped | not run | – | – | – |" in text


def test_the_page_names_what_failed(root: Path) -> None:
    (root / "spark-4.0-python-3.11.xml").write_text(REPORT.format(FAILED))
    text = versions.page(root, root)
    assert "1 passed, **1 failed**, 1 skipped" in text
    assert text.endswith("- PySpark 4.0.5, Python 3.11: `test_c` failed\n")


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main(["else"]) == 2
    assert "supports DIRECTORY_OF_PYSPARK PYTHON" in capsys.readouterr().err
