"""``minikafka completion``: scripts for shells, and the words that they complete.

A script asks the hidden command ``complete`` for the words that may come next, given the words so far:
commands, options, values of options, and names of topics, groups and profiles. Names come from the cluster if
it answers at once. Nothing is an error: there are fewer words then, and the shell completes files. Only words
of plain characters are offered, so that no name of a topic or group can run anything in a shell.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from minikafka.base.errors import ConfigError
from minikafka.cli.terminal.output import say

BASH = """\
_minikafka() {
    COMPREPLY=()
    local word line="${COMP_LINE:0:COMP_POINT}"
    local -a words
    read -ra words <<< "$line"  # COMP_WORDS would be split at colons too
    if [[ $line == *' ' ]]; then words+=(""); fi
    while IFS=$'\\t' read -r word _; do
        COMPREPLY+=("$word")
    done < <(minikafka complete -- "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _minikafka minikafka
"""
ZSH = """\
#compdef minikafka
_minikafka() {
    local line
    local -a found
    for line in "${(@f)$(minikafka complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${line%%$'\\t'*}")
    done
    compset -P 1 '--*='  # a value completes without its option
    if (( $#found )); then compadd -- "$found[@]"; else _files; fi
}
if [[ $funcstack[1] == _minikafka ]]; then _minikafka "$@"; else compdef _minikafka minikafka; fi
"""
FISH = """\
function __minikafka_words
    set -l words (commandline -opc) (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $words[-1])  # stands before each value
    set -l found (minikafka complete -- $words[2..-1] 2>/dev/null)
    if not set -q found[1]
        set found (__fish_complete_path (string replace -- "$option" '' $words[-1]))
    end
    printf '%s\\n' "$option"$found
end
complete -c minikafka -f -a '(__minikafka_words)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
ANSWER_MS = 1_000
"""The time that a cluster has to tell its names: nobody waits longer for a completion."""
WORDS_MAX = 1_000
"""The most names that are offered."""
_SAFE = re.compile(r"[A-Za-z0-9_./,@%+=-]+", re.ASCII)
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LEVELS = ("read_uncommitted", "read_committed")


def completion(shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", show_default=False)]) -> None:
    """Print the script that lets a shell complete commands, options, and names of topics and groups.

    bash: source <(minikafka completion bash), in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish:
    minikafka completion fish > ~/.config/fish/completions/minikafka.fish.
    """
    if shell not in SCRIPTS:
        raise ConfigError("SHELL", shell, f"must be one of {', '.join(SCRIPTS)}")
    sys.stdout.write(SCRIPTS[shell])


def complete(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="WORD", show_default=False)] = None,
) -> None:
    """Print the words that may follow, each with a tab and what it is: for the scripts of `completion`."""
    with contextlib.suppress(Exception):
        for word, meaning in candidates(context.find_root().command, words or [""]):
            say(f"{word}\t{meaning}")


@dataclass(slots=True)
class _Typed:
    """The words before the one to complete: the command, its options with their values, and arguments."""

    command: Any
    path: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    arguments: int = 0
    open_option: Any = None
    """The option whose value comes next."""
    is_unknown: bool = False
    """True after a word that is no command."""


def candidates(command: Any, words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the words that may stand in the place of the last one, with their meanings."""
    name, equals, start = words[-1].partition("=")
    if not equals or not name.startswith("--"):
        name, start = "", words[-1]
    typed = _parsed(command, [*words[:-1], name] if name else words[:-1])
    found: Iterable[tuple[str, str]]
    children = getattr(typed.command, "commands", {})
    if typed.is_unknown:
        found = ()
    elif typed.open_option is not None:
        found = _values(typed.open_option, typed)
    elif start.startswith("-"):
        found = _options(typed)
    elif children:
        found = [(name, child.get_short_help_str(80)) for name, child in children.items() if not child.hidden]
    else:
        arguments = [each for each in typed.command.params if each.param_type_name == "argument"]
        at = min(typed.arguments, len(arguments) - 1)
        found = _values(arguments[at], typed) if arguments else ()
    count = 0
    for word, meaning in found:
        if word.startswith(start) and _SAFE.fullmatch(word) and count < WORDS_MAX:
            count += 1
            yield word, " ".join(meaning.split())


def _parsed(command: Any, words: Iterable[str]) -> _Typed:
    typed = _Typed(command)
    for word in words:
        children = getattr(typed.command, "commands", {})
        if typed.open_option is not None:
            typed.options[typed.open_option.name] = word
            typed.open_option = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            option = _option(typed.command, name) or _option(command, name)
            if option is not None and not option.is_flag:
                typed.open_option = None if equals else option
                if equals:
                    typed.options[option.name] = value
        elif word in children:
            typed.command = children[word]
            typed.path.append(word)
        elif children:
            typed.is_unknown = True
        else:
            typed.arguments += 1
    return typed


def _option(command: Any, name: str) -> Any:
    """Return the option of a command, or of one below it; None for none."""
    options = (each for each in command.params if each.param_type_name == "option")
    found = next((option for option in options if name in option.opts), None)
    below = getattr(command, "commands", {}).values()
    return found or next((option for child in below if (option := _option(child, name))), None)


def _options(typed: _Typed) -> Iterator[tuple[str, str]]:
    for option in typed.command.params:
        if option.param_type_name == "option" and not getattr(option, "hidden", False):
            for name in option.opts:
                if name.startswith("--"):
                    yield name, option.help or ""
    yield "--help", "Show the options."


def _values(parameter: Any, typed: _Typed) -> Iterable[tuple[str, str]]:
    """Return the values of an option or argument; none for those that only the user knows."""
    noun, metavar = typed.path[0] if typed.path else "", parameter.metavar or ""
    names: Callable[[_Typed], Iterable[str]] | None = None
    if parameter.name in {"codec", "isolation"}:
        return [(value, "") for value in (_CODECS if parameter.name == "codec" else _LEVELS)]
    if "|" in metavar and metavar.islower():
        return [(value, "") for value in metavar.split("|")]
    if parameter.name == "profile_name" or noun == "profile":
        names = _profiles
    elif parameter.name == "group" or (noun == "group" and metavar == "NAME"):
        names = _groups
    elif metavar.startswith(("TOPIC", "T[")) or metavar == "T" or (noun == "topic" and metavar == "NAME"):
        names = _topics
    return [] if names is None else [(name, "") for name in names(typed)]


def _profiles(typed: _Typed) -> Iterable[str]:
    from minikafka.cli.connection import profiles

    return profiles.names()


def _topics(typed: _Typed) -> Iterable[str]:
    with _cluster(typed) as cluster:
        return sorted(cluster.metadata(None, timeout_ms=ANSWER_MS).topics)


def _groups(typed: _Typed) -> Iterable[str]:
    from minikafka.clients.admin.groups import GroupAdmin

    with _cluster(typed) as cluster:
        return GroupAdmin(cluster).names(timeout_ms=ANSWER_MS)


@contextlib.contextmanager
def _cluster(typed: _Typed) -> Iterator[Any]:
    """Yield a client of the cluster that the typed options name, which has little time to answer."""
    from minikafka.cli.connection import connect, profiles
    from minikafka.cli.connection.command_config import CommandConfig
    from minikafka.cli.options import BOOTSTRAP_VARIABLE, COMMAND_CONFIG_VARIABLE, DEFAULT_BOOTSTRAP
    from minikafka.clients.network.cluster import ClusterClient

    profiles.choose(typed.options.get("profile_name"))
    bootstrap = typed.options.get("bootstrap") or os.environ.get(BOOTSTRAP_VARIABLE)
    file = typed.options.get("command_config") or os.environ.get(COMMAND_CONFIG_VARIABLE)
    data_dir = typed.options.get("data_dir")
    if data_dir is not None:
        from minikafka.embedded import local

        running = local.running(data_dir)
        bootstrap = running.bootstrap_servers if running is not None else bootstrap
    bootstrap, file = connect.with_profile(bootstrap, file, None if data_dir is None else Path(data_dir))
    config = CommandConfig.read(file)
    cluster = ClusterClient(
        bootstrap or config.bootstrap_servers or DEFAULT_BOOTSTRAP,
        security=config.security,
        client_id=config.client_id,
        request_timeout_ms=ANSWER_MS,
        connect_timeout_ms=ANSWER_MS // 2,
        creates_topics=False,
    )
    try:
        yield cluster
    finally:
        cluster.close()
