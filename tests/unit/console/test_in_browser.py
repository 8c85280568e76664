"""The console in headless Chromium: every page in both colour schemes, keyboard, forms and live tail."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.admin import Admin, NewTopic
from minikafka.clients.admin.groups import GroupAdmin
from minikafka.clients.network.cluster import ClusterClient
from minikafka.clients.produce import BatchingProducer
from minikafka.embedded.cluster import Cluster
from tests.support.console_process import running_console

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

LONG_NAME = "a-topic-with-a-long-name." * 9
PATIENCE_MS = 20_000
PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/empty/messages",
    "/topics/orders/0/1",
    "/topics/orders/search?text=order",
    "/topics/orders/tail",
    "/topics/orders/produce",
    "/topics/orders/configuration",
    "/topics/orders/groups",
    f"/topics/{LONG_NAME}",
    "/groups",
    "/group?id=billing",
    "/group/reset?id=billing&rule=latest",
    "/brokers",
    "/brokers/0?q=log.dir",
    "/access",
    "/reassignments",
    "/transactions",
    "/transactions/hanging?find=1",
)
ERRORS = ("/nowhere", "/topics/nope", "/topics/orders/messages?where=time&value=noon")
WCAG = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
BY_SCHEME_AND_WIDTH = {
    "type": "rule",
    "values": ["color-contrast", "target-size", "scrollable-region-focusable"],
}
"""The rules whose result depends on the colour scheme or the width."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, tmp_path_factory.mktemp("browser") / "d") as cluster:
        with ClusterClient(cluster.bootstrap_servers) as client:
            topics = [NewTopic("orders", 2), NewTopic("empty", 1), NewTopic(LONG_NAME, 1)]
            assert set(Admin(client).create_topics(topics).values()) == {None}
            with BatchingProducer(client) as producer:
                for number in range(10):
                    value = b'{"order": %d, "note": "<b>%s</b>"}' % (number, b"long" * number)
                    headers = (("trace", b"abc"), ("bytes", b"\0\xff"))
                    producer.send("orders", value, b"key-%d" % number, number % 2, headers=headers)
            GroupAdmin(client).set_offsets("billing", {TopicPartition("orders", 0): 3})
        yield cluster


@pytest.fixture(scope="module")
def address(cluster: Cluster) -> Iterator[str]:
    with running_console("--bootstrap", cluster.bootstrap_servers, "--allow-changes") as console:
        yield console.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # The sandbox needs rights that a container does not have; the only pages are ours.
    options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**options) as browser:  # type: ignore[arg-type]
        yield browser


@contextmanager
def page_of(browser: Browser, address: str, **options: object) -> Iterator[Page]:
    """Yield a page; no script of it may fail, and nothing may be blocked."""
    context = browser.new_context(base_url=address, **options)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    assert [error for error in errors if "status of 4" not in error] == []
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "width", "rules"),
    [("light", 1280, WCAG), ("dark", 390, BY_SCHEME_AND_WIDTH)],
    ids=["wide", "phone"],
)
def test_every_page_fits_and_is_accessible(
    browser: Browser, address: str, scheme: str, width: int, rules: dict[str, object]
) -> None:
    size, axe = {"width": width, "height": 900}, Axe()
    with page_of(browser, address, color_scheme=scheme, viewport=size) as page:
        for place in PAGES + ERRORS:
            page.goto(place)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, place
            assert page.evaluate("document.querySelectorAll('h1').length") == 1, place
            found = axe.run(page, options={"runOnly": rules}).response["violations"]
            assert [(place, rule["id"], rule["nodes"][0]["html"]) for rule in found] == []


@pytest.mark.parametrize(
    "place", ["/topics/orders/messages", "/topics/orders/search?text=order"], ids=["messages", "search"]
)
def test_a_phone_shows_what_a_table_is_about(browser: Browser, address: str, place: str) -> None:
    with page_of(browser, address, viewport={"width": 390, "height": 900}) as page:
        page.goto(place)
        header = page.get_by_role("columnheader", name="Value and headers", exact=True)
        edge = header.evaluate("element => element.getBoundingClientRect().right")
        assert edge <= 390
        assert page.get_by_role("row").get_by_role("cell").count() > 0


