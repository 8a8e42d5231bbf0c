"""What Kubernetes takes: objects, and parts of them, against its own strict definitions, which take nothing unnamed."""

import json
from functools import cache
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from tests.end_to_end.project import SOURCE_DIR

SCHEMAS = SOURCE_DIR / "tests/infra/schemas"
FOLDER = SOURCE_DIR / "infra/kubernetes"
Tree = dict[str, Any]


@cache
def definitions() -> Tree:
    """Every definition by its name."""
    tree: Tree = json.loads((SCHEMAS / "kubernetes-1.32.json").read_text())["$defs"]
    return tree


def validate(tree: Any, schema: Tree) -> None:
    """Checks against a schema, which may refer to the definitions.

    Raises:
      jsonschema.ValidationError: the schema does not allow it.
    """
    jsonschema.Draft202012Validator({**schema, "$defs": definitions()}).validate(tree)


def check(tree: Tree) -> None:
    """Checks an object against the definition of its kind.

    Raises:
      jsonschema.ValidationError: Kubernetes would not take it.
      LookupError: its kind is not among the definitions.
    """
    group, _, version = tree["apiVersion"].rpartition("/")
    kind = {"group": group, "kind": tree["kind"], "version": version}
    for name, body in definitions().items():
        if kind in body.get("x-kubernetes-group-version-kind", []):
            return validate(tree, {"$ref": f"#/$defs/{name}"})
    raise LookupError(f"there is no definition of {kind}")
