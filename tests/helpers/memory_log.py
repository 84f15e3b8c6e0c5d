"""A log of single values in memory, for the tests of engines."""

from desopt.engines.trials import Key, Outcome, Trial


class Memory:
    """A log in a dict, which refuses a second value of a trial."""

    def __init__(self) -> None:
        self.kept: dict[Key, Outcome] = {}

    def known(self, trial: Trial) -> Outcome | None:
        return self.kept.get(trial.key)

    def add(self, trial: Trial, outcome: Outcome) -> None:
        assert trial.key not in self.kept
        self.kept[trial.key] = outcome
