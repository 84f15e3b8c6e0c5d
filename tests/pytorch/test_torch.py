"""``desopt.torch``: modules searched in place, with the bits of ``minimize``.

The folder is not called torch: it would be found by that name where PyTorch is not installed.
"""

import copy
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import desopt
from desopt.contract.errors import JournalError, ObjectiveError
from desopt.contract.scattered import Scattered

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed; make torch runs these tests", exc_type=ImportError
)

from torch import nn  # noqa: E402

from desopt.torch.parameters import CHUNK, Parameters  # noqa: E402
from desopt.torch.rows import Examples  # noqa: E402

QUICK: dict[str, Any] = {"rounds": 3, "iterations": 6, "step_size": 0.05, "progress": False}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def net(dtype: Any = None) -> Any:
    """A module with a buffer, a dropout and weights of its own seed."""
    generator = torch.Generator().manual_seed(5)
    made = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3)
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made if dtype is None else made.to(dtype)


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4)).astype(np.float32)
    return torch.from_numpy(X), torch.from_numpy((X[:, 0] > 0).astype(np.int64))


def bits(model: Any) -> list[bytes]:
    """All parameters and buffers."""
    return [t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            for t in model.state_dict().values()]  # fmt: skip


def flat(model: Any) -> Any:
    return np.concatenate([p.detach().double().numpy().ravel() for p in model.parameters()])


def error_rate(model: Any, batch: Any) -> float:
    """A loss without a gradient."""
    X, y = batch
    return float((model(X).argmax(1) != y).double().mean())


def smooth(model: Any, batch: Any) -> Any:
    X, y = batch
    return nn.functional.cross_entropy(model(X.to(next(model.parameters()).dtype)).double(), y)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "des-mr"},
        {"method": "des-mg", "mixture": 60},  # coordinates drawn twice in a step
        {"method": "des-mr", "step_size": "auto", "iterations": 40},
        {"method": "des"},
        {"method": "fed-zo-sgd", "radius": 1e-2},
        {"method": "es-csa", "step_size": 0.1},
    ],
    ids=lambda s: s["method"] + str(s.get("step_size", "")),
)
def test_the_bits_are_those_of_minimize(settings: dict[str, Any]) -> None:
    """A plain function of base + x, which knows nothing of steps in place, takes the same path.

    It takes as many rows at once as ``train``: a product of matrices in float32 may round a row
    otherwise, on some CPUs, beside another number of rows.
    """
    X, y = data()
    model, reference = net(), net().eval()
    base, shapes = flat(reference), list(reference.parameters())
    settings = {**QUICK, "batch_size": 20, "workers": 2, **settings}
    if settings["method"] == "es-csa":  # all rows of a worker, in one batch
        settings["batch_size"] = 60
    size = settings["batch_size"]

    def fun(x: Any, rows: Any) -> float:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(base + x).float(), shapes)
        parts = [rows[first : first + size] for first in range(0, len(rows), size)]
        with torch.no_grad():
            values = [float(smooth(reference, (X[part], y[part]))) for part in parts]
        sizes = [len(part) for part in parts]
        return float(np.average(values, weights=sizes)) if len(parts) > 1 else values[0]

    found = desopt.torch.train(model, smooth, (X, y), **settings)
    expected = desopt.minimize(fun, np.zeros(base.size), np.arange(60), engine="serial", **settings)
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.fun == pytest.approx(expected.fun, rel=1e-12)
    np.testing.assert_array_equal(flat(model), (base + found.x).astype(np.float32))
    assert np.any(found.x)


def test_modes_buffers_and_other_parameters_are_left_alone() -> None:
    model, before = net(), net()
    model[0].eval()  # a mode of its own
    modes = [part.training for part in model.modules()]

    def watching(model: Any, batch: Any) -> Any:
        assert not any(part.training for part in model.modules())
        assert torch.is_inference_mode_enabled()
        return smooth(model, batch)

    desopt.torch.train(model, watching, data(), parameters="4.*", **QUICK)
    assert [part.training for part in model.modules()] == modes
    changed = [name for name, tensor in model.state_dict().items()
               if not torch.equal(tensor, before.state_dict()[name])]  # fmt: skip
    assert changed == ["4.weight", "4.bias"]
    assert all(p.grad is None for p in model.parameters())


