"""PyTorch modules trained by forward passes alone: no gradient, no graph, no optimiser state.

::

    result = desopt.torch.train(model, loss_fn, dataset, parameters="classifier.*", rounds=200)

searches the chosen parameters of ``model`` in place. ``loss_fn(model, batch)`` may be anything
that returns a number: a cross entropy, an error rate, 1 - F1, minus a reward. ``DES`` is the same
as an object with ``step(closure)``. ``save`` and ``load`` keep a tuned model as the digest of its
base and the journal of its run.
"""

try:
    import torch  # noqa: F401  # the real one: imports are absolute
except ImportError as error:  # pragma: no cover - depends on the machine
    raise ImportError(
        f"desopt.torch needs PyTorch ({error}); pip install 'desopt[torch]'"
    ) from None

from desopt.torch.optimizer import DES
from desopt.torch.parameters import Coordinates, Subspace
from desopt.torch.saved import load, save
from desopt.torch.train import train

__all__ = ["DES", "Coordinates", "Subspace", "load", "save", "train"]
