"""Scenario scripts: commands, each followed by its expected output.

    # The first comment says in a sentence what the script shows.

    start log.flush.interval.messages=1
    create t
    produce t a b
      offset 0
    fetch t from=1
      offset 1 timestamp 0 value b

A command starts at the beginning of a line: its name, arguments and ``option=value``, quoted as in a shell.
The following lines that are indented by two spaces are its output, compared exactly. Comments and empty lines
are for readers. With ``MINIKAFKA_REWRITE=1`` the actual output is written into the file: read the diff before
you keep it, as the file then contains what the code does, not what it should do.

A command is a function in a ``Vocabulary``. Its signature is its syntax: positional parameters are arguments,
keyword-only ones are options (``from_`` is written ``from``, ``max_bytes`` ``max-bytes``), annotations
determine the parsing. It returns its output as lines. This module only has the language, not its subject.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Protocol

REWRITE = "MINIKAFKA_REWRITE"
INDENT = "  "

_OPTION = re.compile(r"([a-z][a-z0-9._-]*)=(.*)", re.DOTALL)
_DURATION = re.compile(r"(\d+)(ms|s)")


class ScriptError(Exception):
    """A script that cannot be run; ``run`` adds file and line."""


Duration = Annotated[int, "milliseconds"]
Numbers = Annotated[tuple[int, ...], "with commas"]


def _duration(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * (1000 if match[2] == "s" else 1)


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    str: (str, "text"),
    int: (int, "a whole number"),
    bool: ({"yes": True, "no": False}.__getitem__, "yes or no"),
    Duration: (_duration, "a time like 500ms or 5s"),
    Numbers: (lambda text: tuple(map(int, text.split(","))), "whole numbers like 0,1"),
}
"""Annotation -> its parser, and a description of its form."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The commands by name. A function gets the target first, then what the script gives."""

    commands: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def command(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register ``function`` as the command of its name."""
        self.commands[function.__name__.rstrip("_").replace("_", "-")] = function
        return function

    def call(self, target: Target, name: str, words: tuple[str, ...], options: dict[str, str]) -> Any:
        """Run a command and return its result. ScriptError for an unknown command or invalid arguments."""
        function = self.commands.get(name)
        if function is None:
            raise ScriptError(f"unknown command {name!r}; there are {', '.join(sorted(self.commands))}")
        signature = inspect.signature(function, eval_str=True)
        renamed = {_parameter(name, signature, option): value for option, value in options.items()}
        try:
            bound = signature.bind(target, *words, **renamed)
        except TypeError as error:
            raise ScriptError(f"{name}: {error}; it takes {_syntax(signature)}") from None
        for parameter, given in list(bound.arguments.items())[1:]:
            about, where = signature.parameters[parameter], f"{name}: {_spelled(parameter)}"
            if about.kind is about.VAR_POSITIONAL:
                bound.arguments[parameter] = tuple(read(about.annotation, value, where) for value in given)
            elif about.kind is about.VAR_KEYWORD:
                bound.arguments[parameter] = {
                    key: read(about.annotation, value, f"{name}: {key}") for key, value in given.items()
                }
            else:
                bound.arguments[parameter] = read(about.annotation, given, where)
        return function(*bound.args, **bound.kwargs)


def _parameter(command: str, signature: inspect.Signature, option: str) -> str:
    """Return the parameter of an option."""
    takes_any = False
    for name, about in signature.parameters.items():
        if about.kind is about.KEYWORD_ONLY and _spelled(name) == option:
            return name
        takes_any = takes_any or about.kind is about.VAR_KEYWORD
    if not takes_any:
        raise ScriptError(f"{command}: unknown option {option!r}; it takes {_syntax(signature)}")
    return option


def _spelled(parameter: str) -> str:
    return parameter.rstrip("_").replace("_", "-")


def _syntax(signature: inspect.Signature) -> str:
    """Return the parameters in the form of a script."""
    words = []
    for name, about in list(signature.parameters.items())[1:]:
        if about.kind is about.KEYWORD_ONLY:
            words.append(f"[{_spelled(name)}={about.default}]")
        elif about.kind is about.VAR_KEYWORD:
            words.append("[NAME=VALUE…]")
        elif about.kind is about.VAR_POSITIONAL:
            words.append(f"[{name.upper()}…]")
        else:
            words.append(
                name.upper() if about.default is about.empty else f"[{name.upper()}={about.default}]"
            )
    return " ".join(words) or "nothing"


def read(annotation: Any, text: str, where: str) -> Any:
    """Parse ``text`` as a parameter of this annotation. ScriptError, with ``where``, for invalid text."""
    reader, what = _READERS[annotation]
    try:
        return reader(text)
    except (ValueError, KeyError):
        raise ScriptError(f"{where} must be {what}, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is not output: a command, a comment or an empty line."""

    number: int
    text: str

    @property
    def is_command(self) -> bool:
        return bool(self.text) and not self.text.startswith("#")


def _lines(text: str) -> Iterator[_Line]:
    """Yield the lines that are not output. ScriptError for an invalid form."""
    below_command = False
    first = True
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            raise ScriptError(f"{number}: a line must not end with spaces")
        if line.startswith(" "):
            if not below_command:
                raise ScriptError(f"{number}: output without a command above it")
            if not line.startswith(INDENT):
                raise ScriptError(f"{number}: output is indented by two spaces")
            continue
        if first and not line.startswith("# "):
            raise ScriptError(f"{number}: a script begins with a comment that says what it shows")
        first = False
        found = _Line(number, line)
        below_command = found.is_command
        yield found
    if first:
        raise ScriptError("1: the script is empty")


class Target(Protocol):
    """The object that the commands act on."""

    def perform(self, command: Callable[[], Any], /) -> list[str]:
        """Run a command and return its result or error as lines."""


def _perform(vocabulary: Vocabulary, target: Target, line: str) -> list[str]:
    try:
        name, *rest = shlex.split(line)
    except ValueError as error:
        raise ScriptError(str(error)) from None
    words: list[str] = []
    options: dict[str, str] = {}
    for word in rest:
        option = _OPTION.fullmatch(word)
        if option is None:
            words.append(word)
        elif option[1] in options:
            raise ScriptError(f"{name}: {option[1]} is given twice")
        else:
            options[option[1]] = option[2]
    return target.perform(lambda: vocabulary.call(target, name, tuple(words), options))


def run(text: str, name: str, vocabulary: Vocabulary, target: Target) -> str:
    """Run a script and return it with the actual output. ScriptError with ``name`` and the line."""
    out: list[str] = []
    try:
        for line in _lines(text):
            out.append(line.text)
            if line.is_command:
                try:
                    out += [INDENT + output for output in _perform(vocabulary, target, line.text)]
                except ScriptError as error:
                    raise ScriptError(f"{line.number}: {error}") from None
                except Exception as error:
                    raise ScriptError(f"{line.number}: {error!r}") from error
    except ScriptError as error:
        raise ScriptError(f"{name}:{error}") from None
    return "\n".join(out) + "\n"


def difference(expected: str, actual: str, name: str) -> str | None:
    """Return the position and diff of the actual output against the script; None if they are equal."""
    old, new = expected.splitlines(), actual.splitlines()
    if old == new:
        return None
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    diff = difflib.unified_diff(old, new, "expected", "actual", n=4, lineterm="")
    return "\n".join([f"{name}:{same + 1}: the output differs ({REWRITE}=1 updates the script)", *diff])


def check(path: Path, vocabulary: Vocabulary, target: Target) -> None:
    """Run the script in ``path`` and compare its output, or with MINIKAFKA_REWRITE=1 update the script."""
    text = path.read_text(encoding="utf-8")
    actual = run(text, path.name, vocabulary, target)
    if os.environ.get(REWRITE) == "1":
        if actual != text:
            path.write_text(actual, encoding="utf-8")
        return
    found = difference(text, actual, path.name)
    if found is not None:
        raise AssertionError(found)
