"""The one error that is meant for people: what happened, then what to do about it."""

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
