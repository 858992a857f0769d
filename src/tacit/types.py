"""Types that many rooms share. Torch is not loaded for them: accountants, which must do without it, use them too."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Indices = NDArray[np.int64]
Vectors = dict[str, "Tensor"]  # by parameter name: the currency of named_parameters and functional_call
Batch = Any  # a tensor, or a tuple, list or mapping of batches; Python's types cannot say it
