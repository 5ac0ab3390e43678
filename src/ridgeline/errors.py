"""The error that is meant for people: what happened, then what to do about it."""

from ridgeline.plain import plain_text


class RidgelineError(Exception):
    """Something the user can mend. The command line prints it in two lines and exits with 2.

    Both may quote a file that anybody has written: what a terminal would obey is escaped.
    """

    def __init__(self, problem: str, *, hint: str) -> None:
        self.problem = plain_text(problem)
        self.hint = plain_text(hint)
        super().__init__(self.problem)

    def __str__(self) -> str:
        return f"{self.problem}\n  hint: {self.hint}"


class MissingSizeError(RidgelineError):
    """A size was given that a model does not have; another of several models may have it.

    `name` is its field in a WorkloadSpec, or a dimension of an ONNX file.
    """

    def __init__(self, name: str, problem: str, *, hint: str) -> None:
        super().__init__(problem, hint=hint)
        self.name = name
