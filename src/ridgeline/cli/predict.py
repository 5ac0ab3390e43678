"""`ridgeline predict`: how long a step takes that was not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.messages import print_json, raise_last, show_message
from ridgeline.cli.progress import progress_bar
from ridgeline.cli.tables import Grid, format_known, print_grid
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
  ridgeline predict transformers:llama --seq-len 512 --refine 5s
  ridgeline predict resnet50.onnx -b 8 --layers
  ridgeline predict resnet50 -b 8 --on my-server --json
  ridgeline predict resnet50 -b 64 --on "H100 SXM5"         # from its datasheet
"""


@opt.takes_groups
def predict(
    models: list[str] | None = opt.argument(
        None, "MODEL…", f"{opt.MODEL_FORMS}, FILE.onnx", autocompletion=opt.complete_model
    ),
    batch_size: str | None = opt.option(None, "One or several: 1,8,64.", *opt.SEVERAL),
    mode: opt.Mode = "infer",
    precision: opt.Precision = "fp32",
    optimizer: opt.Optimizer = "sgd",
    input_size: opt.InputSize = None,
    seq_len: opt.SeqLen = None,
    config: opt.Config = None,
    dim: list[str] | None = opt.option(
        None, "Size of an open dimension of a .onnx file: seq=128. Repeatable.", "--dim"
    ),
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

        count_models.import_counting(tuple(models or ()))
    options = count_models.CountOptions(
        models=tuple(models or ()),
        batch_sizes=opt.parse_batch_sizes(batch_size),
        mode=mode,
        precision=precision,
        optimizer=optimizer,
        input_sizes=(opt.parse_input_size(input_size),),
        seq_len=seq_len,
        config=opt.parse_config(config),
        dims=opt.parse_dims(dim or []),
    )
    count_models.check_options(options)
    outcome = predict.PredictOutcome()
    with progress_bar(options.steps, quiet=output.quiet, first="counting") as progress:
        predictor = predict.open_predictor(
            output.results, tuple(on or ()), compile_mode=compile_mode, refine_s=refine,
            with_layers=layers, on_progress=progress.start,
        )  # fmt: skip
        predict.predict_models(options, predictor, outcome, progress.start)
    if output.as_json:
        print_json({"predictions": [one.to_dict() for one in outcome.predictions]})
    elif outcome.predictions:
        print_predictions(outcome.predictions)
    for note in () if output.quiet else predictor.notes:
        show_message(f"note: {note}")
    raise_last([error for _, error in outcome.errors])


def print_predictions(predictions: list[Prediction]) -> None:
    """A row for each, then the layers of each that has some, then what to know about them."""
    has_energy = any(p.energy_j is not None for p in predictions)
    header = ["model", "batch", "machine", "step", "80 % interval", "samples/s", "operators",
              "host", "bound", "memory", *(["power", "energy"] if has_energy else []),
              "from"]  # fmt: skip
    rows = [
        [p.model, str(p.batch_size), p.machine, si(p.time_s, "s"),
         f"{si(p.interval_s[0], 's')} to {si(p.interval_s[1], 's')}", f"{p.throughput:.4g}",
         si(p.kernel_time_s, "s"), si(p.host_time_s, "s"), p.bound,
         si(p.memory_bytes, "B") + ("" if p.fits is not False else ", does not fit"),
         *([format_known(p.power_w, lambda w: si(w, "W")),
            format_known(p.energy_j, lambda j: si(j, "J"))] if has_energy else []),
         ", ".join(f"{format_percent(share)} {name}" for name, share in p.provenance.items())]
        for p in predictions
    ]  # fmt: skip
    spare = ("operators", "host", "samples/s", "from")
    print_grid(Grid(header=header, rows=rows, text_columns=1, spare=spare))
    for p in predictions:
        if p.layers:
            print(f"\n{p.model}, batch {p.batch_size}, on {p.machine}\n")
            layer_rows = [
                [one.path, one.type, si(one.time_s, "s"), format_percent(one.share), one.provenance]
                for one in p.layers
            ]
            print_grid(Grid(
                header=["layer", "type", "time", "share", "from"], rows=layer_rows, text_columns=2
            ))  # fmt: skip
    several = len({p.model for p in predictions}) > 1
    notes = [f"{p.model}: {note}" if several else note for p in predictions for note in p.notes]
    past = [p.past.text for p in predictions]
    for line in dict.fromkeys([*filter(None, past), *notes]):
        print(plain_text(line))
