"""The engine of a federation: the data stay on the nodes, and Flower carries the messages."""

from __future__ import annotations

try:
    import flwr.app  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"engine 'flower' needs Flower 1.41 or newer ({error}); pip install 'desopt[flower]'"
    ) from error