def test_a_choice_of_parameters() -> None:
    def searched(choice: Any) -> int:
        return int(desopt.torch.train(net(), smooth, data(), parameters=choice, **QUICK).x.size)

    assert searched("*bias") == 8 + 8 + 3
    assert searched(["0.*", "1.*"]) == 40 + 16
    assert searched(lambda name, p: p.ndim == 2) == 32 + 24
    model = net()
    model[0].requires_grad_(False)
    assert desopt.torch.train(model, smooth, data(), **QUICK).x.size == 16 + 27
    with pytest.raises(ValueError, match=r"none of the module's 6 has lora\*; they are named 0\."):
        searched("lora*")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "subspace", [None, desopt.torch.Coordinates(9), desopt.torch.Subspace(5, seed=2)], ids=str
)
def test_a_tuned_module_is_its_base_and_a_journal(
    dtype: Any, subspace: Any, tmp_path: Path
) -> None:
    journal, kept = tmp_path / "run.journal", tmp_path / "tuned.des"
    settings = {**QUICK, "subspace": subspace, "journal": journal, "step_size": 0.5}
    model, base = net(dtype), net(dtype)
    result = desopt.torch.train(model, smooth, data(), snapshot_every=1, **settings)
    assert bits(model) != bits(base)
    desopt.torch.save(kept, journal)
    assert bits(desopt.torch.load(base, kept)) == bits(model)
    assert desopt.replay(kept).tobytes() == result.x.tobytes()
    assert kept.stat().st_size < journal.stat().st_size
    # rounds before the last, and the base itself
    assert bits(desopt.torch.load(net(dtype), kept, round=0)) == bits(net(dtype))
    early = desopt.torch.train(net(dtype), smooth, data(), **{**settings, "rounds": 2,
                               "journal": None})  # fmt: skip
    assert desopt.replay(kept, 2).tobytes() == early.x.tobytes()
    assert bits(desopt.torch.load(net(dtype), kept, round=2)) != bits(model)


def test_a_round_that_is_none_leaves_no_file(tmp_path: Path) -> None:
    journal, kept = tmp_path / "run.journal", tmp_path / "tuned.des"
    desopt.torch.train(net(), smooth, data(), journal=journal, **QUICK)
    others: list[Any] = [1.5, "2", True]
    for wrong in others:
        with pytest.raises(TypeError, match="round must be a whole number"):
            desopt.torch.save(kept, journal, wrong)
    with pytest.raises(ValueError, match="must be 0 to 3, got 4"):
        desopt.torch.save(kept, journal, 4)
    assert not kept.exists()
    with pytest.raises(FileExistsError, match=r"run\.journal exists"):
        desopt.torch.save(journal, journal)


def test_another_base_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "run.journal"
    desopt.torch.train(net(), smooth, data(), journal=journal, **QUICK)
    other = net()
    with torch.no_grad():
        other[1].running_mean[0] = 1e-30  # a buffer of a part that was not even searched
    with pytest.raises(JournalError, match="was made from another base"):
        desopt.torch.load(other, journal)
    with pytest.raises(JournalError, match="base"):  # nor is the run continued from it
        desopt.torch.train(other, smooth, data(), journal=journal, **QUICK)
    tuned = desopt.torch.load(net(), journal)
    with pytest.raises(JournalError, match="call load once"):
        desopt.torch.load(tuned, journal)
    plain = tmp_path / "plain.journal"
    desopt.minimize(lambda x: float(x @ x), np.ones(3), journal=plain, rounds=2, method="des")
    with pytest.raises(JournalError, match=r"not of desopt\.torch"):
        desopt.torch.load(net(), plain)


