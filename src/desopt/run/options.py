"""Every setting of ``minimize``, ``desopt run``, studies and federations, declared once.

A declaration says what the setting is called, its default, what it may be, its help text, where it
can be set (the *doors*), and whether it belongs to the identity of a run: a resumed run may change
the other settings only. Signatures elsewhere repeat a default for the reader; a test compares them.

Nothing here imports numba: ``desopt --help`` and shell completion read this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

from desopt.contract import checks
from desopt.contract.errors import check_name

Door: TypeAlias = Literal["minimize", "run", "ask", "study", "federation"]
Check: TypeAlias = Callable[[str, Any], Any]
Names: TypeAlias = Callable[[], Iterable[str]]

EVERYWHERE: tuple[Door, ...] = ("minimize", "run", "study", "federation")
RUNS: tuple[Door, ...] = ("minimize", "run", "federation")
LOCAL: tuple[Door, ...] = ("minimize", "run")
PYTHON: tuple[Door, ...] = ("minimize", "federation")

#: Settings about a function that is called: not for runs whose values are told.
CALLED = (
    "engine", "jobs", "round_timeout", "evaluation_timeout", "attempts", "setup", "regularization",
    "eval_every", "patience", "max_seconds", "log_values", "vectorized",
)  # fmt: skip


def _anything(name: str, value: Any) -> Any:
    """For settings that are checked where they are used."""
    return value


def _up_to(limit: str, module: str = "desopt.contract.streams", least: int = 1) -> Check:
    """Up to a limit of a module, which is imported late: it loads numba."""

    def check(name: str, value: Any) -> int:
        return checks.whole(name, value, least, getattr(import_module(module), limit))

    return check


def _names(module: str, registry: str) -> Names:
    """The keys of a registry, imported late."""
    return lambda: list(getattr(import_module(module), registry))


def _one_of(names: Names) -> Check:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{name} must be one of {', '.join(names())}, got {value!r}")
        check_name(name, value, names())
        return value

    return check


def _vectorized(name: str, value: Any) -> Any:
    if isinstance(value, bool) or callable(value):
        return value
    raise TypeError(
        f"{name} must be True, False or a function that converts a NumPy array to one of yours, "
        f"such as torch.from_numpy; got {value!r:.80}"
    )


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r:.80}")
    return value


def _optional(check: Check) -> Check:
    return partial(checks.optional, check)


def _bounds(name: str, value: Any) -> Any:
    """As text: "LOW,HIGH", either of them empty for none, or a file of pairs."""
    if not isinstance(value, str):
        return value
    sides = value.split(",")
    try:
        if len(sides) == 2:
            return [float(side) if side.strip() else None for side in sides]
        return json.loads(Path(value).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name} must be LOW,HIGH or a JSON file of pairs [low, high] with null for none, got "
            f"{value!r}: {error}"
        ) from None


def _description(name: str, value: Any) -> Any:
    """The arguments of a ``Command``, from a JSON file."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(Path(value).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise ValueError(
            f'{name} must be a JSON file such as {{"command": ["./simulate", "{{x}}"]}}, got '
            f"{value!r}: {error}"
        ) from None
    return found


def _scale(name: str, value: Any) -> Any:
    """As text: one scale, or several with commas."""
    return value.split(",") if isinstance(value, str) and "," in value else value


def _step_size(name: str, value: Any) -> Any:
    """A number, or "auto"."""
    if isinstance(value, str) and value == "auto":
        return value
    try:
        return checks.positive(name, value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}; 'auto' is allowed, too") from None


