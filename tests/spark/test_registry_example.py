"""The example that changes the schema of a topic while queries write and read it by a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.embedded import local
from tests.support.processes import output_of, python, wait_until
from tests.support.schema_registry import schema_registry

PATIENCE_S = 300


def check_example(url: str, directory: Path) -> None:
    """Run the example with the registry at ``url``, and compare all tables that it prints."""
    data_dir = directory / "data"
    arguments = ["-m", "examples.registry", url, "--data-dir", str(data_dir)]
    with python(arguments, directory) as example:
        assert example.wait(PATIENCE_S) == 0, output_of(directory)
    wait_until(lambda: local.running(str(data_dir)) is None, "the end of the embedded broker", 30)
    output = output_of(directory)
    first, second = output.split("clicks have a referrer from now on")
    assert last_column(first) == ["2", "1"]
    counted, clicks = second.split("|at")
    assert "a click has at, page, referrer" in counted
    assert last_column(counted) == ["2", "2", "1"]
    assert last_column(clicks) == ["unknown", "unknown", "unknown", "search", "mail"]
    assert "5 of 5 clicks were counted" in clicks


def last_column(text: str) -> list[str]:
    """Return the third and last cell of each row that begins with a time."""
    return [line.split("|")[3].strip() for line in text.splitlines() if line.startswith("|2026")]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_old_and_new_clicks_are_counted_with_the_new_schema(tmp_path: Path) -> None:
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    with schema_registry() as registry:
        check_example(registry.url, tmp_path)
        (subject,) = {path.split("/")[2] for method, path in registry.requests if method == "POST"}
        assert len(registry.versions(subject)) == 2