def test_a_subspace_moves_all_numbers_along_orthogonal_directions() -> None:
    """Its columns, by writing unit vectors: disjoint, signs of both kinds, length 1 on average."""
    parameter = nn.Parameter(torch.zeros(CHUNK + 1000, dtype=torch.float64))
    d = 40
    parameters = Parameters([("w", parameter)], desopt.torch.Subspace(d, seed=1))
    columns = []
    for j in range(d):
        parameters.write(np.eye(d)[j])
        columns.append(parameter.detach().numpy().copy())
    P = np.array(columns)
    assert ((P != 0).sum(0) == 1).all()
    size = np.sqrt(d / parameter.numel())
    np.testing.assert_allclose(np.abs(P).max(), size, rtol=1e-15)
    # a column has N/d = 1,663 numbers, so its squared length is 1 +- 0.025; 5 of these at most
    assert np.abs((P**2).sum(1) - 1).max() < 0.125
    assert abs((P > 0).sum() / parameter.numel() - 0.5) < 0.01
    parameters.write(np.zeros(d))
    assert not parameter.detach().numpy().any()


def test_coordinates_are_distinct_and_the_rest_stays() -> None:
    for d in (3, 40, 100):
        parameter = nn.Parameter(torch.zeros(100, dtype=torch.float64))
        parameters = Parameters([("w", parameter)], desopt.torch.Coordinates(d, seed=4))
        parameters.write(np.arange(1.0, d + 1))
        written = parameter.detach().numpy()
        np.testing.assert_array_equal(np.sort(written[written != 0]), np.arange(1.0, d + 1))


def test_only_what_has_moved_is_kept_beside_the_module() -> None:
    """Where few numbers move; a point that is an array needs all base values, as they were."""
    parameter = nn.Parameter(torch.arange(1.0, 101.0))
    parameters = Parameters([("w", parameter)])
    base = parameter.detach().clone()
    parameters.write(Scattered(100, [3, 50], [0.25, -2.0]))
    parameters.write_at(np.array([50, 7]), np.array([1.0, 1e-9]))  # far below its resolution
    parameters.write_at(np.array([7, 99]), np.array([0.5, 0.5]))
    moved = (parameter.detach() - base).numpy()
    assert (np.flatnonzero(moved).tolist(), moved[[3, 7, 50, 99]].tolist()) == (
        [3, 7, 50, 99], [0.25, 0.5, 1.0, 0.5]
    )  # fmt: skip
    assert parameters._written.columns.tolist() == [3, 7, 50, 99]
    parameters.write(Scattered(100, [4], [1.0]))  # all others are the base again
    assert np.flatnonzero((parameter.detach() - base).numpy()).tolist() == [4]
    assert parameters._written.columns.tolist() == [4]
    assert parameters._base is None
    parameters.write(np.full(100, 2.0))
    np.testing.assert_array_equal(parameter.detach().numpy(), base.numpy() + 2.0)
    parameters.restore()
    assert torch.equal(parameter.detach(), base)

    model = net()
    result = desopt.torch.train(model, smooth, data(), **QUICK)
    assert isinstance(result.get("x"), Scattered)


def test_small_steps_add_up_in_a_module_of_few_digits() -> None:
    """bfloat16 has 8 bits; x keeps what the module cannot show."""
    parameter = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    parameters = Parameters([("w", parameter)])
    x = np.zeros(1)
    for _ in range(100):
        x += 1e-4
        parameters.write(x)
    assert float(parameter.detach()) == float(torch.tensor(1.01, dtype=torch.float64).bfloat16())


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_module_for_each_thread_and_process(engine: str) -> None:
    serial = desopt.torch.train(net(), smooth, data(), workers=3, batch_size=10, **QUICK)
    model = net()
    found = desopt.torch.train(
        model, smooth, data(), workers=3, batch_size=10, engine=engine, jobs=2, **QUICK
    )
    assert found.digest == serial.digest
    np.testing.assert_array_equal(flat(model), (flat(net()) + found.x).astype(np.float32))


