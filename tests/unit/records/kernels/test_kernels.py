"""The cache of compiled kernels, their compilation, and their bounds."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minikafka
from minikafka.base import cache_dirs
from minikafka.records import kernels
from minikafka.records.format.checksums import CRC32_TABLES
from minikafka.records.kernels import cache, decode_status, native
from minikafka.records.kernels.native import Kernel
from tests.support.kernel_code import CODES, ONE_GIVES, USE_ONE, modules, names_of_kernels, start, use_places
from tests.support.raising import raising

USE = (
    "from minikafka.records.format.message_set import Record, build_message_set as build; "
    "from minikafka.records.append.produced import Limits; "
    "from minikafka.records.append.validation import validate; "
    "print(validate(build([Record(None, b'v')] * 7), Limits(), 0).count)"
)


def announced(said: str) -> list[str]:
    """Return the lines of stderr but for the progress, which a compilation of ten seconds reports."""
    progress = re.compile(r"minikafka: compiling kernels: \d+ of \d+")
    return [line for line in said.splitlines() if progress.fullmatch(line) is None]


def compiled(place: Path) -> list[Path]:
    return list(place.glob("kernels-*/code.json"))


@pytest.mark.process
def test_one_of_many_starting_processes_compiles_the_kernels(installation: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    said = ""
    for process in [start(installation, **home) for _ in range(2)]:
        out, err = process.communicate()
        assert (process.returncode, out.strip()) == (0, ONE_GIVES), err
        said += err
    (line,) = announced(said)
    assert line.startswith("minikafka: compiling kernels, once for this machine")
    assert len(compiled(tmp_path / ".cache" / "minikafka" / "kernels")) == 1
    out, err = start(installation, **home).communicate()
    assert (out.strip(), err) == (ONE_GIVES, "")


@pytest.mark.process
def test_read_only_installation_and_home_use_private_directory(installation: Path, tmp_path: Path) -> None:
    # A file where the directory would be refuses everybody, also root, whom no permission stops.
    (installation / "records" / "kernels" / "__pycache__").write_bytes(b"")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    places = {"HOME": os.devnull, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    out, err = start(installation, **places).communicate()
    assert out.strip() == ONE_GIVES, err
    assert len(announced(err)) == 1
    private = temporary / f"minikafka-{os.getuid()}"
    assert private.stat().st_mode & 0o777 == 0o700
    assert len(compiled(private / "kernels")) == 1
    out, err = start(installation, **places).communicate()
    assert (out.strip(), err) == (ONE_GIVES, "")


@pytest.mark.process
def test_without_writable_directory_kernels_work_with_a_hint(installation: Path) -> None:
    (installation / "records" / "kernels" / "__pycache__").write_bytes(b"")
    program = f"""if True:
        import pathlib, tempfile
        tempfile._candidate_tempdir_list = lambda: []
        from minikafka.base import cache_dirs
        cache_dirs.SHARED_MEMORY = pathlib.Path({os.devnull!r})
        {USE_ONE}
    """
    out, err = start(installation, program, HOME=os.devnull, PYTHONDONTWRITEBYTECODE="1").communicate()
    assert out.strip() == ONE_GIVES, err
    (line,) = err.splitlines()
    assert "none of these directories is writable" in line
    assert "python -m minikafka.records.kernels" in line


@pytest.mark.process
def test_sources_in_an_archive_are_compiled_too(installation: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "sources"), "zip", installation.parent))
    out, err = start(archive / "minikafka", XDG_CACHE_HOME=str(tmp_path / "cache")).communicate()
    assert out.strip() == ONE_GIVES, err
    assert len(compiled(tmp_path / "cache" / "minikafka" / "kernels")) == 1


def test_users_cache_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    beside = Path(cache.__file__).parent / "__pycache__"
    users, *private = cache_dirs.candidates("kernels")
    assert users == tmp_path / "minikafka" / "kernels"
    assert cache.candidates() == [users, beside, *private]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative, so there is none")
    assert cache.candidates() == [beside, *private]


@pytest.mark.process
def test_kernels_in_the_installation_are_found_without_a_home(installation: Path) -> None:
    made = start(
        installation, "import runpy; runpy.run_module('minikafka.records.kernels', run_name='__main__')"
    )
    out, err = made.communicate()
    (file,) = compiled(installation / "records" / "kernels" / "__pycache__")
    assert (made.returncode, out) == (0, f"{file}\n"), err
    out, err = start(installation, HOME=os.devnull, PYTHONDONTWRITEBYTECODE="1").communicate()
    assert (out.strip(), err) == (ONE_GIVES, "")


def test_the_first_place_that_can_be_written_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    use_places(monkeypatch, tmp_path / "file" / "a", tmp_path / "b", tmp_path / "c")
    assert cache.machine_code() == CODES
    assert [directory.parent for directory in compilations] == [tmp_path / "b"]


def test_with_no_place_to_write_the_process_compiles_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    use_places(monkeypatch, tmp_path / "file" / "a")
    assert cache.machine_code() is None
    assert compilations == []


def test_a_child_that_fails_is_reported_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_places(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    assert cache.machine_code() is None
    assert [path.name for path in tmp_path.glob("*/*")] == ["lock"]
    assert "failed to compile kernels in child processes" in capsys.readouterr().err


def test_waiting_for_a_failed_compilation_does_not_repeat_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    """On a full disk a hundred workers would else do so one after the other."""
    use_places(monkeypatch, tmp_path)
    lock_as_ever = fcntl.flock

    attempts: list[int] = []
    reports: list[dict[str, object]] = []

    def lock_after_a_wait(handle: int, operation: int) -> None:
        attempts.append(handle)
        if len(attempts) < 4:
            os.pwrite(handle, b'{"done": 5, "of": 17}', 0)
            raise BlockingIOError
        lock_as_ever(handle, operation)

    monkeypatch.setattr(fcntl, "flock", lock_after_a_wait)
    monkeypatch.setattr(cache, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(cache, "report", lambda kind, **fields: reports.append({"type": kind, **fields}))
    assert cache.machine_code() is None
    assert compilations == []
    assert reports == [{"type": "compiling", "done": 5, "of": 17}], "whoever started this one waits too"


def test_without_file_locks_the_process_compiles_for_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    use_places(monkeypatch, tmp_path)
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, "no locks available")))
    assert cache.machine_code() is None


def test_users_cache_and_installation_share_their_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    """Another environment of the user compiles nothing, nor does another user of the environment."""
    (tmp_path / "file").write_bytes(b"")
    for chosen in (["a", "b"], ["b"], ["b", "c"], ["c"], ["file/x", "c"]):
        use_places(monkeypatch, *(tmp_path / name for name in chosen))
        assert cache.machine_code() == CODES
    assert [directory.parent for directory in compilations] == [tmp_path / "a"]


def test_stored_code_is_found_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    use_places(monkeypatch, tmp_path)
    assert cache.machine_code() == cache.machine_code() == CODES
    assert len(compilations) == 1


@pytest.mark.parametrize("left", [b"", bytes(100), b'{"sum": "0", "codes": {}}', b"[]", b'{"sum": 3}'])
def test_machine_code_that_was_damaged_is_compiled_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path], left: bytes
) -> None:
    use_places(monkeypatch, tmp_path)
    cache.machine_code()
    (file,) = compiled(tmp_path)
    file.write_bytes(left)
    assert cache.machine_code() == CODES
    assert len(compilations) == 2


def test_a_single_changed_letter_of_machine_code_is_noticed(tmp_path: Path) -> None:
    cache.keep(tmp_path, CODES)
    file = tmp_path / "code.json"
    text = file.read_text()
    file.write_text(text.replace("AAEC", "AAED", 1))
    assert cache.kept(tmp_path) is None


def test_machine_code_of_another_state_is_not_taken(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    cache.keep(tmp_path / "old", CODES)
    (tmp_path / "old" / "code.json").rename(tmp_path / "new" / "code.json")
    assert cache.kept(tmp_path / "new") is None


def test_machine_code_that_others_can_write_to_is_not_run(tmp_path: Path) -> None:
    cache.keep(tmp_path, CODES)
    (tmp_path / "code.json").chmod(0o666)
    assert cache.kept(tmp_path) is None


def test_machine_code_of_another_user_is_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache.keep(tmp_path, CODES)
    owner = os.stat(tmp_path).st_uid
    if owner == 0:
        pytest.skip("what root wrote is run by everybody")
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert cache.kept(tmp_path) is None


def test_stored_code_is_not_writable_by_others_at_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache.keep(tmp_path, CODES)
    finally:
        os.umask(before)
    assert (tmp_path / "code.json").stat().st_mode & 0o777 == 0o644


def test_existing_code_is_used_if_nothing_is_writable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compilations: list[Path]
) -> None:
    use_places(monkeypatch, tmp_path)
    cache.machine_code()
    monkeypatch.setattr(cache_dirs, "is_writable", lambda *_: False)
    assert cache.machine_code() == CODES
    assert len(compilations) == 1


@pytest.mark.process
def test_a_child_imports_nothing_from_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The directory where a program starts may be anybody's."""
    (tmp_path / "numba.py").write_text("raise SystemExit('another module named numba')")
    (tmp_path / "parts").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "_SHARES", (("hashing",),))
    reports: list[dict[str, object]] = []
    monkeypatch.setattr(cache, "report", lambda kind, **fields: reports.append({"type": kind, **fields}))
    lock = cache_dirs.open_lock(tmp_path / "lock")
    try:
        codes = cache._compiled_in_children(tmp_path / "parts", cache._Progress(lock), None)
    finally:
        os.close(lock)
    assert set(codes) == {"key_partitions", "checksum"}
    kernels.warm_up()
    known = len({name for module in modules() for name in names_of_kernels(module)})
    assert reports == [{"type": "compiling", "done": done, "of": known} for done in range(3)]
    assert (tmp_path / "lock").read_bytes() == b'{"done": 2, "of": %d}' % known


