"""A running ``minikafka console``, and a browser without JavaScript at it."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


class ConsoleProcess:
    """A console process, and requests to it with one cookie."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.cookie = ""
        self.connections = ExitStack()

    @property
    def address(self) -> str:
        """The address that the console has printed."""
        return f"http://127.0.0.1:{self.port}"

    def open(self, method: str, address: str, form: dict[str, str] | None = None) -> http.client.HTTPResponse:
        """Return the response to a request; it is closed at the end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.connections.callback(connection.close)
        headers = {"cookie": self.cookie} if self.cookie else {}
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            headers["content-type"] = "application/x-www-form-urlencoded"
        connection.request(method, address, body, headers)
        response = self.connections.enter_context(connection.getresponse())
        if cookie := response.headers["set-cookie"]:
            self.cookie = cookie.partition(";")[0]
        return response

    def text(self, address: str) -> str:
        """Return the text of a page that must be found."""
        response = self.open("GET", address)
        text = response.read().decode()
        assert response.status == 200, text
        return text

    def post(self, address: str, form: dict[str, str], page: str) -> http.client.HTTPResponse:
        """Send a form of a page, with its token."""
        found = re.search(r'name="csrf" value="(\w+)"', self.text(page))
        assert found is not None
        return self.open("POST", address, {"csrf": found[1], **form})


@contextmanager
def running_console(*options: str, **environment: str) -> Iterator[ConsoleProcess]:
    """Yield a console at a free port; it is killed at the end unless it has ended."""
    command = [sys.executable, "-m", "minikafka", "console", "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"ready http://127\.0\.0\.1:(\d+)\n", line)
            assert found is not None, line
            console = ConsoleProcess(process, int(found[1]))
            with console.connections:
                yield console
        finally:
            process.kill()