def _number_or_name(text: Any) -> Any:
    """What a command line means: a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


method_names = _names("desopt.methods", "METHODS")
sampler_names = _names("desopt.methods.samplers", "SAMPLERS")
correction_names = _names("desopt.methods.des_c", "CORRECTIONS")
aggregate_names = _names("desopt.methods.aggregation", "AGGREGATES")


def objective_names() -> list[str]:
    """The losses, and the objectives that plug-ins have registered."""
    return list(import_module("desopt.objectives").objective_names())


def _auto_and(names: Names) -> Names:
    """``"auto"`` and the names."""
    return lambda: ["auto", *names()]


engine_names = _auto_and(_names("desopt.engines", "ENGINES"))


def _engine_or_name(name: str, value: Any) -> Any:
    """A name that is known; an object is checked where it is used."""
    if isinstance(value, str):
        check_name(name, value, engine_names())
    return value


def _elsewhere(default: Any) -> dict[Door, Any]:
    """The default of studies and federations, where nothing is chosen from the problem."""
    return {"study": default, "federation": default}


_FROM_ONE: Check = checks.whole
_FROM_ZERO: Check = partial(checks.whole, least=0)


@dataclass(frozen=True)
class Option:
    """The declaration of one setting.

    ``kind`` is its type on the command line; ``parser`` reads it there if it has several. ``part``
    names the argument of ``minimize`` whose object, where one is given, holds the setting itself.
    ``defaults`` has the doors with another default.
    """

    name: str
    default: Any
    kind: Any
    help: str
    doors: tuple[Door, ...]
    check: Check = _anything
    group: str = ""
    identity: bool = True
    part: Literal["fun", "method", "engine"] | None = None
    choices: Names | None = None
    metavar: str | None = None
    parser: Callable[[str], Any] | None = None
    defaults: Mapping[Door, Any] = field(default_factory=dict)

    def default_at(self, door: Door) -> Any:
        return self.defaults.get(door, self.default)


def _problem(name: str, default: Any, kind: Any, text: str, **more: Any) -> Option:
    return Option(name, default, kind, text, ("run",), group="Problem", **more)


def _method(
    name: str, default: Any, kind: Any, text: str, check: Check,
    doors: tuple[Door, ...] = EVERYWHERE, **more: Any,
) -> Option:  # fmt: skip
    """A hyper-parameter, with the paper's symbol."""
    return Option(name, default, kind, text, doors, check, "Method", part="method", **more)


def _engine(name: str, default: Any, kind: Any, text: str, check: Check) -> Option:
    return Option(name, default, kind, text, LOCAL, check, "Engine", identity=False, part="engine")


def _end(
    name: str, kind: Any, text: str, check: Check, doors: tuple[Door, ...] = RUNS, **more: Any
) -> Option:
    return Option(name, None, kind, text, doors, _optional(check), "End", identity=False, **more)


def _python(
    name: str, default: Any, text: str, check: Check = _anything, *, identity: bool = False,
    doors: tuple[Door, ...] = PYTHON, **more: Any,
) -> Option:  # fmt: skip
    """A setting with values that a command line cannot express."""
    return Option(name, default, None, text, doors, check, identity=identity, **more)


def _federation(name: str, default: Any, text: str) -> Option:
    return Option(name, default, None, text, ("federation",), identity=False)


