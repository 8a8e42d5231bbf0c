"""Golden results, which only a deliberate change may alter: each is a JSON file in this folder.

After such a change `ZERO_WRITE_GOLDEN=1 python -m pytest` rewrites them; the commit message gives the reason.
"""

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def check_golden(name: str, found: Any) -> None:
    """Compares `found` with `name`.json, which has every float in full precision."""
    path = FOLDER / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if os.environ.get("ZERO_WRITE_GOLDEN") == "1":
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text()), f"{path.name}: results have changed, see {__name__}"
