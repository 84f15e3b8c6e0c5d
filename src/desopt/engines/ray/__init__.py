"""Workers spread over a Ray cluster, in actors that keep the state by themselves."""

from desopt.engines.ray.engine import Ray

__all__ = ["Ray"]