def test_data_of_all_kinds_draw_the_same_examples() -> None:
    X, y = data()
    tensors = torch.utils.data.TensorDataset(X, y)
    settings = {**QUICK, "workers": 2, "batch_size": 8}
    expected = desopt.torch.train(net(), smooth, (X, y), **settings).digest
    plain: Any = [(X[i], y[i]) for i in range(60)]
    loader = torch.utils.data.DataLoader(tensors, batch_size=8, shuffle=True)
    assert desopt.torch.train(net(), smooth, tensors, **settings).digest == expected
    assert desopt.torch.train(net(), smooth, Pairs(plain), **settings).digest == expected
    del settings["batch_size"]  # the loader's
    assert desopt.torch.train(net(), smooth, loader, **settings).digest == expected
    parts = [torch.utils.data.TensorDataset(X[:20], y[:20]), tensors]
    assert desopt.torch.train(net(), smooth, parts, **QUICK).history[-1]["answers"] == 2
    assert len(Examples(tensors).take(np.array([3, 3]))[0]) == 2
    with pytest.raises(TypeError, match="have no numbers to draw them by"):
        desopt.torch.train(net(), smooth, iter(plain), **QUICK)


class Pairs:
    def __init__(self, pairs: Any) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, i: int) -> Any:
        return self.pairs[i]


def test_losses_without_gradients_rewards_and_drawn_data() -> None:
    settings = {**QUICK, "rounds": 20, "iterations": 30, "step_size": 0.3}
    result = desopt.torch.train(net(), error_rate, data(), **settings)
    assert result.fun < 0.5 * result.initial_fun

    def draw(rng: np.random.Generator, b: int) -> Any:
        return torch.from_numpy(rng.standard_normal((b, 4)).astype(np.float32))

    def reward(model: Any, batch: Any) -> float:
        return -float(model(batch)[:, 2].mean())

    assert desopt.torch.train(net(), reward, draw, batch_size=20, **settings).fun < -1.0
    alone = desopt.torch.train(net(), lambda model: float(model[4].bias.square().sum()), **QUICK)
    assert alone.fun < alone.initial_fun


def test_an_error_leaves_the_module_as_it_was() -> None:
    calls: list[int] = []

    def breaking(model: Any, batch: Any) -> Any:
        calls.append(1)
        if len(calls) > 9:
            raise RuntimeError("no more")
        return smooth(model, batch)

    model = net()
    with pytest.raises(ObjectiveError, match="no more"):
        desopt.torch.train(model, breaking, data(), **QUICK)
    assert bits(model) == bits(net())


def test_ctrl_c_leaves_the_module_as_after_the_last_whole_round() -> None:
    calls: list[int] = []

    def stopped(model: Any, batch: Any) -> Any:
        calls.append(1)
        if len(calls) == 17:  # a round takes 7 values
            raise KeyboardInterrupt
        return smooth(model, batch)

    model, expected = net(), net()
    settings = {**QUICK, "eval_every": 0}
    with pytest.raises(desopt.Interrupted):
        desopt.torch.train(model, stopped, data(), **settings)
    desopt.torch.train(expected, smooth, data(), **{**settings, "rounds": 2})
    assert bits(model) == bits(expected) != bits(net())