OPTIONS: tuple[Option, ...] = (
    _problem("data", None, str | None, "Data set (see desopt data list) or file.", metavar="NAME"),
    _problem("loss", "lr", str, "Loss of the linear model.", choices=objective_names),
    Option("regularization", 1e-6, float, "Weight of the penalty.", EVERYWHERE, checks.real,
           "Problem", part="fun"),
    _problem("python", None, str | None, "Your own objective, fun(x, batch) or fun(x).",
             metavar="MODULE:FUNC"),
    _problem("command", None, str | None,
             "A program as the objective: a JSON file with the arguments of desopt.Command.",
             check=_description, metavar="FILE.json"),
    _problem("n", None, int | None, "For --python and --command: start at n zeros.",
             check=_optional(_FROM_ONE)),
    _problem("x0", None, str | None, "Starting point.", metavar="FILE.npy"),
    Option("bounds", None, str | None, "Bounds of all variables, or a JSON file of pairs.", LOCAL,
           _bounds, "Problem", metavar="LOW,HIGH"),
    Option("scale", None, str | None,
           "Scale of the variables: linear, log or own; or one for each, separated by commas.",
           LOCAL, _scale, "Problem", metavar="NAME"),
    _problem("rows", None, int | None, "Use this many rows of the data.",
             check=_optional(partial(checks.whole, least=2))),
    Option("standardize", False, bool,
           "Scale the columns to mean 0 and deviation 1 over the training rows.",
           ("run", "federation"), _flag, "Problem"),
    Option("intercept", False, bool, "Add a column of ones.", ("run", "federation"), _flag,
           "Problem"),
    _problem("test_share", 0.2, float, "Share of the rows held out for testing."),
    Option("plugin", None, list[str] | None,
           "Module that registers methods, samplers or objectives; repeatable.", ("run", "ask"),
           group="Problem", metavar="MODULE", identity=False),
    _problem("data_dir", None, str | None, "Folder of data files.", metavar="DIR", identity=False),

    Option("method", "auto", str, "Method; auto chooses by the problem.", EVERYWHERE,
           group="Method", choices=_auto_and(method_names), defaults=_elsewhere("des-mr")),
    Option("workers", None, int | None,
           "M, the number of workers; default: 10, or one for a population without data.",
           EVERYWHERE, _optional(_up_to("SERVER")), "Method", defaults=_elsewhere(10)),
    _method("iterations", 100, int, "K, iterations per worker and round.",
            _up_to("MAX_ITERATIONS")),
    Option("batch_size", 1000, int, "b, rows per minibatch.", EVERYWHERE, _FROM_ONE, "Method"),
    _method("step_size", None, str | None,
            "alpha, the step size; auto finds and adapts it. Default: 1 (des-c 0.3, zo-nsgd auto).",
            _optional(_step_size), metavar="NUMBER|auto", parser=_number_or_name,
            defaults={"study": 1.0}),
    _method("momentum", 0.5, float, "beta, the server's momentum.", checks.real),
    _method("mixture", 8, int, "l, coordinates per mutation.", _FROM_ONE),
    _method("radius", 1e-6, float, "mu of two-point estimates.", checks.positive),
    _method("population", None, int | None,
            "lambda, the size of a population; default: from n, M, K and b.",
            _optional(partial(checks.whole, least=2)), doors=RUNS),
    _method("correlations", 256, int,
            "The largest number of variables whose correlations cma-es learns.",
            _up_to("MOST_CORRELATED", "desopt.methods.cma_es", 0), doors=RUNS),
    _method("perturbations", 10, int, "P, directions per local step of decomfl.", _FROM_ONE),
    _method("candidates", 4096, int, "C, directions from which fedkseed draws.",
            _up_to("MOST_CANDIDATES", "desopt.methods.fedkseed")),
    _method("correction", "full", str, "What des-c sends besides accept bits.",
            _one_of(correction_names), choices=correction_names),
    _method("aggregate", "mean", str, "How the workers' points are combined.",
            _one_of(aggregate_names), choices=aggregate_names),
    Option("float32", False, bool, "Round x and momentum to float32 after every round (des*).",
           RUNS, _flag, "Method"),
    Option("sampler", None, str | None, "Distribution of the mutations; default: the method's.",
           EVERYWHERE, group="Method", part="method", choices=sampler_names),
    Option("participation", 1.0, float, "Share of the workers asked in each round.", EVERYWHERE,
           checks.share, "Method"),
    Option("seed", 0, int, "Seed of everything random, the data split included.", RUNS,
           checks.seed, "Method"),

    Option("engine", "auto", str, "Engine.", LOCAL, _engine_or_name, "Engine", identity=False,
           choices=engine_names),
    _engine("jobs", None, int | None, "Threads, processes or actors; default: one per core.",
            _optional(_FROM_ONE)),
    _engine("round_timeout", None, float | None,
            "Seconds for one worker's part of a round (processes, ray).",
            _optional(checks.positive)),
    _engine("evaluation_timeout", None, float | None,
            "Seconds for a single value, which fails after that (processes, ray).",
            _optional(checks.positive)),
    _engine("attempts", 3, int,
            "Attempts at one worker's part of a round, or at a single value (processes, ray).",
            _FROM_ONE),
    _python("constraints", None, "Function of x that returns violations; positive: violated.",
            identity=True, doors=("minimize",)),
    _python("setup", None, "Called once per process, before the objective.", doors=("minimize",),
            part="fun"),
    _python("vectorized", False,
            "Whether fun is a function of a matrix; or the conversion of this matrix.",
            _vectorized, doors=("minimize",), part="fun"),

    Option("rounds", None, int | None,
           "T, the number of rounds; default: 100, or as many as --max-evaluations allows.",
           EVERYWHERE, _optional(_up_to("MAX_ROUNDS")), "End", identity=False,
           defaults={"federation": 100}),
    _end("max_evaluations", int | None, "Compute at most this many function values.", _FROM_ONE),
    _end("max_seconds", float | None, "Stop after this many seconds.", checks.positive,
         doors=LOCAL),
    _end("target", float | None, "Stop when the objective reaches this value.", checks.real),
    _end("patience", int | None, "Stop after this many rounds without improvement.", _FROM_ONE),
    _end("eval_every", int | None,
         "Rounds between evaluations of the full objective; 0: never. Default: up to 100 times.",
         _FROM_ZERO, defaults={"federation": 1}),

    _python("callbacks", (), "Called with each round's row; True or StopIteration ends the run."),
    _python("journal", None, "File that makes the run resumable."),
    _python("snapshot_every", 0, "Rounds between states in the journal; 0: none.", _FROM_ZERO),
    Option("log_values", None, bool | None,
           "Keep every single value beside the journal; default: of functions slower than 10 ms.",
           LOCAL, _optional(_flag), "Engine", identity=False),
    Option("ahead", True, bool, "Let idle cores compute values that may turn out to be needed.",
           LOCAL, _flag, "Engine", identity=False),
    _python("progress", None, "Whether to show a progress bar; None: on a terminal.",
            _optional(_flag)),

    _federation("deadline", None, "Seconds after which a round closes with fewer answers."),
    _federation("min_answers", None, "Answers with which a round closes; None: all workers asked."),
    _federation("min_nodes", 1, "Connected nodes with which a round begins."),
    _federation("nodes", None, "The worker of each node."),
    _federation("loss", "mean", "How the nodes' values of the objective are combined."),
    _federation("evaluation", None, "Data of the server, on which the objective is evaluated."),
    _federation("poll", 0.2, "Seconds between two polls for replies."),
    _federation("snapshot", None, "File in which late nodes find the state."),
    _federation("columns", None, "Names of the columns, which every site must have."),
    _federation("model", None, "File for the final model."),
)  # fmt: skip


