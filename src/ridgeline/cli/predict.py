"""`ridgeline predict`: how long a step takes that was not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.messages import print_json, raise_last, show_notes
from ridgeline.cli.progress import progress_bar
from ridgeline.cli.tables import Columns, format_known, make_grid, print_grid
from ridgeline.plain import plain_text
from ridgeline.settings import COMPILE_MODES
from ridgeline.units import format_percent, parse_seconds, si

if TYPE_CHECKING:
    from ridgeline.predict.predict import Prediction

EXAMPLES = """
[bold]Examples[/]

  ridgeline machine calibrate
  ridgeline predict resnet50 -b 1,8,64
  ridgeline predict vit_b_16 -b 32 --mode train --optimizer adamw --precision amp
  ridgeline predict resnet50.onnx -b 8 --layers
  ridgeline predict resnet50 -b 64 --on "H100 SXM5"         # from its datasheet
"""


@opt.takes_groups
def predict(
    counted: opt.Counted,
    compile_mode: str | None = opt.option(
        None, "As torch.compile would run it.", choices=COMPILE_MODES
    ),
    on: list[str] | None = opt.option(
        None,
        "A machine with a calibration, a passport or a datasheet; may be repeated. Default: this.",
        metavar="MACHINE",
    ),
    refine: float = opt.option(
        0.0,
        "Time the operators that matter most, here, for so long: 5s.",
        metavar="SECONDS",
        parser=parse_seconds,
    ),
    layers: bool = opt.option(False, "Also the time of each module.", "--layers"),
    output: opt.Output = opt.Output(),
) -> None:
    """Predict the time of steps that were not run, with an interval.

    A machine is calibrated once: ridgeline machine calibrate.
    """
    with stopped_at_once():
        from ridgeline.pipeline import count_models, predict

        count_models.import_counting(tuple(counted.models or ()))
    opt.check_one_size(counted.input_sizes or ())
    options = counted.options()
    count_models.check_options(options)
    with progress_bar(options.steps, quiet=output.quiet, first="counting") as progress:
        predictor = predict.open_predictor(
            output.results, tuple(on or ()), compile_mode=compile_mode, refine_s=refine,
            with_layers=layers, on_progress=progress.start,
        )  # fmt: skip
        predictions, errors = predict.predict_models(options, predictor, progress.start)
    if output.as_json:
        print_json({"predictions": [one.to_dict() for one in predictions]})
    elif predictions:
        print_predictions(predictions)
    show_notes(() if output.quiet else predictor.notes)
    raise_last(errors)


COLUMNS: Columns = {
    "model": lambda p: p.model,
    "batch": lambda p: str(p.batch_size),
    "machine": lambda p: p.machine,
    "step": lambda p: si(p.time_s, "s"),
    "80 % interval": lambda p: " to ".join(si(end, "s") for end in p.interval_s),
    "samples/s": lambda p: f"{p.throughput:.4g}",
    "operators": lambda p: si(p.kernel_time_s, "s"),
    "host": lambda p: si(p.host_time_s, "s"),
    "bound": lambda p: p.bound,
    "memory": lambda p: si(p.memory_bytes, "B") + (", does not fit" if p.fits is False else ""),
    "power": lambda p: format_known(p.power_w, lambda power_w: si(power_w, "W")),
    "energy": lambda p: format_known(p.energy_j, lambda energy_j: si(energy_j, "J")),
    "from": lambda p: ", ".join(
        f"{format_percent(share)} {name}" for name, share in p.provenance.items()
    ),
}
LAYERS: Columns = {
    "layer": lambda one: one.path,
    "type": lambda one: one.type,
    "time": lambda one: si(one.time_s, "s"),
    "share": lambda one: format_percent(one.share),
    "from": lambda one: one.provenance,
}
SPARE = ("operators", "host", "samples/s", "from")


def print_predictions(predictions: list[Prediction]) -> None:
    """A row for each, then the layers of each that has some, then what to know about them."""
    has_energy = any(p.energy_j is not None for p in predictions)
    columns = {
        title: cell for title, cell in COLUMNS.items()
        if has_energy or title not in ("power", "energy")
    }  # fmt: skip
    print_grid(make_grid(predictions, columns, spare=SPARE))
    for p in predictions:
        if p.layers:
            print(f"\n{p.model}, batch {p.batch_size}, on {p.machine}\n")
            print_grid(make_grid(p.layers, LAYERS, names=2))
    several = len({p.model for p in predictions}) > 1
    notes = [f"{p.model}: {note}" if several else note for p in predictions for note in p.notes]
    past = [p.past.text for p in predictions]
    for line in dict.fromkeys([*filter(None, past), *notes]):
        print(plain_text(line))
