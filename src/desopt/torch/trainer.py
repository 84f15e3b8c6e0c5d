"""A ``Trainer`` of Hugging Face's transformers whose training steps are rounds of DES."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import torch
from transformers import Trainer

from desopt.torch.optimizer import DES


class DESTrainer(Trainer):  # type: ignore[misc]
    """``transformers.Trainer`` without gradients: ``DESTrainer(model=..., args=..., des={...})``.

    ``des`` holds the settings of ``desopt.torch.DES``: method, step_size, iterations, subspace,
    journal. The parameters that require a gradient are searched, as ``peft`` leaves them. Every
    training step is one round on its batch, in ``eval`` mode. Data, collation, evaluation, logging
    and callbacks are the Trainer's; its optimiser, schedule and gradient settings have no effect.
    A run is resumed by ``journal``, from the base, not by checkpoints: the same call passes over
    the batches whose rounds are in the journal.
    """

    def __init__(self, *args: Any, des: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.optimizer: Any = None
        super().__init__(*args, **kwargs)
        self._settings = dict(des or {})
        self.des: DES | None = None
        self._passed = 0

    def train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().train(*args, **kwargs)
        finally:
            if self.des is not None:
                self.des.close()

    def create_optimizer(self, model: Any = None) -> Any:
        if self.optimizer is None:
            searched = [p for p in self.model.parameters() if p.requires_grad]
            self.des = DES(self.model.named_parameters(), **self._settings)
            self._passed = self.des.rounds
            # The Trainer steps it afterwards; without gradients it does nothing.
            self.optimizer = torch.optim.SGD(searched, lr=0.0)
        return self.optimizer

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        assert self.des is not None
        model.eval()
        if self._passed > 0:  # its round is in the journal
            self._passed -= 1
            return torch.tensor(math.nan, device=self.args.device)
        inputs = self._prepare_inputs(inputs)
        # A copy for each value: compute_loss may take the labels out.
        loss = self.des.step(lambda: self.compute_loss(model, copy(inputs)))
        parts = getattr(self, "current_gradient_accumulation_steps", 1)  # the Trainer adds them up
        return torch.tensor(loss / parts, device=self.args.device)