def options_of(door: Door) -> dict[str, Option]:
    """The settings that a door has, by name."""
    found = {option.name: option for option in OPTIONS if door in option.doors}
    return found | (_asked() if door == "ask" else {})


def _asked() -> dict[str, Option]:
    """The settings of ``minimize`` on a command line that has neither a function nor data."""
    others = (*CALLED, "batch_size", "ahead")
    local = (option for option in OPTIONS if set(LOCAL) <= set(option.doors))
    return {option.name: option for option in local if option.name not in others}


def checked(door: Door, given: Mapping[str, Any]) -> SimpleNamespace:
    """All settings of a door as attributes: those given, checked, and the others' defaults."""
    return SimpleNamespace(
        **{
            name: option.check(name, given[name]) if name in given else option.default_at(door)
            for name, option in options_of(door).items()
        }
    )


def refuse_settings_beside(part: Literal["fun", "method", "engine"], owner: Any,
                           settings: SimpleNamespace) -> None:  # fmt: skip
    """Refuse settings of ``minimize`` that contradict an object with settings of its own."""
    for name, option in options_of("minimize").items():
        value = getattr(settings, name)
        if option.part != part or value == option.default:
            continue
        if value != getattr(owner, name, option.default):
            raise ValueError(
                f"{name}={value!r} has no effect on {part}={owner!r:.80}, an object with settings "
                "of its own; set it there and leave it out here"
            )
