"""The check of files and whole data directories: minikafka's own, and those of Apache Kafka."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.files import File, Files, RealFiles, read_file
from minikafka.base.ids import TopicPartition
from minikafka.base.memory_files import MemoryFiles
from minikafka.log.layout import Layout
from minikafka.log.tools.verify import (
    Finding,
    PartitionReport,
    data_directories,
    list_directory,
    verify_checkpoints,
    verify_file,
    verify_partitions,
)
from minikafka.records.format.message_set import Codec, Record, build_message_set
from tests.support.logs import DATA, NOW_MS, ONE, OTHER, TWO, fill, manager_of
from tests.support.transactions import abort, end_transaction, write_in_transaction

LOG_DIR = str(DATA / "log-dir" / "data")
CLASSIC, APACHE = Layout.CLASSIC, Layout.APACHE


@pytest.fixture(params=[CLASSIC, APACHE], ids=["classic", "apache"])
def layout(request: pytest.FixtureRequest) -> Layout:
    found: Layout = request.param
    return found


def made(layout: Layout = CLASSIC, *, closed: bool = True) -> MemoryFiles:
    """A data directory ``d1`` with three partitions of several segments; 50 messages in each but the last."""
    files = MemoryFiles()
    manager = manager_of(files, layout=layout)
    fill(manager.create(ONE), 50)
    fill(manager.create(TWO), 50, codec=Codec.GZIP, size=200)
    manager.create(OTHER)
    if closed:
        manager.close()
    return files


def verified(
    files: Files, path: str = "d1", *, in_use: bool = False
) -> tuple[dict[TopicPartition, PartitionReport], list[str], list[str]]:
    """Return the reports, the texts of problems, and those of notes."""
    found = list_directory(files, path)
    reports = list(verify_partitions(files, found, in_use=in_use))
    findings = list(found.findings)
    for report in reports:
        findings += report.findings
    findings += verify_checkpoints(found, reports, in_use=in_use)
    problems = [finding.text for finding in findings if not finding.note]
    return (
        {report.partition: report for report in reports},
        problems,
        [finding.text for finding in findings if finding.note],
    )


def segments(files: Files, layout: Layout, partition: TopicPartition = ONE) -> list[str]:
    home = f"d1/{layout.directory_name(partition)}"
    return [f"{home}/{name}" for name in files.list_dir(home) if layout.segment_base(name) is not None]


def overwrite(files: Files, path: str, data: bytes, position: int = 0) -> None:
    files.open(path, create=True).write_at(position, data)


def test_cleanly_closed_directory_has_no_problems(layout: Layout) -> None:
    files = made(layout)
    reports, problems, notes = verified(files)
    assert (problems, notes) == ([], [])
    one = reports[ONE]
    assert (one.start_offset, one.end_offset, one.records) == (0, 50, 50)
    assert one.segments == len(segments(files, layout)) > 1
    assert one.size_bytes == sum(len(read_file(files, path)) for path in segments(files, layout))
    assert (reports[OTHER].end_offset, reports[OTHER].segments) == (0, 1)


def test_directory_of_a_killed_broker_has_no_problems(layout: Layout) -> None:
    assert verified(made(layout, closed=False))[1] == []


def test_nothing_is_written() -> None:
    files = made()
    before = {path: read_file(files, path) for path in segments(files, CLASSIC)}
    names = files.list_dir("d1") + files.list_dir("d1/my_topic_0")
    verified(files)
    assert {path: read_file(files, path) for path in before} == before
    assert files.list_dir("d1") + files.list_dir("d1/my_topic_0") == names


def test_a_real_brokers_data_directory_is_right() -> None:
    reports, problems, notes = verified(RealFiles(), LOG_DIR)
    assert (problems, notes) == ([], [])
    ends = {str(one): (report.start_offset, report.end_offset) for one, report in reports.items()}
    assert ends == {"alpha-0": (0, 250), "alpha-1": (0, 250), "beta-0": (397, 600), "beta-1": (392, 600)}


def test_all_bytes_are_told_as_they_are_checked() -> None:
    files = made()
    found = list_directory(files, "d1")
    checked: list[int] = []
    reports = list(verify_partitions(files, found, on_bytes=checked.append))
    assert sum(checked) == found.total_bytes == sum(report.size_bytes for report in reports)


def test_damage_is_told_with_file_and_position(layout: Layout) -> None:
    files = made(layout)
    path = segments(files, layout)[1]
    overwrite(files, path, b"\xff\xff\xff", 40)
    reports, problems, _ = verified(files)
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}: ")
    assert "from position 0 are damaged" in problems[0]
    assert reports[ONE].records == 49


def test_an_index_that_leads_astray_is_told(layout: Layout) -> None:
    files = made(layout)
    index = segments(files, layout)[0].replace(layout.segment_suffix, ".index")
    overwrite(files, index, struct.pack(">ii", 3, 17))
    (problem,) = verified(files)[1]
    assert problem.startswith(f"{index}: 8 bytes from position 0 are damaged: offset 3, position 17")


def test_a_full_segments_time_index_must_end_with_its_largest_time(layout: Layout) -> None:
    files = made(layout)
    oldest, *_, newest = [
        path.replace(layout.segment_suffix, ".timeindex") for path in segments(files, layout)
    ]
    for path in (oldest, newest):
        files.open(path).truncate(0)
    (problem,) = verified(files)[1]
    assert problem.startswith(f"{oldest}: the last timestamp is -1, the largest of the segment is")


def test_room_taken_beforehand_in_index_files_is_right(layout: Layout) -> None:
    files = made(layout)
    for path in segments(files, layout):
        for suffix in (".index", ".timeindex"):
            index = path.replace(layout.segment_suffix, suffix)
            if files.exists(index):
                files.open(index).truncate(10_240)
    assert verified(files)[1] == []


def test_a_hole_between_segments_is_a_note_and_an_overlap_a_problem(layout: Layout) -> None:
    files = made(layout)
    first, second, *_ = segments(files, layout)
    for path in (
        second,
        *[second.replace(layout.segment_suffix, suffix) for suffix in (".index", ".timeindex")],
    ):
        if files.exists(path):
            files.remove(path)
    _, problems, notes = verified(files)
    assert problems == []
    assert [note for note in notes if "are missing" in note]
    files = made(layout)
    data = read_file(files, first)
    overwrite(files, second, data)
    _, problems, _ = verified(files)
    assert any(problem.startswith(f"{second}: ") for problem in problems)


def test_segments_whose_offsets_overlap_are_told(layout: Layout) -> None:
    files = made(layout)
    second = segments(files, layout)[1]
    base = layout.segment_base(second.rpartition("/")[2])
    assert base is not None
    files.rename(second, f"{second.rpartition('/')[0]}/{layout.segment_name(base - 2)}")
    problems = verified(files)[1]
    assert any(f"the segment before it reaches offset {base - 1}" in problem for problem in problems)


def test_an_index_without_its_segment_is_told(layout: Layout) -> None:
    files = made(layout)
    overwrite(files, f"d1/{layout.directory_name(ONE)}/{layout.time_index_name(7777)}", b"")
    (problem,) = verified(files)[1]
    assert problem.endswith(f"{layout.time_index_name(7777)}: its segment is missing")


def test_leftover_files_are_listed(layout: Layout) -> None:
    files = made(layout)
    home = f"d1/{layout.directory_name(ONE)}"
    left = [layout.segment_name(9) + suffix for suffix in (".deleted", ".cleaned", ".swap", ".corrupt")]
    for name in left:
        overwrite(files, f"{home}/{name}", b"x")
    files.make_dirs("d1/gone.3-delete")
    files.make_dirs("d1/nonsense")
    _, problems, notes = verified(files)
    assert problems == []
    for name in [*left, "gone.3-delete", "nonsense"]:
        assert [note for note in notes if f"/{name}: " in note]


CHECKPOINT = "0\n2\nmy_topic 0 {}\n{} 0 0\n"


@pytest.mark.parametrize("name", ["recovery-point", "replication", "cleaner", "log-start"])
def test_a_checkpoint_beyond_the_end_of_its_log_is_told(name: str) -> None:
    files = made()
    path = f"d1/{name}-offset-checkpoint"
    overwrite(files, path, CHECKPOINT.format(51, "other").encode())
    files.open(path).truncate(len(CHECKPOINT.format(51, "other")))
    assert verified(files)[1] == [f"{path}: my_topic-0 at offset 51, its log ends at offset 50"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("recovery-point", True), ("replication", True), ("cleaner", False), ("log-start", False)],
)
def test_a_checkpoint_of_a_partition_that_is_not_here_is_told(name: str, problem: bool) -> None:
    files = made()
    path, text = f"d1/{name}-offset-checkpoint", CHECKPOINT.format(50, "gone").encode()
    overwrite(files, path, text)
    files.open(path).truncate(len(text))
    _, problems, notes = verified(files)
    assert (problems if problem else notes) == [f"{path}: gone-0 at offset 0 is not in this directory"]
    files.make_dirs("d1/gone_0.7-delete")
    assert verified(files)[1] == []


def test_a_checkpoint_that_makes_no_sense_is_told() -> None:
    files = made()
    overwrite(files, "d1/replication-offset-checkpoint", b"zero\n")
    overwrite(files, "d1/meta.properties", b"nonsense\n")
    problems = verified(files)[1]
    assert len(problems) == 2
    assert any("replication-offset-checkpoint is not a checkpoint file" in problem for problem in problems)


def test_a_log_begins_where_its_start_offset_says() -> None:
    files = made()
    overwrite(files, "d1/log-start-offset-checkpoint", b"0\n1\nmy_topic 0 7\n")
    reports, problems, _ = verified(files)
    assert (problems, reports[ONE].start_offset, reports[TWO].start_offset) == ([], 7, 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"0\n2\n0 0\n3 50\n", None),
        (b"0\n1\n4 51\n", "epoch 4 begins at offset 51, the log ends at offset 50"),
        (b"0\n2\n3 0\n2 5\n", "is out of order"),
    ],
)
def test_leader_epochs_rise_and_begin_in_the_log(text: bytes, problem: str | None) -> None:
    files = made()
    path = "d1/my_topic_0/leader-epoch-checkpoint"
    if files.exists(path):
        files.remove(path)
    overwrite(files, path, text)
    problems = verified(files)[1]
    assert [problem in text for text in problems] == [True] if problem else problems == []


def test_a_topic_id_that_is_not_valid_is_told() -> None:
    files = made()
    overwrite(files, "d1/my_topic_0/partition.metadata", b"version: 0\ntopic_id: VNuEZmGWSK2D6MQIPJRByA")
    assert verified(files)[1] == []
    overwrite(files, "d1/my_topic_0/partition.metadata", b"version: 0\ntopic_id: ?NuEZmGWSK2D6MQIPJRByA")
    (problem,) = verified(files)[1]
    assert problem.startswith("d1/my_topic_0/partition.metadata is not a partition metadata file")


def test_a_damaged_snapshot_and_transaction_index_are_told() -> None:
    files = made()
    overwrite(files, "d1/my_topic_0/00000000000000000050.snapshot", struct.pack(">hIi", 1, 7, 0))
    entry = struct.pack(">hqqqq", 0, 1, 8, 5, 9)
    overwrite(files, "d1/my_topic_0/00000000000000000000.txnindex", entry)
    problems = verified(files)[1]
    assert len(problems) == 2
    assert "checksum" in problems[1]
    assert "offsets 8 to 5 cannot follow offset -1" in problems[0]


TRANSACTIONS = "d1/my_topic_0/00000000000.txnindex"


def with_transactions() -> MemoryFiles:
    """A data directory with aborted transactions in the first and the last of three segments."""
    files = MemoryFiles()
    manager = manager_of(files)
    log = manager.create(ONE)
    write_in_transaction(log, 1)
    abort(log, 2)
    log.roll()
    write_in_transaction(log, 1)
    log.roll()
    end_transaction(log, 1, commit=False)
    abort(log, 3)
    manager.close()
    return files


def test_transaction_indexes_of_a_closed_log_have_no_problems() -> None:
    assert verified(with_transactions())[1:] == ([], [])


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ((2, 1, 1, 0), "no marker at the last offset aborts a transaction of it"),
        ((1, 0, 2, 0), "no marker at the last offset aborts a transaction of it"),
        ((2, 2, 2, 0), "the transaction has a batch at offset 1"),
    ],
)
def test_entry_of_another_transaction_is_a_problem(entry: tuple[int, ...], problem: str) -> None:
    files = with_transactions()
    overwrite(files, TRANSACTIONS, struct.pack(">hqqqq", 0, *entry))
    problems = verified(files)[1]
    assert problem in problems[0]
    assert problems[0].startswith(TRANSACTIONS)


@pytest.mark.parametrize("removed", [False, True])
def test_aborted_transaction_without_an_entry_is_a_problem(removed: bool) -> None:
    files = with_transactions()
    path = "d1/my_topic_0/00000000004.txnindex"
    if removed:
        files.remove(path)
    else:
        files.open(path).truncate(34)
    problems = verified(files)[1]
    assert len(problems) == 1 + removed
    assert problems[-1] == (
        f"{path}: no entry for producer 3, whose transaction from offset 5 is aborted at offset 6: consumers "
        "of committed records may see it"
    )
    assert verified(files, in_use=True)[1] == []


def test_a_log_of_a_release_without_transaction_indexes_is_right() -> None:
    files = with_transactions()
    for name in files.list_dir("d1/my_topic_0"):
        if name.endswith(".txnindex"):
            files.remove(f"d1/my_topic_0/{name}")
    assert verified(files)[1:] == ([], [])


def test_a_transaction_index_without_its_segment_is_a_problem() -> None:
    files = with_transactions()
    files.open("d1/my_topic_0/00000000077.txnindex", create=True)
    assert verified(files)[1] == ["d1/my_topic_0/00000000077.txnindex: its segment is missing"]


@pytest.mark.parametrize("tail", [b"\0\0\0", b"\0" * 500, struct.pack(">qi", 50, 90) + b"abc"])
def test_a_half_written_end_is_damage_unless_a_broker_is_writing_it(tail: bytes) -> None:
    files = made()
    *_, newest = segments(files, CLASSIC)
    overwrite(files, newest, tail, len(read_file(files, newest)))
    assert len(verified(files)[1]) == 1
    _, problems, notes = verified(files, in_use=True)
    assert problems == []
    assert notes == [f"{newest}: {len(tail)} bytes at its end are being written"]


def test_a_wrong_checksum_is_damage_also_while_a_broker_writes() -> None:
    files = made()
    *_, newest = segments(files, CLASSIC)
    overwrite(files, newest, b"\xff", len(read_file(files, newest)) - 2)
    assert len(verified(files, in_use=True)[1]) == 1


def test_segments_removed_meanwhile_are_notes() -> None:
    files = made()
    found = list_directory(files, "d1")
    oldest, second, *rest = segments(files, CLASSIC)
    files.remove(oldest)
    reports = {report.partition: report for report in verify_partitions(files, found, in_use=True)}
    assert reports[ONE].findings == (Finding(f"{oldest}: removed while it was checked", note=True),)
    base = CLASSIC.segment_base(second.rpartition("/")[2])
    assert (reports[ONE].start_offset, reports[ONE].segments) == (base, 1 + len(rest))


class Replacing(MemoryFiles):
    """A compaction that replaces a segment and its index while they are checked."""

    segment = index = ""
    first_read = True

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> File:
        file = super().open(path, create=create, read_only=read_only, private=private)
        if read_only and path == self.index and self.first_read:
            self.first_read = False
            self.rename(self.segment + ".new", self.segment)
            self.rename(self.index + ".new", self.index)
        return file


def test_a_segment_that_is_replaced_meanwhile_is_looked_at_again() -> None:
    old, new = ([Record(None, b"x" * size, NOW_MS)] * 9 for size in (10, 20))
    files = Replacing()
    files.make_dirs("d1/t_0")
    files.segment, files.index = "d1/t_0/00000000000.kafka", "d1/t_0/00000000000.index"
    for suffix, records in (("", old), (".new", new)):
        data = build_message_set(records)
        overwrite(files, files.segment + suffix, data)
        overwrite(files, files.index + suffix, struct.pack(">ii", 3, len(data) // 3))
    (report,) = verify_partitions(files, list_directory(files, "d1"), in_use=True)
    assert report.findings == ()
    assert not files.first_read


def test_partitions_of_both_layouts_in_one_directory_are_told() -> None:
    files = made(CLASSIC)
    files.make_dirs("d1/x-0")
    overwrite(files, "d1/x-0/00000000000000000000.log", b"")
    (problem,) = verified(files)[1]
    assert "classic layout" in problem


def test_the_brokers_below_a_directory_are_found(files: MemoryFiles) -> None:
    manager_of(files, "D/broker-0").close()
    overwrite(files, "D/broker-0/meta.properties", b"version=0\nbroker.id=0\n")
    files.make_dirs("D/logs")
    assert data_directories(files, "D") == ["D/broker-0"]
    assert data_directories(files, "D/broker-0") == ["D/broker-0"]


@pytest.mark.parametrize("path", ["absent", "empty", "file"])
def test_directory_without_logs_is_refused(files: MemoryFiles, path: str) -> None:
    files.make_dirs("empty")
    overwrite(files, "file", b"x")
    with pytest.raises(ConfigError, match=r"no logs of a broker found|there is no such directory"):
        data_directories(files, path)


# Single files.


def report_of(files: Files, path: str) -> tuple[dict[str, object], list[str]]:
    report = verify_file(files, path)
    return dict(report.summary), [finding.text for finding in report.findings]


def test_the_summary_of_a_segment_names_what_it_holds() -> None:
    path = str(DATA / "segments" / "magic2-transactions.log")
    summary, problems = report_of(RealFiles(), path)
    assert problems == []
    assert summary == {
        "file": path,
        "kind": "segment",
        "bytes": 29768,
        "entries": 14,
        "records": 205,
        "first_offset": 0,
        "last_offset": 204,
        "largest_timestamp": 1795240025656,
        "codecs": ["none"],
        "magics": [2],
        "problems": 0,
    }


def test_an_index_is_checked_against_the_segment_beside_it(tmp_path: Path) -> None:
    for name in ("magic1-none", "magic1-gzip", "magic0-snappy"):
        segment = (DATA / "segments" / f"{name}.log").read_bytes()
        (tmp_path / "00000000000000000000.log").write_bytes(segment)
        index = (DATA / "log-index" / f"{name}.index").read_bytes()
        path = tmp_path / "00000000000000000000.index"
        path.write_bytes(index)
        summary, problems = report_of(RealFiles(), str(path))
        assert (summary["entries"], problems) == (len(index) // 8, [])
        path.write_bytes(index[:7] + bytes([index[7] ^ 1]) + index[8:])
        summary, problems = report_of(RealFiles(), str(path))
        assert summary["problems"] == len(problems) == 1


def test_every_file_of_a_real_brokers_data_directory_is_right() -> None:
    for path in sorted(Path(LOG_DIR).rglob("*")):
        if path.is_file() and path.name != ".kafka_cleanshutdown":
            summary, problems = report_of(RealFiles(), str(path))
            assert (summary["problems"], problems) == (0, [])


def test_an_index_of_a_deleted_segment_is_checked_against_that() -> None:
    files = made()
    index = next(
        path
        for path in (other.replace(".kafka", ".index") for other in segments(files, CLASSIC))
        if files.exists(path)
    )
    for path in (index, index.replace(".index", ".kafka")):
        files.rename(path, f"{path}.deleted")
    assert report_of(files, f"{index}.deleted")[1] == []


def test_an_index_without_a_segment_beside_it_says_so(files: MemoryFiles) -> None:
    overwrite(files, "00000000000.index", struct.pack(">ii", 1, 40))
    _, problems = report_of(files, "00000000000.index")
    assert problems == ["00000000000.index: its segment is missing, so its entries cannot be checked"]


def test_a_later_segment_tells_that_one_is_closed() -> None:
    files = made()
    paths = [path.replace(".kafka", ".timeindex") for path in segments(files, CLASSIC)]
    for path in paths:
        files.open(path).truncate(0)
    assert "the last timestamp is -1" in report_of(files, paths[0])[1][0]
    assert report_of(files, paths[-1])[1] == []


def test_a_file_that_is_absent_says_so() -> None:
    for name in ("0.log", "0.index", "0.snapshot", "x-offset-checkpoint"):
        with pytest.raises(FileNotFoundError):
            report_of(MemoryFiles(), name)
