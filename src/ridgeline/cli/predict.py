"""`ridgeline predict`: how long a step takes that was not run."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ridgeline.cli import options as opt
from ridgeline.cli.interrupts import stopped_at_once
from ridgeline.cli.messages import print_json, raise_last, show_message
from ridgeline.cli.progress import progress_bar
from ridgeline.cli.tables import Grid, print_grid
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
    compile_mode: str | None = opt.option(
        None, "As torch.compile would run it: default, reduce-overhead, max-autotune."
    ),
    on: list[str] | None = opt.option(
        None, "A calibrated machine; may be repeated. Default: this one.", metavar="MACHINE"
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
    )
    count_models.check_options(options)
    request = predict.PredictRequest(
        count=options, machines=tuple(on or ()), compile_mode=compile_mode, refine_s=refine,
        layers=layers,
    )  # fmt: skip
    outcome = predict.PredictOutcome()
    with progress_bar(options.steps, quiet=output.quiet, first="counting") as progress:
        predict.predict_models(request, output.results, outcome, progress.start)
    if output.as_json:
        print_json({"predictions": [to_row(one) for one in outcome.predictions]})
    elif outcome.predictions:
        print_predictions(outcome.predictions)
    for note in () if output.quiet else dict.fromkeys(outcome.notes):
        show_message(f"note: {note}")
    raise_last([error for _, error in outcome.errors])


def to_row(prediction: Prediction) -> dict[str, Any]:
    """The JSON form; single operators are left out."""
    row = asdict(prediction)
    del row["operators"]
    return row


def print_predictions(predictions: list[Prediction]) -> None:
    """A row for each, then the layers of each that has some."""
    header = ["model", "batch", "machine", "step", "80 % interval", "samples/s", "operators",
              "host", "bound", "memory", "measured"]  # fmt: skip
    rows = [
        [p.model, str(p.batch_size), p.machine, si(p.time_s, "s"),
         f"{si(p.interval_s[0], 's')} to {si(p.interval_s[1], 's')}", f"{p.throughput:.4g}",
         si(p.kernel_time_s, "s"), si(p.host_time_s, "s"), p.bound,
         si(p.memory_bytes, "B") + ("" if p.fits is not False else ", does not fit"),
         format_percent(p.provenance.get("measured", 0.0))]
        for p in predictions
    ]  # fmt: skip
    spare = ("operators", "host", "samples/s")
    print_grid(Grid(header=header, rows=rows, text_columns=1, spare=spare))
    for p in predictions:
        if p.layers:
            print(f"\n{p.model}, batch {p.batch_size}, on {p.machine}\n")
            layer_rows = [
                [one.path, one.type, si(one.time_s, "s"), format_percent(one.share), one.provenance]
                for one in p.layers
            ]
            print_grid(Grid(
                header=["layer", "type", "time", "share", "known by"], rows=layer_rows,
                text_columns=2,
            ))  # fmt: skip
    past = predictions[0].past
    if past.n and past.mean_error is not None:
        mean = format_percent(past.mean_error)
        print(f"\nlast {past.n} predictions here: {mean} mean, {past.inside} of {past.n} inside")
