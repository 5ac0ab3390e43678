"""The one error that is meant for people: what happened, then what to do about it."""


class RidgelineError(Exception):
    """Something the user can mend. The command line prints it in two lines and exits with 2."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.problem}\n  hint: {self.hint}"
