"""The compose files as `docker compose config` would show them, and their services as processes of this machine."""

import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.end_to_end.project import SOURCE_DIR

COMPOSE_DIR = SOURCE_DIR / "infra/compose"
BASE = COMPOSE_DIR / "compose.yaml"
VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>[A-Z0-9_]+)(?:(?P<operator>:-|:\?)(?P<rest>[^}]*))?\})")

Tree = dict[str, Any]


def settings() -> dict[str, str]:
    """The settings of `.env.example`."""
    lines = (COMPOSE_DIR / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def interpolate(text: str, values: dict[str, str]) -> str:
    """Compose's `${NAME:-default}`, `${NAME:?message}` and `$$`.

    Raises:
      KeyError: a variable has neither a value nor a default.
    """

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        given = values.get(found["name"], "")
        if not given and found["operator"] != ":-":
            raise KeyError(found["name"])
        return given or found["rest"]

    return VARIABLE.sub(value, text)


def load(path: Path, values: dict[str, str] | None = None) -> Tree:
    """A compose file, read as YAML, with its variables replaced."""

    def replace(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: replace(inner) for key, inner in node.items()}
        if isinstance(node, list):
            return [replace(inner) for inner in node]
        return interpolate(node, settings() if values is None else values) if isinstance(node, str) else node

    tree: Tree = replace(yaml.safe_load(path.read_text()))
    return tree


def merged(*overrides: str) -> Tree:
    """The base file with overrides: mappings are merged, lists of these keys are joined, all else is replaced."""
    tree = load(BASE)
    for name in overrides:
        tree = _merge(tree, load(COMPOSE_DIR / name))
    return tree


def _merge(below: Any, above: Any, key: str = "") -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        both = {name: _merge(below[name], above[name], name) for name in below.keys() & above.keys()}
        return {**below, **above, **both}
    if key in ("secrets", "volumes", "ports", "networks", "devices") and isinstance(below, list):
        return below + [entry for entry in above if entry not in below]
    return above


def host_path(path: str) -> Path:
    """Where a path of a compose file is on the host: relative ones count from its folder."""
    return Path(os.path.normpath(COMPOSE_DIR / path))


# Services as processes

HOST = "127.0.0.1"


def moved(text: str, places: dict[str, str]) -> str:
    """A text with the places of a container replaced by those of this machine."""
    for there, here in places.items():
        text = text.replace(there, here)
    return text


@contextmanager
def running(
    name: str,
    program: list[str],
    log: Path,
    places: dict[str, str],
    folder: Path,
    env: Mapping[str, str] = MappingProxyType({}),
    options: Sequence[str] = (),
) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs `program` with the arguments of a service of compose.yaml, but with other paths and on loopback."""
    words = [moved(word, places | {"0.0.0.0": HOST}) for word in merged()["services"][name]["command"]]
    command = [*program, *(words[1:] if words[0] == "python" else words), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()  # politely SeaweedFS would take 15 s
        process.wait()


def wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 240.0) -> None:
    """Waits until a process that starts answers, even if by an error; its log explains a failure."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError as error:
            late = time.monotonic() > deadline
            assert not late and process.poll() is None, f"{url}: {error}\n{log.read_text()}"
        time.sleep(0.2)