@pytest.mark.parametrize(
    ("place", "table", "row", "cells"),
    [
        ("/", "Brokers", "0", 7),
        ("/group?id=billing", "Lag by partition", "orders", 7),
        ("/group/reset?id=billing&rule=latest", "Dry run: ", "orders", 5),
        ("/topics", "Topics, sorted by name", "orders", 4),
        ("/topics/orders", "Partitions of orders", "0", 8),
        ("/groups", "Consumer groups", "billing", 6),
        ("/brokers", "Brokers of cluster", "0", 8),
        ("/brokers/0", "Data directories", "", 5),
        ("/brokers/0?q=log.dir", "Settings, ", "log.dir", 2),
        ("/topics/orders/groups", "Groups that read orders", "billing", 4),
    ],
    ids=[
        "overview",
        "group",
        "reset",
        "topics",
        "partitions",
        "groups",
        "brokers",
        "broker",
        "settings",
        "groups of a topic",
    ],
)
def test_a_phone_shows_a_table_as_cards(
    browser: Browser, address: str, place: str, table: str, row: str, cells: int
) -> None:
    with page_of(browser, address, viewport={"width": 390, "height": 900}) as page:
        page.goto(place)
        region = page.get_by_role("region", name=table)
        assert region.evaluate("element => element.scrollWidth <= element.clientWidth")
        header = page.get_by_role("rowheader", name=row, exact=bool(row)).first
        shown = region.get_by_role("row").filter(has=header).get_by_role("cell")
        assert shown.count() == cells
        assert region.get_by_role("columnheader").count() == cells + 1
        for cell in shown.all():
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= 390


def test_the_keyboard_reaches_the_content_and_every_link(browser: Browser, address: str) -> None:
    with page_of(browser, address) as page:
        page.goto("/topics")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_label("Name contains")).to_be_focused()
        page.keyboard.type("order")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
        link = page.get_by_role("link", name="orders", exact=True)
        for _ in range(40):
            page.keyboard.press("Tab")
            if link.evaluate("element => element === document.activeElement"):
                break
        expect(link).to_be_focused()
        assert link.evaluate("element => getComputedStyle(element).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def test_a_value_of_json_opens_with_the_keyboard(browser: Browser, address: str) -> None:
    with page_of(browser, address) as page:
        page.goto("/topics/orders/messages?partition=0&limit=20")
        summary = page.locator("summary").first
        summary.focus()
        page.keyboard.press("Enter")
        expect(page.locator("details[open] pre").first).to_contain_text('"order": ')
        assert page.locator("b").count() == 0  # values are no markup


def test_a_live_tail_shows_pauses_and_goes_on(browser: Browser, address: str, cluster: Cluster) -> None:
    with page_of(browser, address) as page, ClusterClient(cluster.bootstrap_servers) as client:
        page.goto("/topics/empty/tail")
        expect(page.locator("#state")).to_have_text("running")
        rows = page.locator("#rows tr")
        with BatchingProducer(client) as producer:
            # The tail begins at the end, wherever it is when the console looks first.
            sent = 0
            while rows.count() == 0:
                producer.send("empty", b"<i>message</i> %d" % sent).result()
                sent += 1
                page.wait_for_timeout(200)
            expect(rows.first).to_contain_text("<i>message</i>")
            page.get_by_role("button", name="Pause").click()
            expect(page.locator("#state")).to_have_text("paused")
            page.get_by_role("button", name="Clear").click()
            producer.send("empty", b"unseen").result()
            page.get_by_role("button", name="Resume").click()
            expect(page.locator("#state")).to_have_text("running")
            while rows.count() == 0:
                producer.send("empty", b"seen again").result()
                page.wait_for_timeout(200)
            expect(page.locator("#rows")).to_contain_text("seen again")
            expect(page.locator("#rows")).not_to_contain_text("unseen")


def test_a_message_is_sent_and_a_group_is_reset(browser: Browser, address: str) -> None:
    with page_of(browser, address) as page:
        page.goto("/topics/orders/produce")
        page.get_by_label("Key", exact=True).fill("k")
        page.get_by_label("Value", exact=True).fill("a new order")
        page.get_by_role("button", name="Send").click()
        page.get_by_role("status").get_by_role("link").click()
        expect(page.locator("main")).to_contain_text("a new order")

        page.goto("/group?id=billing")
        page.get_by_role("link", name="Reset offsets").click()
        page.get_by_label("Set the offsets").select_option("shift")
        page.get_by_label("Offset, time, duration or number").fill("-2")
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_role("cell", name="-2", exact=True)).to_be_visible()
        page.get_by_label("Type the name of the group").fill("billing")
        page.get_by_role("button", name="Set the offsets").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("billing")
        expect(page.get_by_role("status")).to_have_text("1 offset set.")
        expect(page.get_by_role("row", name=re.compile(r"^orders 0 \d+ 1 "))).to_be_visible()


def test_pages_work_without_javascript(browser: Browser, address: str) -> None:
    with page_of(browser, address, java_script_enabled=False) as page:
        page.goto("/topics/orders/search")
        page.get_by_label("Text or expression").fill("key-7")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_text("All was searched.")).to_be_visible()
        expect(page.get_by_role("row").filter(has_text="key-7")).to_have_count(1)
        page.goto("/topics/orders/tail")
        expect(page.get_by_text("The live tail needs JavaScript.")).to_be_visible()
