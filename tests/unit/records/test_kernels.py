"""Where compiled kernels go, who compiles them, and that none of them reads beyond its data."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minikafka
from minikafka.records import kernels
from minikafka.records.kernels import cache
from minikafka.records.kernels.native import Code, Kernel

USE = (
    "from minikafka.records.message_set import Record, build_message_set as build; "
    "from minikafka.records.validation import Limits, validate; "
    "print(validate(build([Record(None, b'v')] * 7), Limits(), 0).count)"
)


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the packages that kernels need, with nothing compiled."""
    source = Path(minikafka.__file__).parent
    target = tmp_path / "site" / "minikafka"
    for name in ("base", "records"):
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "__init__.py", target)
    return target


def start(installation: Path, **environment: str) -> subprocess.Popen[str]:
    names = {"PATH": os.environ["PATH"], "PYTHONPATH": str(installation.parent), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", USE], env=names, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def compiled(place: Path) -> list[Path]:
    return list(place.glob("kernels-*/code.json"))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_of_processes_that_start_at_once_one_has_the_kernels_compiled_and_says_so_once(
    installation: Path, tmp_path: Path
) -> None:
    home = {"HOME": str(tmp_path)}
    said = ""
    for process in [start(installation, **home) for _ in range(2)]:
        out, err = process.communicate()
        assert (process.returncode, out.strip()) == (0, "7"), err
        said += err
    (line,) = said.splitlines()
    assert line.startswith("minikafka: compiling its kernels, once for this machine")
    assert len(compiled(installation / "records" / "kernels" / "__pycache__")) == 1
    out, err = start(installation, **home).communicate()
    assert (out.strip(), err) == ("7", "")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_a_read_only_installation_without_a_writable_home_compiles_into_a_private_directory(
    installation: Path, tmp_path: Path
) -> None:
    # A file where the directory would be refuses everybody, also root, whom no permission stops.
    (installation / "records" / "kernels" / "__pycache__").write_bytes(b"")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    places = {"HOME": os.devnull, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    out, err = start(installation, **places).communicate()
    assert out.strip() == "7", err
    assert err.count("\n") == 1
    private = temporary / f"minikafka-{os.getuid()}"
    assert private.stat().st_mode & 0o777 == 0o700
    assert len(compiled(private / "kernels")) == 1
    out, err = start(installation, **places).communicate()
    assert (out.strip(), err) == ("7", "")


def test_the_places_are_the_package_the_users_cache_and_a_private_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    assert cache.candidates() == [
        Path(cache.__file__).parent / "__pycache__",
        tmp_path / "home" / ".cache" / "minikafka" / "kernels",
        tmp_path / "t" / f"minikafka-{os.getuid()}" / "kernels",
    ]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache.candidates()[1] == tmp_path / "x" / "minikafka" / "kernels"


def test_the_first_place_that_can_be_written_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    places = [tmp_path / "file" / "a", tmp_path / "b", tmp_path / "c"]
    monkeypatch.setattr(cache, "candidates", lambda: places)
    chosen = cache.choose()
    assert chosen is not None
    assert chosen.parent == tmp_path / "b"
    assert not (tmp_path / "c").exists()


def test_with_no_place_to_write_there_is_no_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(cache, "candidates", lambda: [tmp_path / "file" / "a"])
    assert cache.prepare() is None


def test_a_machine_without_temporary_directory_still_has_the_other_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    assert len(cache.candidates()) == 2
    monkeypatch.setattr(cache, "candidates", lambda: [tmp_path])
    assert cache.choose() is not None


def test_a_private_directory_that_others_can_write_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    private = tmp_path / f"minikafka-{os.getuid()}"
    monkeypatch.setattr(cache, "candidates", lambda: [private / "kernels"])
    private.mkdir()
    private.chmod(0o777)
    assert cache.choose() is None
    private.chmod(0o700)
    assert cache.choose() is not None


def test_a_symlink_in_place_of_the_private_directory_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    private = tmp_path / f"minikafka-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    private.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(cache, "candidates", lambda: [private / "kernels"])
    assert cache.choose() is None


def test_a_child_that_fails_is_reported_and_leaves_nothing_marked_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "candidates", lambda: [tmp_path])
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert cache.prepare() is None
    assert compiled(tmp_path) == []
    assert "this one compiles for itself" in capsys.readouterr().err


def test_what_was_kept_is_found_again_and_starts_no_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "candidates", lambda: [tmp_path])
    chosen = cache.choose()
    assert chosen is not None
    codes = {"find": Code("find_1", ("PyErr_Clear",), bytes(range(256))), "scan": Code("scan_1", (), b"")}
    cache.keep(chosen, codes)
    monkeypatch.setattr(sys, "executable", None)
    assert cache.prepare() == codes
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("left", [b"", bytes(100), b'{"find": ["find_1", [], "AAA', b"[]", b'{"find": 3}'])
def test_what_a_power_cut_left_of_the_machine_code_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: bytes
) -> None:
    codes = {"find": Code("find_1", (), b"code")}
    monkeypatch.setattr(cache, "candidates", lambda: [tmp_path])
    monkeypatch.setattr(cache, "_compile_in_children", lambda directory: cache.keep(directory, codes))
    assert cache.prepare() == codes
    (file,) = compiled(tmp_path)
    file.write_bytes(left)
    assert cache.prepare() == codes


