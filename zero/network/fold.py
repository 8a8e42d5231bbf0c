"""Folding of batch normalisation into the preceding convolutions: the same function in fewer steps, for inference.

In evaluation mode a normalisation is y = (x - mean) / sqrt(variance + eps) * gamma + beta, an affine map per channel.
The convolution before it can absorb the scale into its weights and the offset into a bias.
"""

import numpy as np

NORM_EPSILON = 1e-5
"""`eps`: PyTorch's default, which the networks are trained with."""


def fold_norm(
    weight: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of the convolution that equals one without a bias and its normalisation.

    Computed in float64 and rounded once.

    Args:
      weight: [C_out, C_in, K, K] float32, of the convolution.
      gamma: [C_out] float32, as are the others: `weight` of the normalisation.
      beta: its `bias`.
      mean: its `running_mean`.
      variance: its `running_var`.

    Returns:
      [C_out, C_in, K, K] and [C_out] float32, contiguous.
    """
    scale = gamma / np.sqrt(variance.astype(np.float64) + NORM_EPSILON)
    folded, bias = weight * scale.reshape(-1, 1, 1, 1), beta - mean * scale
    return np.ascontiguousarray(folded, np.float32), bias.astype(np.float32)
