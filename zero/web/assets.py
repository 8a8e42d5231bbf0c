"""Files for the browser: the scripts and styles of the page, and the bundle of Vega, which is made once and cached."""

import base64
import json
import os
import re
from importlib.metadata import version
from pathlib import Path

from zero.errors import StorageError
from zero.storage.files import write_atomic

STATIC_DIR = Path(__file__).with_name("static")
NEIGHBOUR = re.compile(r'from "\./(\w+\.js)"')
"""The import of another module in the same folder."""


def vega_bundle() -> Path:
    """Path of Vega, Vega-Lite and Vega-Embed as one script, which sets `window.vegaEmbed`.

    The first call takes seconds and writes the script to the user's cache folder, in a file for each version.

    Raises:
      StorageError: the cache folder cannot be written.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zero"
    path = cache / f"vega-{version('vl-convert-python')}.js"
    if not path.exists():
        import vl_convert

        try:
            write_atomic(path, vl_convert.javascript_bundle(None).encode())
        except StorageError as error:
            raise StorageError(f"{error}; set XDG_CACHE_HOME to a folder that can be written") from None
    return path


def inlined_modules(*names: str) -> str:
    """An import map with these modules of `static` inside, for a page that is one file.

    A page imports `report.js` as "zero/report.js", and so do the modules among themselves: a relative import cannot be
    resolved in a module without an address.
    """
    imports = {}
    for name in names:
        text = NEIGHBOUR.sub(r'from "zero/\1"', (STATIC_DIR / name).read_text())
        imports[f"zero/{name}"] = f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"
    return json.dumps({"imports": imports})