def test_steps_of_an_optimiser_are_rounds(tmp_path: Path) -> None:
    X, y = data()
    settings: dict[str, Any] = {"iterations": 6, "step_size": 0.05}

    def steps(optimizer: Any, model: Any, count: int) -> None:
        for _ in range(count):
            optimizer.step(lambda: smooth(model, (X, y)))

    model = net().eval()
    expected = desopt.torch.train(model, smooth, (X, y), batch_size=60, rounds=3, **settings)
    mine = net().eval()
    optimizer = desopt.torch.DES(mine.named_parameters(), **settings)
    before = float(smooth(mine, (X, y)).detach())
    assert optimizer.step(lambda: smooth(mine, (X, y))) == before
    kept = copy.deepcopy(optimizer.state_dict())
    steps(optimizer, mine, 2)
    assert optimizer.x.tobytes() == expected.x.tobytes()
    assert bits(mine) == bits(model)

    again = net().eval()  # by its state, from the base
    other = desopt.torch.DES(again.named_parameters(), **settings)
    other.load_state_dict(kept)
    steps(other, again, 2)
    assert bits(again) == bits(model)
    with pytest.raises(ValueError, match="method is"):
        desopt.torch.DES(net().named_parameters(), step_size=1.0).load_state_dict(kept)
    others: list[Any] = [{}, None, {"state": 1}]
    for wrong in others:
        with pytest.raises(TypeError, match="must be a state_dict"):
            other.load_state_dict(wrong)
    with pytest.raises(ValueError, match="it must have round, x, m"):
        other.load_state_dict({**kept, "state": {"x": kept["state"]["x"]}})

    torch.save(kept, tmp_path / "steps.pt")  # read without other types than torch.load allows
    read = net().eval()
    other = desopt.torch.DES(read.named_parameters(), **settings)
    other.load_state_dict(torch.load(tmp_path / "steps.pt"))
    steps(other, read, 2)
    assert bits(read) == bits(model)

    assert kept["evaluations"] == 7  # of the first step: they count for the budget
    last = net().eval()
    spent = desopt.torch.DES(last.named_parameters(), max_evaluations=14, **settings)
    spent.load_state_dict(kept)
    steps(spent, last, 1)
    with pytest.raises(ValueError, match="the run has ended"):
        steps(spent, last, 1)

    journal = tmp_path / "steps.journal"  # by its journal
    for count in (1, 2):
        resumed = net().eval()
        by_journal = desopt.torch.DES(resumed.named_parameters(), journal=journal, **settings)
        steps(by_journal, resumed, count)
        by_journal.close()
    assert by_journal.rounds == 3
    assert bits(resumed) == bits(model)
    assert bits(desopt.torch.load(net(), journal)) == bits(model)


