"""The Python of the page on PyTorch runs, and so does the Trainer that it shows."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed; make torch runs these tests", exc_type=ImportError
)

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"


def test_python_of_the_page_runs(tmp_path: Path) -> None:
    """All blocks, one after the other; those that need transformers are marked as text."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) > 3
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr


def test_files_named_on_the_page_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (PAGE.parent / link).exists()]
    assert links
    assert not missing


@pytest.mark.filterwarnings("ignore")  # of transformers and accelerate
def test_the_trainer_of_transformers_takes_rounds(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import desopt.torch
    from desopt.torch.trainer import DESTrainer

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            torch.nn.init.zeros_(self.linear.weight)
            torch.nn.init.zeros_(self.linear.bias)

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": torch.nn.functional.cross_entropy(self.linear(x), labels)}

    X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    rows = [{"x": x, "labels": (x[0] > 0).long()} for x in X]
    model, settings = Model(), {"iterations": 20, "step_size": 0.3}
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=64, max_steps=8, save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    journal = tmp_path / "run.journal"
    trainer = DESTrainer(
        model=model, args=arguments, train_dataset=rows, des={**settings, "journal": journal}
    )
    found = trainer.train()
    assert found.training_loss < 0.6  # log 2 = 0.69 at the start
    assert trainer.des is not None
    assert trainer.des.rounds == 8
    assert all(p.grad is None for p in model.parameters())
    rebuilt = desopt.torch.load(Model(), journal)
    assert all(map(torch.equal, model.parameters(), rebuilt.parameters()))


class Classifier(torch.nn.Module):  # type: ignore[misc, name-defined]
    """With logits, from which a function of the Trainer's may compute the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        for parameter in self.parameters():
            torch.nn.init.zeros_(parameter)

    def forward(self, x: Any, labels: Any = None) -> Any:
        logits = self.linear(x)
        if labels is None:
            return {"logits": logits}
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.filterwarnings("ignore")  # of transformers and accelerate
def test_the_trainer_resumes_and_accumulates(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from desopt.torch.trainer import DESTrainer

    X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    rows = [{"x": x, "labels": (x[0] > 0).long()} for x in X]

    def entropy(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        return torch.nn.functional.cross_entropy(outputs["logits"], labels)

    def trained(
        steps: int, journal: Any = None, compute_loss_func: Any = None, **more: Any
    ) -> tuple[Any, Any, float]:
        arguments = transformers.TrainingArguments(
            str(tmp_path / "out"), per_device_train_batch_size=16, max_steps=steps, report_to=[],
            save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no", **more,
        )  # fmt: skip
        model, des = Classifier(), {"iterations": 20, "step_size": 0.05, "journal": journal}
        trainer = DESTrainer(
            model=model, args=arguments, train_dataset=rows, des=des,
            compute_loss_func=compute_loss_func,
        )  # fmt: skip
        return model, trainer, trainer.train().training_loss

    whole, _, _ = trained(6)
    trained(4, tmp_path / "run.journal")
    again, trainer, _ = trained(6, tmp_path / "run.journal")
    assert trainer.des.rounds == 6
    assert all(map(torch.equal, whole.parameters(), again.parameters()))

    _, _, loss = trained(2, compute_loss_func=entropy)  # takes the labels out of its inputs
    assert loss < 0.7
    _, _, loss = trained(2, gradient_accumulation_steps=2)
    assert loss < 0.7  # log 2 = 0.69 at the start, not twice that
