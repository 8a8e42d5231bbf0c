"""Code of a registered player: a "models from code" file, stored with the weights. Nothing is unpickled.

MLflow runs a copy of this file when a registered version is loaded. It needs only the installed package:

    player = mlflow.pyfunc.load_model("models:/zero-go9@champion")
    player.predict(planes)    # planes [B, P, S, S] float32 -> {"prior": [B, A], "value": [B]}

The prior covers all actions, also illegal ones (the search masks them); the value is for the player to move.
`load_model(..., model_config={"device": "cuda"})` evaluates on a GPU; every field of the profile can be set.
"""

import threading
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel, PythonModelContext


class ServedNetwork(PythonModel):  # type: ignore[misc]  # MLflow is not typed
    """Priors and values of one network."""

    def load_context(self, context: PythonModelContext) -> None:
        """Reads the weights. PyTorch is imported here, because registering a player runs this file without it."""
        from zero.config.params import ProfileParams
        from zero.network.inference import new_evaluator

        weights = Path(context.artifacts["weights"]).read_bytes()
        self._evaluator = new_evaluator(weights, ProfileParams.model_validate(context.model_config))
        self._lock = threading.Lock()  # the evaluator has one input buffer, a scoring server many threads

    def predict(
        self, context: PythonModelContext, model_input: np.ndarray, params: dict[str, Any] | None = None
    ) -> dict[str, np.ndarray]:
        """Priors [B, A] and values [B] (both float32) of planes [B, P, S, S] (zeros and ones)."""
        from zero.games.planes import pack_planes

        num_positions, num_planes, rows, columns = model_input.shape
        planes = pack_planes(model_input.reshape(num_positions, num_planes, rows * columns))
        priors = np.empty((num_positions, self._evaluator.spec.num_actions), np.float32)
        values = np.empty(num_positions, np.float32)
        if num_positions:
            with self._lock:
                self._evaluator.evaluate(planes, priors, values)
        return {"prior": priors, "value": values}


set_model(ServedNetwork())