def test_an_optimiser_with_bounds_leaves_the_point_of_train() -> None:
    X, y = data()
    settings: dict[str, Any] = {"iterations": 6, "step_size": 0.5, "bounds": (-0.4, 0.1)}
    model, mine, resumed = net().eval(), net().eval(), net().eval()
    expected = desopt.torch.train(model, smooth, (X, y), batch_size=60, rounds=3, **settings)
    optimizer = desopt.torch.DES(mine.named_parameters(), **settings)
    optimizer.step(lambda: smooth(mine, (X, y)))
    kept = copy.deepcopy(optimizer.state_dict())
    for _ in range(2):
        optimizer.step(lambda: smooth(mine, (X, y)))
    assert optimizer.x.tobytes() == expected.x.tobytes()
    assert optimizer.x.min() >= -0.4
    assert optimizer.x.max() <= 0.1
    assert bits(mine) == bits(model)

    other = desopt.torch.DES(resumed.named_parameters(), **settings)
    other.load_state_dict(kept)
    for _ in range(2):
        other.step(lambda: smooth(resumed, (X, y)))
    assert bits(resumed) == bits(model)
    wider = desopt.torch.DES(net().named_parameters(), **{**settings, "bounds": (-1.0, 1.0)})
    with pytest.raises(ValueError, match="space is"):  # x would mean another point
        wider.load_state_dict(kept)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.1}, "unknown setting 'lr'"),
        ({"stepsize": 0.1}, "did you mean 'step_size'"),
        ({"target": 0.1}, "target=0.1 has no effect on steps"),
        ({"workers": 4}, "workers=4 has no effect on steps"),
        ({"engine": "processes"}, "engine='processes' has no effect on steps"),
    ],
)
def test_an_optimiser_refuses_settings_that_it_would_ignore(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        desopt.torch.DES(net().parameters(), **settings)
    desopt.torch.DES(net().parameters(), workers=1, engine="serial", target=None)


def test_an_optimiser_refuses_what_is_no_parameters_of_its_own() -> None:
    model = net()
    others: list[Any] = [model, model[0].weight, [{"params": [model[0].weight]}], 3]
    for wrong in others:
        with pytest.raises(TypeError, match="params must be model"):
            desopt.torch.DES(wrong)
    with pytest.raises(ValueError, match="a and b share memory"):
        desopt.torch.DES([("a", model[0].weight), ("b", model[0].weight)])
    model[4].bias = nn.Parameter(model[4].weight.data.view(-1)[5:8])  # a part of its memory
    with pytest.raises(ValueError, match="bias share memory"):
        desopt.torch.train(model, smooth, data(), **QUICK)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_loss_may_be_a_tensor_of_one_element(shape: tuple[int, ...]) -> None:
    def shaped(model: Any, batch: Any) -> Any:
        return smooth(model, batch).reshape(shape)

    model, expected = net(), net()
    desopt.torch.train(model, shaped, data(), **QUICK)
    desopt.torch.train(expected, smooth, data(), **QUICK)
    assert bits(model) == bits(expected)


def test_a_step_refuses_what_is_no_loss(tmp_path: Path) -> None:
    model, journal = net().eval(), tmp_path / "closed.journal"
    optimizer = desopt.torch.DES(model.parameters(), journal=journal, iterations=2)
    others: list[Any] = [lambda: "1.5", lambda: None, lambda: 1j, lambda: torch.ones(2)]
    for wrong in others:
        with pytest.raises(ObjectiveError, match="must return one real number"):
            optimizer.step(wrong)
    nothing: Any = None
    with pytest.raises(TypeError, match="closure must be a function"):
        optimizer.step(nothing)
    optimizer.step(lambda: smooth(model, data()))
    optimizer.close()
    with pytest.raises(ValueError, match="the journal is closed"):
        optimizer.step(lambda: smooth(model, data()))


def test_a_list_of_loaders_has_their_batch_size_and_collate_fn() -> None:
    tensors = torch.utils.data.TensorDataset(*data())
    loaders = [torch.utils.data.DataLoader(tensors, batch_size=size) for size in (8, 16)]
    settings = {**QUICK, "batch_size": 8}
    expected = desopt.torch.train(net(), smooth, [tensors, tensors], **settings).digest
    assert desopt.torch.train(net(), smooth, [tensors, loaders[0]], **QUICK).digest == expected
    assert desopt.torch.train(net(), smooth, loaders, **settings).digest == expected
    with pytest.raises(ValueError, match="batch sizes 8, 16, but a run has one"):
        desopt.torch.train(net(), smooth, loaders, **QUICK)
    other = torch.utils.data.DataLoader(tensors, batch_size=8, collate_fn=tuple)
    with pytest.raises(ValueError, match="different collate_fn"):
        desopt.torch.train(net(), smooth, [loaders[0], other], **QUICK)


def test_a_run_on_a_list_is_not_continued_on_other_tensors(tmp_path: Path) -> None:
    X, y = data()
    settings: dict[str, Any] = {**QUICK, "journal": tmp_path / "list.journal"}
    first = desopt.torch.train(net(), smooth, [(X, y), (X, y)], **settings).digest
    assert desopt.torch.train(net(), smooth, [(X, y), (X, y)], **settings).digest == first
    with pytest.raises(JournalError, match="digest"):
        desopt.torch.train(net(), smooth, [(X, y), (2.0 * X, y)], **settings)


def test_what_a_loader_has_and_a_run_ignores_is_said() -> None:
    tensors = torch.utils.data.TensorDataset(*data())
    few = torch.utils.data.SubsetRandomSampler(range(5))
    loader = torch.utils.data.DataLoader(tensors, batch_size=8, sampler=few)
    with pytest.warns(RuntimeWarning, match="SubsetRandomSampler of the DataLoader has no effect"):
        desopt.torch.train(net(), smooth, loader, **QUICK)
    by_eights = torch.utils.data.BatchSampler(few, 8, drop_last=False)
    loader = torch.utils.data.DataLoader(tensors, batch_sampler=by_eights)
    with pytest.warns(RuntimeWarning, match="SubsetRandomSampler of the DataLoader has no effect"):
        found = desopt.torch.train(net(), smooth, loader, **QUICK).digest
    assert found == desopt.torch.train(net(), smooth, tensors, batch_size=8, **QUICK).digest
    with pytest.raises(ValueError, match="batch_size=None, which makes no batches"):
        desopt.torch.train(net(), smooth, torch.utils.data.DataLoader(tensors, None), **QUICK)


def test_data_that_are_not_examples_are_refused() -> None:
    X, y = data()
    with pytest.raises(TypeError, match="data has NumPy arrays; give tensors"):
        desopt.torch.train(net(), smooth, (X.numpy(), y.numpy()), **QUICK)
    for wrong in ((X, y[:7]), [(X[0], y[0])]):
        with pytest.raises(ValueError, match="tensors must have one length"):
            desopt.torch.train(net(), smooth, wrong, **QUICK)


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        ("parameters", ["0.*", "haed.*"], ValueError, r"6 has haed\.\*; they are named 0"),
        ("parameters", [], TypeError, "parameters must be None, patterns of names"),
        ("parameters", 5, TypeError, "parameters must be None, patterns of names"),
        ("parameters", [torch.ones(2)], TypeError, "parameters must be None, patterns of names"),
        ("subspace", 20, TypeError, r"subspace must be None, Coordinates\(d\) or Subspace\(d\)"),
        ("subspace", desopt.torch.Subspace, TypeError, "subspace must be None"),
        ("model", smooth, TypeError, "model must be a torch.nn.Module"),
        ("model", nn.PReLU(0), ValueError, "weight have no numbers to search"),
    ],
)
def test_choices_that_are_none_are_refused(
    argument: str, value: Any, error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"model": net(), **QUICK, argument: value}
    with pytest.raises(error, match=message):
        desopt.torch.train(given.pop("model"), smooth, data(), **given)


