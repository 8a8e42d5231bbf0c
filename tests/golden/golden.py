"""Results that must not change unseen: each is a JSON file in this folder.

After a change that is meant to alter results, `ZERO_WRITE_GOLDEN=1 python -m pytest` writes them anew; the commit says
why.
"""

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def check_golden(name: str, found: Any) -> None:
    """Compares with the file `name`.json; every float is written in full."""
    path = FOLDER / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if os.environ.get("ZERO_WRITE_GOLDEN") == "1":
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text()), f"{path.name}: results have changed, see {__name__}"