def test_a_compilation_that_gets_no_further_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "_STEP_SECONDS_MAX", 0.01)
    reading, writing = os.pipe()
    lock = cache_dirs.open_lock(tmp_path / "lock")
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            cache._follow(reading, cache._Progress(lock))
    finally:
        for descriptor in (reading, writing, lock):
            os.close(descriptor)


def test_fifo_in_place_of_code_or_lock_does_not_block(tmp_path: Path) -> None:
    for name in ("code.json", "lock"):
        os.mkfifo(tmp_path / name, 0o600)
    assert cache.kept(tmp_path) is None
    assert cache._compiled_once(tmp_path) is None


def test_directories_of_older_states_do_not_pile_up(tmp_path: Path) -> None:
    """Five others, a day apart: machines of several kinds may share the place."""
    for age in range(9):
        old = tmp_path / f"kernels-{age}"
        old.mkdir()
        os.utime(old, (10_000_000 - 90_000 * age, 10_000_000 - 90_000 * age))
    cache._remove_old_states(tmp_path / "kernels-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"kernels-{i}" for i in (0, 1, 2, 3, 8)]


def test_states_of_the_last_day_are_kept_however_many_they_are(tmp_path: Path) -> None:
    for age in range(9):
        (tmp_path / f"kernels-{age}").mkdir()
    cache._remove_old_states(tmp_path / "kernels-0")
    assert len(list(tmp_path.iterdir())) == 9


def test_there_are_few_kernels() -> None:
    kernels.warm_up()
    found = [value for module in modules() for value in vars(module).values() if isinstance(value, Kernel)]
    assert 8 <= len(found) <= 35


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
def test_kernels_coexist_with_the_users_numba() -> None:
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
        (np.frombuffer(bytes(17), np.uint8)[1:].view(">i8"), ">i8"),
        ([1, 2, 3], "an array"),
        (b"bytes", "an array"),
    ],
)
def test_kernel_refuses_an_array_of_the_wrong_kind(array: Any, why: str) -> None:
    with pytest.raises(TypeError, match=f"(?s)measure: .*{why}"):
        kernels.read.measure(array, np.zeros(3, np.int64))


