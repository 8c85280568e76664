"""The documents: README is short, every link and anchor resolves, every page can be reached, and the pages
that are generated are what the code's own tables say.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import check_documented_types, generate_reference

ROOT = Path(__file__).resolve().parent.parent
README_LINES_MAX = 150
CORE = ROOT / "broker_core" / "minikafka"
PACKAGES = "records|wire|groups|registry|server|clients|embedded"
"""Packages whose names begin no property of Kafka's."""
LOGGERS = frozenset({"clients.produce.retries"})

FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)


def pages() -> list[Path]:
    """Return the documents of the project: those in its root and all below ``docs``."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted(ROOT.glob("tests/*.md")),
    ]


def prose(text: str) -> str:
    """Return ``text`` without its code blocks and code spans, which hold no links."""
    return re.sub(r"`[^`\n]*`", "code", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of the headings of ``text``."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found


def links(page: Path, text: str) -> list[tuple[Path, str]]:
    """Return the target and the anchor of each relative link in ``text``; the anchor may be empty."""
    found = []
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found.append(((page.parent / path).resolve() if path else page, anchor))
    return found


def dead_links(page: Path, text: str) -> list[str]:
    """Return the relative links of ``page`` whose file or anchor does not exist."""
    dead = []
    for target, anchor in links(page, text):
        name = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else str(target)
        if not target.exists():
            dead.append(f"{page.relative_to(ROOT)}: {name} does not exist")
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            dead.append(f"{page.relative_to(ROOT)}: {name} has no heading #{anchor}")
    return dead


def missing_files(text: str) -> list[str]:
    """Return the files and modules that code spans of ``text`` name and that do not exist."""
    named = re.findall(r"`((?:tests|benchmarks|examples|scripts|scala_shim)/[\w/.-]+\.py)`", text)
    modules = re.findall(rf"`(?:minikafka\.)?((?:{PACKAGES})(?:\.\w+)+)`", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    return missing + [name for name in modules if name not in LOGGERS and not names_something(name)]


def names_something(name: str) -> bool:
    """Return whether a dotted name is a package or module of ``minikafka``, or stands in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = CORE.joinpath(*parts[:length])
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if source.exists():
            return all(part in source.read_text(encoding="utf-8") for part in parts[length:])
    return False


def test_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_every_link_and_anchor_resolves() -> None:
    assert [dead for page in pages() for dead in dead_links(page, page.read_text(encoding="utf-8"))] == []


def test_every_page_can_be_reached_from_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [target for target, _ in links(page, page.read_text(encoding="utf-8"))]
    below = set((ROOT / "docs").rglob("*.md"))
    assert sorted(page.relative_to(ROOT).as_posix() for page in below - reached) == []


@pytest.mark.parametrize("name", generate_reference.PAGES)
def test_generated_page_is_current(name: str) -> None:
    assert not generate_reference.is_stale(name), "run python scripts/generate_reference.py"


def test_every_file_that_a_page_names_exists() -> None:
    assert [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        if page.name != "CHANGELOG.md"
        for name in missing_files(page.read_text(encoding="utf-8"))
    ] == []


# The rules themselves: each is shown to find what it is for.


@pytest.mark.parametrize(
    "link", ["(docs/no-such-page.md)", "(README.md#no-such-heading)", "(#no-such-heading)"]
)
def test_a_dead_link_is_found(link: str) -> None:
    assert len(dead_links(ROOT / "README.md", f"see [a page]{link}")) == 1


def test_links_in_code_and_to_other_hosts_are_passed_over() -> None:
    text = "```\n[a](no.md)\n```\n`[b](no.md)` and [c](https://kafka.apache.org/no)"
    assert dead_links(ROOT / "README.md", text) == []


def test_anchors_are_those_of_github() -> None:
    text = "# A `--set` option\n## ZooKeeper's data, lost\n## On Spark 4.0\n## Same\n## Same\n"
    assert anchors(text) == {"a---set-option", "zookeepers-data-lost", "on-spark-40", "same", "same-1"}


def test_missing_file_is_found() -> None:
    text = "`tests/test_docs.py`, `tests/no_such.py`, `clients.producer.Producer`, `clients.nobody`"
    assert missing_files(text) == ["tests/no_such.py", "clients.nobody"]


def test_programs_keep_their_lines_where_their_types_are_checked() -> None:
    page = "# A page\n\n```python\nx = 1\n```\ntext\n```python\nspark.range(x)\n```\n"
    lines = check_documented_types.module_of(page).splitlines()
    assert (lines[3], lines[7]) == ("x = 1", "spark.range(x)")
    assert lines[0] == check_documented_types.SESSION
    assert {line for number, line in enumerate(lines) if number not in {0, 3, 7}} == {""}
