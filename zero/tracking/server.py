"""MLflow's server with pages that open on model training: `mlflow server --app-name zero`.

A new browser shows MLflow's pages for language models first, also for an experiment of the kind
`custom_model_development`, and no setting of the server changes that. The choice is kept in the browser. So the page
that loads MLflow's pages also runs a script that makes the choice, unless the user has made one.
"""

import json
import os
from typing import TYPE_CHECKING

from flask import Response, request

if TYPE_CHECKING:
    from fastapi import FastAPI

CHOICES = {
    "mlflow.workflowType_v1": "machine_learning",
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,
    "mlflow.telemetry.info.alert.dismissed_v1": True,
}
"""Defaults of a new browser: the pages for model training, the assistant for language models closed, and no message
about usage data, which this server does not collect."""
SCRIPT = (
    f"<script>for (const [key, value] of Object.entries({json.dumps(CHOICES)})) "
    "if (localStorage.getItem(key) === null) localStorage.setItem(key, JSON.stringify(value));</script>"
)


def create_app() -> "FastAPI":
    """MLflow's app with the script in its page."""
    from mlflow.server import app as pages
    from mlflow.server import fastapi_app

    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    pages.after_request(choose_training)
    app: FastAPI = fastapi_app.app
    return app


def choose_training(response: Response) -> Response:
    """Adds the script to the page that loads MLflow's pages."""
    if request.endpoint == "serve" and response.mimetype == "text/html":
        response.direct_passthrough = False  # the response of a file has no text otherwise
        response.set_data(response.get_data(as_text=True).replace("<head>", f"<head>{SCRIPT}", 1))
        for name in ("ETag", "Last-Modified"):  # of the file: browsers would keep the page of another version
            response.headers.pop(name, None)
    return response
