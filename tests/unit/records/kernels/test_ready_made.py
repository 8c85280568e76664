"""The kernels that a wheel brings ready-made."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.records.kernels import cache, targets
from minikafka.records.kernels.native import Code
from minikafka.records.kernels.targets import TARGETS, Target, for_this_machine
from tests.support.kernel_code import CODES, ONE_GIVES, modules, names_of_kernels, start, use_places

HERE = Target("here", (), "here-unknown-linux-gnu", "any", (), ())


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of a target that this machine executes, with CODES."""
    monkeypatch.setattr(cache, "for_this_machine", lambda: HERE)
    monkeypatch.setattr(cache.resources, "files", lambda package: tmp_path / "package")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "one.py").write_text("the source")
    file = tmp_path / "package" / HERE.file_name
    file.write_text(cache._packed(cache._target_state(HERE), CODES))
    return file


def test_ready_made_code_is_used_and_stored_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path], ready: Path
) -> None:
    use_places(monkeypatch, tmp_path / "place")
    assert cache.machine_code() == CODES
    assert compilations == []
    assert not (tmp_path / "place").exists()


def test_code_for_exactly_this_machine_comes_before_ready_made_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path], ready: Path
) -> None:
    use_places(monkeypatch, tmp_path / "place")
    ready.write_text(cache._packed(cache._target_state(HERE), {"find": Code("ready", b"made")}))
    assert cache.compile_ahead(tmp_path / "place") is not None
    assert cache.machine_code() == CODES


@pytest.mark.parametrize("left", ["", "{", '{"sum": "0", "codes": {}}', "\udc80"])
def test_damaged_ready_made_code_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path], ready: Path, left: str
) -> None:
    use_places(monkeypatch, tmp_path / "place")
    ready.write_bytes(left.encode(errors="surrogateescape"))
    assert cache.machine_code() == CODES
    assert len(compilations) == 1


def test_ready_made_code_of_other_sources_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path], ready: Path
) -> None:
    use_places(monkeypatch, tmp_path / "place")
    ready.with_name("one.py").write_text("the source, which was changed")
    assert cache.machine_code() == CODES
    assert len(compilations) == 1


def test_ready_made_code_of_another_target_is_not_used(ready: Path) -> None:
    assert cache.ready_made(HERE) == CODES
    assert cache.ready_made(dataclasses.replace(HERE, cpu="another")) is None


def test_a_processor_without_a_needed_feature_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    (target, *_) = TARGETS
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    features = dict.fromkeys(target.needed_features, True)
    monkeypatch.setattr(targets.binding, "get_host_cpu_features", lambda: features)
    assert for_this_machine() is target
    features["pclmul"] = False
    assert for_this_machine() is None


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_there_is_no_ready_made_code_for_other_systems(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert for_this_machine() is None


def elf_machine(code: Code) -> int:
    return int.from_bytes(code.data[18:20], "little")


ELF_MACHINES = {"x86_64-linux": 62, "aarch64-linux": 183}


@pytest.mark.process
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_kernels_are_compiled_for_other_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: Target
) -> None:
    monkeypatch.setattr(cache, "_SHARES", (("hashing",),))
    file = cache.make_ready(tmp_path, target)
    assert list(tmp_path.iterdir()) == [file]
    codes = cache._unpacked(cache._target_state(target), file.read_text())
    assert codes is not None
    assert {name: elf_machine(code) for name, code in codes.items()} == dict.fromkeys(
        ("key_partitions", "checksum"), ELF_MACHINES[target.name]
    )


@pytest.mark.process
def test_an_installation_with_ready_made_kernels_compiles_nothing(installation: Path, tmp_path: Path) -> None:
    if targets.for_this_machine() is None:
        pytest.skip("a wheel brings nothing for this machine")
    making = "from minikafka.records.kernels.__main__ import main; main(['--ready-made'])"
    _, err = start(installation, making).communicate()
    made = sorted(path.name for path in (installation / "records" / "kernels").glob("*.json"))
    assert made == sorted(target.file_name for target in TARGETS), err
    out, err = start(installation, XDG_CACHE_HOME=str(tmp_path / "cache")).communicate()
    assert (out.strip(), err) == (ONE_GIVES, "")
    assert not (tmp_path / "cache").exists()


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
def test_ready_made_kernels_give_what_compiled_ones_give(tmp_path: Path) -> None:
    target = targets.for_this_machine()
    if target is None:
        pytest.skip("a wheel brings nothing for this machine")
    file = cache.make_ready(tmp_path, target)
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider -p tests.support.compared_kernels -m"
    done = subprocess.run(
        [*command.split(), "not process and not slow and not long", str(Path(__file__).parents[1])],
        env={**os.environ, "MINIKAFKA_READY_MADE": str(file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    compared = re.search(r'^\{"compared": (\d+), "kernels": (\[.*\])\}$', done.stdout, re.MULTILINE)
    assert compared is not None
    assert set(json.loads(compared[2])) == {name for module in modules() for name in names_of_kernels(module)}
