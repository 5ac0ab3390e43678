"""Predictions as they are kept in a results folder, to be shown beside what is measured.

A file each, `predictions/ID.json`; a newer prediction of the same step replaces an older one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from ridgeline.errors import RidgelineError
from ridgeline.predict.calibration import Calibration
from ridgeline.predict.predict import Prediction
from ridgeline.records import CountRequest, RunRequest, RunResult
from ridgeline.serialize import from_dict, to_dict
from ridgeline.settings import is_counted
from ridgeline.store import atomic_write_text, to_json

FOLDER = "predictions"
ID_CHARACTERS = 16


@dataclass(frozen=True, kw_only=True)
class StoredPrediction:
    """A prediction and the step that it is of."""

    request: CountRequest
    prediction: Prediction
    device_name: str = ""  # runs on another device are not compared with it
    threads: int | None = None
    compile_mode: str | None = None
    what_if: str = ""  # how it differs from a step that was to be run; empty: it does not
    made_at: str = ""
    path: Path | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The same for predictions of the same step on the same machine."""
        parts = [to_dict(self.request), self.prediction.machine, self.compile_mode]
        text = json.dumps(parts, sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()[:ID_CHARACTERS]


def store_prediction(
    results: Path,
    request: CountRequest,
    prediction: Prediction,
    calibration: Calibration,
    *,
    made_at: str,
    compile_mode: str | None = None,
    what_if: str = "",
) -> Path:
    """Keep a prediction, without its operators."""
    stored = StoredPrediction(
        request=request,
        prediction=replace(prediction, operators=(), layers=()),
        device_name=calibration.device_name,
        threads=calibration.threads,
        compile_mode=compile_mode,
        what_if=what_if,
        made_at=made_at,
    )
    path = results / FOLDER / f"{stored.name}.json"
    content = {name: one for name, one in to_dict(stored).items() if name != "path"}
    atomic_write_text(path, to_json(content))
    return path


def read_predictions(results: Path, problems: list[str]) -> list[StoredPrediction]:
    """All predictions of a results folder; what cannot be read goes to `problems`."""
    found = []
    for path in sorted((results / FOLDER).glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append(replace(from_dict(StoredPrediction, content), path=path))
        except (OSError, RidgelineError, TypeError, ValueError, RecursionError) as error:
            problems.append(f"the prediction {path.name} is passed over: {error}")
    return found


def is_comparable(request: RunRequest, result: RunResult, stored: StoredPrediction) -> bool:
    """Whether a run is of the step that was predicted, on that device."""
    return (
        is_counted(request)
        and request.compile == stored.compile_mode
        and result.device_name == stored.device_name
        and (stored.threads is None or result.threads == stored.threads)
    )
