"""The compose files as `docker compose config` would show them, for the parts that the tests look at."""

import os
import re
from pathlib import Path
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
