"""A federation: nobody's data move, and Flower takes the messages.

``server_app`` and ``client_app`` make Flower's ServerApp and ClientApp. docs/federation.md says
how to run them, ``examples/federation`` does so on one machine.
"""

from __future__ import annotations

try:
    import flwr.app  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"desopt.federate needs Flower 1.41 or newer ({error}); pip install 'desopt[flower]'"
    ) from error

from desopt.federate.client import client_app
from desopt.federate.engine import Federation
from desopt.federate.server import server_app

__all__ = ["Federation", "client_app", "server_app"]