def test_machine_code_that_is_there_is_used_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "candidates", lambda: [tmp_path])
    chosen = cache.choose()
    assert chosen is not None
    cache.keep(chosen, {})

    def full(**_: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert cache.choose() == chosen


def test_directories_of_older_states_do_not_pile_up(tmp_path: Path) -> None:
    for age in range(9):
        old = tmp_path / f"kernels-{age}"
        old.mkdir()
        os.utime(old, (1_000_000 - age, 1_000_000 - age))
    cache._remove_old_states(tmp_path / "kernels-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"kernels-{i}" for i in (0, 1, 2, 8)]


def test_there_are_few_kernels() -> None:
    kernels.warm_up()
    found = [
        value
        for module in (kernels.read, kernels.write, kernels.batches, kernels.hashing)
        for value in vars(module).values()
        if isinstance(value, Kernel)
    ]
    assert 8 <= len(found) <= 17


@pytest.mark.process
def test_kernels_that_were_compiled_before_need_no_numba() -> None:
    kernels.warm_up()
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {USE}; print('numba' in sys.modules)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["7", "False"], done.stderr


@pytest.mark.process
def test_kernels_and_a_numba_of_the_users_do_not_disturb_each_other() -> None:
    """Both name the functions of numba's run time, in one LLVM, and numba's must be numba's."""
    users = "import numba; f = numba.njit(lambda x: 1 // x); assert f(1) == 1"
    # numba's errors go through the functions that kernels only name.
    fails = (
        "import contextlib\nwith contextlib.suppress(ZeroDivisionError):\n    f(0)\n    raise SystemExit(3)"
    )
    for program in (f"{users}\n{USE}\n{fails}", f"{USE}\n{users}\n{fails}\n{USE}"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros(8, np.int64), "int64"),
        (np.zeros((2, 4), np.uint8), r"\[2, 4\]"),
        (np.zeros(8, np.uint8)[::2], "C_CONTIGUOUS : False"),
    ],
)
def test_a_kernel_refuses_an_array_that_its_machine_code_would_misread(array: Any, why: str) -> None:
    with pytest.raises(TypeError, match=f"(?s)measure does not take.*{why}"):
        kernels.read.measure(array, np.zeros(3, np.int64))


def test_a_kernel_refuses_to_write_into_what_is_read_only() -> None:
    frozen = np.zeros(3, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match="measure does not take"):
        kernels.read.measure(np.zeros(8, np.uint8), frozen)


def test_a_kernel_refuses_a_wrong_number_of_arguments() -> None:
    with pytest.raises(ValueError, match="argument"):
        kernels.read.measure(np.zeros(8, np.uint8))


