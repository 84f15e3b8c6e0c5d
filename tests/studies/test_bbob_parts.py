"""The parts of ``desopt suite bbob``, for which COCO need not be installed."""

import pytest
from typer.testing import CliRunner

from desopt.cli.app import app
from desopt.methods import METHODS
from desopt.studies import bbob


def test_parts_are_chosen_by_name() -> None:
    everything = bbob.parts()
    assert len(everything) == len({part.folder for part in everything}) == (3 + 3 + 4) * 6 * 8
    assert {part.instances for part in everything[:144]} == {"1-5", "1"}  # the first ones of all
    few = bbob.parts(only=["bbob:es-csa,cma-es:40:1-5", "bbob-noisy:des:2"])
    assert [(p.suite, p.solver, p.dimension) for p in few if p.instances == "1-5"] == [
        ("bbob", "es-csa", 40), ("bbob", "cma-es", 40), ("bbob-noisy", "des", 2),
    ]  # fmt: skip
    assert (few[0].values, few[0].problems) == (40_000, 120)


def test_solvers_are_methods() -> None:
    assert {settings["method"] for settings in bbob.SOLVERS.values()} <= METHODS.keys()


@pytest.mark.parametrize(
    ("only", "error"),
    [("bbob:es-cas", "did you mean 'es-csa'"), ("bbob:640", "no part matches"), ("", "unknown")],
)
def test_names_that_match_nothing(only: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        bbob.parts(only=[only])


def test_the_list(tmp_path) -> None:  # type: ignore[no-untyped-def]
    done = CliRunner().invoke(
        app, ["suite", "bbob", "--scale", "smoke", "--list", "--out", str(tmp_path)]
    )
    assert done.output.splitlines()[0] == "to do  bbob/es-csa/bbob-d002-i1"
    assert done.output.splitlines()[-1] == "0 of 24 parts done"


INFO = """suite = 'bbob', funcId = 3, DIM = 2, Precision = 1.000e-08, algId = 'desopt-es-csa'
% 10 n values
data_f3/bbobexp_f3_DIM2.dat, 1:20|4.0e+01, 2:17|6.9e-09
"""


def test_the_precision_of_every_problem(tmp_path) -> None:  # type: ignore[no-untyped-def]
    call = ["suite", "bbob", "--scale", "smoke", "--only", "bbob:es-csa,cma-es", "--csv"]
    none = CliRunner().invoke(app, [*call, "--out", str(tmp_path)])
    assert none.exit_code == 2
    assert "no part is done" in none.output
    folder = tmp_path / bbob.parts("smoke", ["bbob:es-csa"])[0].folder
    folder.mkdir(parents=True)
    (folder / "bbobexp_f3.info").write_text(INFO)
    done = CliRunner().invoke(app, [*call, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "precision.csv").read_text().splitlines() == [
        "suite,solver,n,function,instance,values,precision",
        "bbob,es-csa,2,3,1,20,4.0e+01",
        "bbob,es-csa,2,3,2,17,6.9e-09",
    ]
