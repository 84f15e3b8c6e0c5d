"""What is minimised: a Python callable, or a linear model with compiled searches."""

from desopt.objectives.crew import ThreadCrew
from desopt.objectives.functions import PythonObjective
from desopt.objectives.linear import LOSSES, LinearModel
from desopt.objectives.local import WorkerData

__all__ = ["LOSSES", "LinearModel", "PythonObjective", "ThreadCrew", "WorkerData"]