class Named(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> Any:
        X, y = data()
        return {"inputs": X[i], "labels": y[i]}


def test_a_loss_may_change_its_batch() -> None:
    """Every value is of the batch as it was drawn."""

    def doubled(model: Any, batch: Any) -> Any:
        return smooth(model, (2.0 * batch["inputs"], batch["labels"]))

    def in_place(model: Any, batch: Any) -> Any:
        return smooth(model, (batch.pop("inputs").mul_(2.0), batch.pop("labels")))

    for engine in ("serial", "threads"):
        settings: dict[str, Any] = {**QUICK, "batch_size": 20, "engine": engine, "workers": 2}
        expected = desopt.torch.train(net(), doubled, Named(), **settings)
        assert desopt.torch.train(net(), in_place, Named(), **settings).digest == expected.digest

    def draw(rng: Any, b: int) -> Any:
        return {"inputs": torch.from_numpy(rng.standard_normal((b, 4))), "labels": torch.ones(b)}

    def mean(model: Any, batch: Any) -> Any:
        return model(batch["inputs"].mul_(2.0).float()).square().mean()

    def mean_of_copy(model: Any, batch: Any) -> Any:
        return model((batch["inputs"] * 2.0).float()).square().mean()

    found = [desopt.torch.train(net(), loss, draw, **QUICK).digest for loss in (mean, mean_of_copy)]
    assert found[0] == found[1]


KILLED = """
    import os, signal, sys
    sys.path.insert(0, {folder!r})
    from test_torch import QUICK, data, desopt, net, smooth, torch
    torch.set_num_threads(1)
    calls = 0

    def loss(model, batch):
        global calls
        calls += 1
        if calls == 15:
            os.kill(os.getpid(), signal.SIGKILL)
        return smooth(model, batch)

    settings = dict(QUICK, batch_size=20, eval_every=0, journal={journal!r})
    desopt.torch.train(net(), loss, data(), **settings)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9")
def test_a_killed_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    journal = tmp_path / "run.journal"
    code = textwrap.dedent(KILLED.format(folder=str(Path(__file__).parent), journal=str(journal)))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ, timeout=900)
    assert done.returncode == -signal.SIGKILL
    model, whole = net(), net()
    settings = {**QUICK, "batch_size": 20, "eval_every": 0}
    with pytest.warns(RuntimeWarning, match="other code of fun"):
        resumed = desopt.torch.train(model, smooth, data(), journal=journal, **settings)
    expected = desopt.torch.train(whole, smooth, data(), **settings)
    assert resumed.digest == expected.digest
    assert bits(model) == bits(whole)