def test_kernel_refuses_to_write_to_a_read_only_array() -> None:
    frozen = np.zeros(3, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match="measure: unexpected array"):
        kernels.read.measure(np.zeros(8, np.uint8), frozen)


def test_a_kernel_refuses_an_array_whose_items_are_not_aligned() -> None:
    odd = np.frombuffer(bytearray(25), np.uint8)[1:].view(np.int64)
    with pytest.raises(TypeError, match="ALIGNED : False"):
        kernels.read.measure(np.zeros(8, np.uint8), odd)


@pytest.mark.parametrize("number", [2.9, "5", 1 << 63])
def test_kernel_refuses_anything_but_64_bit_integers(number: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        kernels.hashing.checksum(CRC32_TABLES, np.zeros(8, np.uint8), number)


def test_a_kernel_takes_its_arrays_from_where_they_are() -> None:
    """The address is read from numpy's own object: it must be the one that numpy tells."""
    for array in (np.zeros(5, np.int64), np.arange(7, dtype=np.uint8)[3:], np.zeros(0, np.int32)):
        assert native._address_at(id(array) + native._ADDRESS_AT).value == array.ctypes.data


def test_prepared_call_is_repeated_with_other_arrays() -> None:
    data, measured = np.zeros(0, np.uint8), np.zeros(kernels.read.MEASURED_SIZE, np.int64)
    call = kernels.read.measure.prepared(data, measured)
    assert call() == call() == decode_status.END
    cut_off = np.zeros(8, np.uint8)
    call.replace(0, cut_off)
    assert call() == kernels.read.measure(cut_off, measured) == decode_status.PARTIAL
    with pytest.raises(TypeError, match="measure: unexpected array"):
        call.replace(0, np.zeros(8, np.int64))
    with pytest.raises(TypeError, match="measure: expected an array"):
        kernels.read.measure.prepared(b"bytes", measured)


def test_a_kernel_refuses_a_wrong_number_of_arguments() -> None:
    with pytest.raises(ValueError, match="argument"):
        kernels.read.measure(np.zeros(8, np.uint8))


def test_unknown_kernel_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kernels.__getattr__("nothing")


GUARDED = '''
import ctypes, mmap, random, struct, sys
import numpy as np
from minikafka.base.errors import BrokerError
from minikafka.records import columns, compaction
from minikafka.records.append import conversion, validation
from minikafka.records.format import compression
from minikafka.records.scan import scan
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
                  batches.Batch(codec=k % 2, control=k == 2, transactional=k > 2, producer_id=k - 1))
    for k in range(4))
newest = validation.Limits(max_magic=2)
older = [validation.Limits(max_magic=2, magic=magic, codec=compression.Codec.NONE) for magic in (0, 1)]
offsets = compaction.OffsetMap(9 * compaction.SLOT_BYTES)
transactions = compaction.Transactions(3)

def map_keys(d):
    offsets.begin(3)
    offsets.add(d, 44, lambda: transactions)

def filter_records(d):
    record_filter = compaction.RecordFilter(
        offsets, now_ms=10, delete_retention_ms=5, transactions=transactions)
    record_filter.tombstones_stay = False
    record_filter.filter(d)

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
    lambda d: validation.assign(validation.validate(d, older[0], 0), 3),
    lambda d: validation.assign(validation.validate(d, older[1], 0), 3),
    lambda d: scan.scan(d, base_offset=0, check_crc=False, index_interval_bytes=1, max_magic=2),
    map_keys,
    filter_records,
    transactions.add,
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