def test_a_name_that_is_no_module_of_kernels_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kernels.__getattr__("nothing")


GUARDED = '''
import ctypes, mmap, random, struct, sys
import numpy as np
from minikafka.base.errors import BrokerError
from minikafka.records import columns, conversion, scan, validation
from tests.oracles import batches, messages as oracle

page = mmap.PAGESIZE
area = mmap.mmap(-1, 16 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
assert ctypes.CDLL(None, use_errno=True).mprotect(
    ctypes.c_void_p(address + 15 * page), ctypes.c_size_t(page), 0) == 0
view = memoryview(area)[: 15 * page]

def guarded(data):
    """A writable copy whose last byte is the last one that may be touched."""
    end = view[len(view) - len(data):]
    end[:] = data
    return end

if sys.argv[1] == "break":
    np.frombuffer(area, np.uint8)[15 * page]

source = random.Random(int(sys.argv[1]))
good = b"".join(
    oracle.message_set([oracle.Message(5 * k + i, 9, 0, b"k" * i or None, b"v" * (i * 9)) for i in range(4)],
                       magic=k % 2, codec=k % 3) for k in range(6))
classic = len(good)
good += b"".join(
    batches.batch([oracle.Message(40 + 5 * k + i, 9 + i, 0, b"k" * i or None, b"v" * (i * 9),
                                  [("h" * j, b"c" * j or None) for j in range(i)]) for i in range(4)],
                  batches.Batch(codec=k % 2, control=k == 2)) for k in range(4))
newest = validation.Limits(max_magic=2)
calls = [
    lambda d: columns.decode(d, 0, 1 << 40, check_crc=False),
    lambda d: columns.decode(d, 2, 1 << 40),
    lambda d: validation.assign(validation.validate(d, validation.Limits(), 0), 3),
    lambda d: scan.scan(d, base_offset=0, check_crc=False, index_interval_bytes=1),
    lambda d: scan.scan(d, base_offset=0),
    lambda d: scan.find_position(d, 1 << 40),
    lambda d: scan.first_at_or_after(d, 8),
    conversion.down_convert,
    lambda d: conversion.down_convert(d, 1),
    lambda d: columns.decode(d, 0, 1 << 40, check_crc=False, headers=True).record_batch(
        "t", 0, columns.SCHEMA_WITH_HEADERS),
    lambda d: validation.assign(validation.validate(d, newest, 0), 3),
    lambda d: scan.scan(d, base_offset=0, check_crc=False, index_interval_bytes=1, max_magic=2),
]
ends = [0, -1, 1, 0x7FFFFFFF, -0x80000000, 13, 14, 26]
for turn in range(600):
    # From the first byte of one of its two halves, so that a batch often comes first.
    start = source.choice([0, classic])
    data = bytearray(good[start : source.randrange(start, len(good) + 1)])
    for _ in range(source.randrange(4)):
        if len(data) > 4:
            at = source.randrange(len(data) - 4)
            if source.random() < 0.5:
                data[at] = source.randrange(256)
            elif source.random() < 0.5:
                data[at : at + 4] = b"\\xff" * source.randrange(5)  # a varint that goes on
            else:
                data[at : at + 4] = struct.pack(">i", source.choice(ends))
    if source.random() < 0.5:
        data = oracle.repaired(bytes(data))
    for call in calls:
        try:
            call(guarded(data))
        except BrokerError:
            pass
print("done")
'''


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="mprotect through ctypes is tried on Linux only")
def test_no_kernel_touches_a_byte_beyond_its_data() -> None:
    root = Path(__file__).resolve().parents[3]
    path = os.pathsep.join([str(root), str(Path(minikafka.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}

    def run(argument: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", GUARDED, argument], env=environment, capture_output=True, text=True
        )

    # The guard itself is shown to work first: one byte further kills the process.
    assert run("break").returncode < 0
    seed = str(int.from_bytes(os.urandom(4), "big"))
    done = run(seed)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), f"seed {seed}: {done.stderr}"
