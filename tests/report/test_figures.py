"""Figures of a study that was written by hand: which there are, and what is in them."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from matplotlib.transforms import Affine2D, Bbox
from tests.report.hand_study import make_study, training

from ridgeline.findings import COLUMNS as FINDING_COLUMNS
from ridgeline.report.configurations import add_rates
from ridgeline.report.convolutions import OF_CONVOLUTIONS
from ridgeline.report.figures import ENERGY_KINDS, KINDS, rooflines, times, write_figures
from ridgeline.report.figures.rooflines import RoofSet, draw_machine, outline, roof_names
from ridgeline.report.figures.style import Drawing, in_style
from ridgeline.report.figures.views import MachineView, list_views
from ridgeline.report.study import Machine, Study
from ridgeline.roofline.points import COLUMNS
from ridgeline.roofline.roofs import Roofs

GPU = Roofs(
    env="gpu", device="cuda:0", device_name="a GPU", clock_hz=2.1e9,
    clocks_hz={"fp16 matrix": 1.41e9, "fp32 vector": 1.98e9, "fp64 vector": 2.1e9, "dram": 1.98e9},
    compute={"fp16 matrix": 800e12, "fp32 vector": 50e12, "fp64 vector": 25e12},
    bandwidth={"dram": 4e12, "l2": 8e12}, launch_s={"kernel": 4e-6}, cache_level="l2",
)  # fmt: skip
SHEET = Roofs(env="gpu", device="cuda:0", source="datasheet",
              compute={"fp16 matrix": 1000e12, "fp32 vector": 60e12},
              bandwidth={"dram": 5e12})  # fmt: skip
CPU = Roofs(env="cpu", device="cpu", device_name="a CPU", is_quick=True,
            compute={"fp32 vector": 200e9}, bandwidth={"dram": 100e9, "l3": 200e9})  # fmt: skip


def point(run_id: str, *, roofs: Roofs = GPU, **more: Any) -> dict[str, Any]:
    """A point of a step with 1 TFLOP in 10 ms, 100 GB moved and 10 GB fused."""
    row: dict[str, Any] = {name: float("nan") for name in COLUMNS}
    row |= {
        "run_id": run_id, "env": roofs.env, "device": roofs.device, "model": "net",
        "label": "", "mode": "train", "precision": "fp32", "batch_size": 8, "grain": "step",
        "name": "net", "layer": "", "phase": "all", "kind": "step", "shapes": "",
        "provenance": "static", "flops": 1e12, "dram_bytes": 100e9, "fused_bytes": 10e9,
        "time_s": 0.01, "compute_s": 0.002, "dram_s": 0.001, "launch_s": 0.0005,
        "floor_s": 0.002, "bound": "compute", "efficiency": 0.2, "flag": "",
    }  # fmt: skip
    row |= more
    row["ai"] = row["flops"] / row["dram_bytes"]
    row["ai_high"] = row["flops"] / row["fused_bytes"] if row["fused_bytes"] > 0 else row["ai"]
    row["attained_flops_per_s"] = row["flops"] / row["time_s"]
    row["peak_flops_per_s"] = row["flops"] / row["compute_s"]
    row.setdefault("flops_fp32_vector", row["flops"])
    return row


def run(run_id: str, *, roofs: Roofs = GPU, time_s: float = 0.01, **more: Any) -> dict[str, Any]:
    return {
        "run_id": run_id, "env": roofs.env, "device": roofs.device,
        "device_name": roofs.device_name, "model": "net",
        "mode": "train", "precision": "fp32", "batch_size": 8, "step_median_s": time_s,
        "step_interval_low_s": time_s * 0.8, "step_interval_high_s": time_s * 1.25,
        "images_processed": 80, "measured_iters": 10, "compile": None, "optimizer": "sgd",
        **more,
    }  # fmt: skip


def study(
    runs: Sequence[dict[str, Any]],
    points: Sequence[dict[str, Any]],
    machines: Sequence[Machine] = (Machine(roofs=GPU, datasheet=SHEET),),
) -> Study:
    return Study(
        results=Path("nowhere"),
        machines=tuple(machines),
        runs=add_rates(pd.DataFrame(runs)),
        points=pd.DataFrame(points) if points else pd.DataFrame(columns=[*COLUMNS, "flag"]),
        findings=pd.DataFrame(columns=list(FINDING_COLUMNS)),
    )


def two_machines() -> Study:
    """Two batches with layers, a kernel and cache bytes on a GPU; one on a CPU."""
    points = []
    for run_id, batch in (("a", 8), ("b", 16)):
        points.append(point(run_id, batch_size=batch, l2_bytes=200e9, flops=batch * 1e11))
        points += [
            point(run_id, batch_size=batch, grain="layer", name=name, layer=name, kind="Conv2d",
                  time_s=time_s)
            for name, time_s in (("conv1", 0.004), ("conv2", 0.002))
        ]  # fmt: skip
    points.append(point("b", batch_size=16, grain="kernel", name="void gemm<float>(x)",
                        provenance="counter", time_s=0.001, dram_bytes=5e9))  # fmt: skip
    points.append(point("c", roofs=CPU, flops=1e9, dram_bytes=1e9, fused_bytes=1e8))
    runs = [run("a"), run("b", batch_size=16, time_s=0.02), run("c", roofs=CPU)]
    return study(runs, points, [Machine(roofs=GPU, datasheet=SHEET), Machine(roofs=CPU)])


def only_view(study: Study) -> MachineView:
    (view,) = list_views(study)
    return view


def drawn(draw: Any, what: Any) -> Drawing:
    with in_style():
        drawing = draw(what)
    assert isinstance(drawing, Drawing)
    return drawing


def lines(drawing: Drawing, kind: str) -> list[Any]:
    """The lines of a figure whose identifier begins with a word."""
    every = drawing.canvas.axes[0].get_lines()
    return [line for line in every if str(line.get_gid()).startswith(f"{kind}-")]


def legend_texts(drawing: Drawing) -> list[str]:
    (box,) = drawing.canvas.legends
    return [text.get_text().replace("\n", " ") for text in box.get_texts()]


def texts(drawing: Drawing) -> list[Any]:
    return [text for text in drawing.canvas.axes[0].texts if text.get_text()]


def test_the_files_of_a_study(tmp_path: Path) -> None:
    told: list[str] = []
    found = write_figures(two_machines(), tmp_path, on_progress=told.append)

    assert [figure.path.name for figure in found] == [
        "roofline_gpu.png", "roofline_gpu_layers.png", "roofline_gpu_kernels.png",
        "roofline_gpu_hierarchical.png", "throughput_gpu.png", "roofline_cpu.png",
        "throughput_cpu.png", "runtime.png",
    ]  # fmt: skip
    elsewhere = {
        "sweep",
        "training",
        "prediction",
        *OF_CONVOLUTIONS,
        *ENERGY_KINDS,
    }  # none of them here
    assert {figure.kind for figure in found} == {*KINDS} - elsewhere
    assert {figure.env for figure in found} == {"gpu", "cpu", ""}
    assert all(path.is_file() for figure in found for path in figure.paths)
    assert all(figure.paths[1].suffix == ".svg" for figure in found)
    assert all(figure.caption.endswith(".") and figure.title for figure in found)
    assert "roofline_gpu" in told
    assert found[0].title == (
        "a GPU: training steps (roofs as measured at 1.98 GHz; datasheet dashed and in brackets)"
    )


@pytest.mark.parametrize(
    ("clocks_hz", "told"),
    [
        ({"fp32 vector": 1.98e9, "dram": 1.98e9, "fp64 vector": 2.1e9}, " at 1.98 GHz"),
        ({"fp32 vector": 1.98e9, "dram": 1.74e9}, " at 1.74 GHz to 1.98 GHz"),
        ({"fp64 vector": 2.1e9}, ""),
    ],
    ids=["one", "several", "not of those that are drawn"],
)
def test_the_clock_in_a_title_is_that_of_the_ceilings_drawn(
    clocks_hz: dict[str, float], told: str
) -> None:
    # given fp64 products at 2.1 GHz, which no step uses
    roofs = replace(GPU, clock_hz=2.1e9, clocks_hz=clocks_hz)
    one = list_views(study([run("a")], [point("a")], [Machine(roofs=roofs)]))[0]

    drawing = drawn(rooflines.draw_steps, one)

    assert drawing.title == f"a GPU: training steps (roofs as measured{told})"


def test_pictures_can_be_read_and_made_again(tmp_path: Path) -> None:
    once = write_figures(two_machines(), tmp_path / "1", kinds=["classic"])
    again = write_figures(two_machines(), tmp_path / "2", kinds=["classic"])

    png, svg = once[0].paths
    assert struct.unpack(">II", png.read_bytes()[16:24]) == (1400, 880)  # 7 inches at 200 dpi
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    assert root.tag.endswith("svg")
    assert once[0].caption in svg.read_text(encoding="utf-8")
    assert svg.read_bytes() == again[0].paths[1].read_bytes()


NO_ROOFS = Machine(roofs=Roofs(env="gpu", device="cuda:0", device_name="a GPU", source="none"))
UNPLACED = point("a", compute_s=float("nan"), dram_s=float("nan"))


@pytest.mark.parametrize(
    ("few", "kinds"),
    [
        (study([], [], []), []),
        (study([], []), []),
        (study([run("a")], []), ["throughput", "runtime"]),
        (study([run("a")], [UNPLACED], [NO_ROOFS]), ["throughput", "runtime"]),
    ],
    ids=["nothing", "a machine", "runs", "points without roofs"],
)
def test_figures_that_cannot_be_drawn_are_absent(
    tmp_path: Path, few: Study, kinds: list[str]
) -> None:
    written = write_figures(few, tmp_path / "figures", formats=["svg"])
    assert [figure.kind for figure in written] == kinds
    assert (tmp_path / "figures").exists() is bool(kinds)


OUTLINES = [  # compute roofs, levels, lines, ridges
    (GPU, ["fp32 vector", "fp16 matrix"], ("dram",),
     [((1, 200), (4e12, 800e12)), ((200, 1000), (800e12, 800e12)), ((12.5, 1000), (50e12, 50e12))],
     [(200, 800e12), (12.5, 50e12)]),
    (GPU, ["fp16 matrix"], ("dram", "l2"),  # cache levels have slopes of their own
     [((1, 200), (4e12, 800e12)), ((1, 100), (8e12, 800e12)), ((100, 1000), (800e12, 800e12))],
     [(200, 800e12), (100, 800e12)]),
    (Roofs(env="e", device="d", compute={"fp32 vector": 5.0}), ["fp32 vector"], ("dram",),
     [((1, 1000), (5.0, 5.0))], []),
]  # fmt: skip


@pytest.mark.parametrize(("roofs", "names", "levels", "expected", "ridges"), OUTLINES)
def test_the_ridge_is_a_vertex(
    roofs: Roofs, names: list[str], levels: tuple[str, ...], expected: Any, ridges: Any
) -> None:
    one = RoofSet(roofs=roofs, names=names, levels=levels)
    assert [(line.xs, line.ys) for line in outline(one, (1, 1000))] == expected
    assert one.ridges == ridges


def test_the_drawn_roofs_have_it_too() -> None:
    drawing = drawn(rooflines.draw_steps, only_view(study([run("a")], [point("a", time_s=0.1)])))

    assert [12.5 in line.get_xdata() for line in lines(drawing, "roof")] == [True, True]
    assert [12.0 in line.get_xdata() for line in lines(drawing, "datasheet")] == [True, True]
    assert {line.get_linestyle() for line in lines(drawing, "datasheet")} == {"--"}
    written = {text.get_text() for text in texts(drawing)}
    assert {"fp32 vector 50.0 (60.0) TFLOP/s", "DRAM 4.00 (5.00) TB/s", "ridge 12.5"} <= written


def test_only_roofs_that_matter() -> None:
    # given a run with one small kernel all in fp64
    table = pd.DataFrame({
        "run_id": ["a", "a"],
        "flops": [99.5, 0.5],
        "flops_fp16_matrix": [99.5, 0.0],
        "flops_fp64_vector": [0.0, 0.5],
    })  # fmt: skip
    # then its roof is not drawn: it is half a per cent of the run
    assert roof_names(table, GPU) == ["fp16 matrix", "fp32 vector"]


def test_roofs_of_the_same_height_are_one_line() -> None:
    # given products in seven precisions, as many as a capture may have
    rates = {"fp8 matrix": 16e14, "int8 matrix": 16e14, "fp16 matrix": 8e14, "bf16 matrix": 8e14,
             "tf32 matrix": 4e14, "fp64 matrix": 5e13, "fp32 vector": 5e13}  # fmt: skip
    roofs = Roofs(env="gpu", device="cuda:0", compute=rates)
    columns = {f"flops_{name.replace(' ', '_')}": [10.0] for name in rates}
    table = pd.DataFrame({"run_id": ["a"], "flops": [70.0], **columns})
    # then all of them are drawn, since they have four heights
    assert roof_names(table, roofs) == [
        "fp8 matrix", "int8 matrix", "bf16 matrix", "fp16 matrix", "tf32 matrix", "fp32 vector",
        "fp64 matrix",
    ]  # fmt: skip
    # and of more heights than there is room for, the lowest is there
    assert roof_names(table, roofs, most=2) == [
        "fp8 matrix", "int8 matrix", "fp32 vector", "fp64 matrix",
    ]  # fmt: skip


def test_static_points_are_hollow_with_a_range_and_counters_are_filled() -> None:
    counter = point("a", provenance="counter", dram_bytes=50e9, fused_bytes=float("nan"))
    drawing = drawn(rooflines.draw_steps, only_view(study([run("a")], [point("a"), counter])))

    hollow, filled = lines(drawing, "mark")
    assert hollow.get_markerfacecolor() == "white"
    assert filled.get_markerfacecolor() == filled.get_markeredgecolor() != "white"
    assert (list(hollow.get_xdata()), list(hollow.get_ydata())) == ([10.0], [1e14])
    (bar,) = lines(drawing, "range")
    assert list(bar.get_xdata()) == [10.0, 100.0]
    names = [text.get_text() for text in texts(drawing)]
    assert names.count("net, 8") == 1  # one configuration, counted both ways


def test_what_cannot_be_is_marked() -> None:
    flagged = point("a", flag="above its compute roof: 9 % faster than its floor; likely cause: x")
    drawing = drawn(rooflines.draw_steps, only_view(study([run("a")], [flagged])))

    (ring,) = lines(drawing, "flag")
    assert list(ring.get_xdata()) == [10.0]
    assert "!" in [text.get_text() for text in texts(drawing)]
    assert legend_texts(drawing)[-1] == "! faster than its roof allows"


def crowded() -> Study:
    """36 configurations in a small corner, a third of them counted both ways."""
    runs, points = [], []
    every = itertools.product(("resnet50", "bert-base-uncased", "vit"), ("fp32", "amp"), range(6))
    for number, (model, precision, power) in enumerate(every):
        name = f"r{number}"
        same: dict[str, Any] = {"model": model, "precision": precision, "batch_size": 2**power}
        runs.append(run(name, time_s=0.01 + number * 1e-4, **same))
        work: dict[str, Any] = {"dram_bytes": 60e9 + 3e9 * power, "time_s": 0.04 + number * 1e-3}
        points.append(point(name, l2_bytes=300e9, **same, **work))
        if number % 3 == 0:
            points.append(point(name, provenance="counter", flag="odd", l2_bytes=90e9, **same,
                                **work))  # fmt: skip
    return study(runs, points)


def overlap(one: Any, other: Any) -> bool:
    """Whether two texts overlap; of two along parallel slopes, in the direction of these."""
    angles, boxes = (one.get_rotation(), other.get_rotation()), []
    for text in (one, other):
        if angles[0] and angles == pytest.approx((angles[1], angles[0]), abs=0.1):
            middle = (
                Affine2D()
                .rotate_deg(-angles[0])
                .transform(text.get_window_extent().get_points().mean(axis=0))
            )
            text.set_rotation(0)
            size = text.get_window_extent().size
            text.set_rotation(angles[0])
            boxes.append(Bbox.from_bounds(*(middle - size / 2), *size))
        else:
            boxes.append(text.get_window_extent())
    return bool(boxes[0].overlaps(boxes[1]))


@pytest.mark.parametrize("draw", [rooflines.draw_steps, rooflines.draw_levels])
def test_labels_do_not_overlap_even_in_a_crowd(draw: Any) -> None:
    drawing = drawn(draw, only_view(crowded()))

    axes = drawing.canvas.axes[0]
    labels = [text for text in texts(drawing) if text.zorder == 6]  # not the subtitle
    assert len(labels) > 3
    frame = axes.get_window_extent()
    boxes = [text.get_window_extent() for text in labels]
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)
    for one, other in itertools.combinations(labels, 2):
        assert not overlap(one, other), f"{one.get_text()!r} is on {other.get_text()!r}"
    (legend,) = drawing.canvas.legends
    assert not legend.get_window_extent().overlaps(frame)
    assert legend.get_window_extent().y0 > 0
    every = [*texts(drawing), *legend.get_texts(), *axes.get_xticklabels(), axes.title]
    assert min(text.get_fontsize() for text in every) >= 7


def test_long_names_leave_room_for_the_bars() -> None:
    variables = "MALLOC_TOP_PAD_=268435456 MKL_NUM_THREADS=1 OMP_NUM_THREADS=1"
    runs = [run("a", label="before"), run("b", label="after", threads=1, environment=variables)]
    drawing = drawn(times.draw_runtimes, [only_view(study(runs, []))])

    drawing.canvas.draw_without_rendering()
    (axes,) = drawing.canvas.axes
    assert min(name.get_window_extent().x0 for name in axes.get_yticklabels()) >= 0
    assert axes.get_position().width > 0.4


def test_error_bars_by_hand() -> None:
    view = only_view(study([
        run("a", time_s=0.01), run("b", time_s=0.02), run("c", time_s=0.04),
        run("d", time_s=0.01, batch_size=16, images_processed=160),
    ], []))  # fmt: skip
    table = times.list_rates(view)

    assert table[["batch_size", "rate"]].to_numpy().tolist() == [[8, 400.0], [16, 1600.0]]
    assert table["low"].tolist() == pytest.approx([8 / 0.05, 16 / 0.0125])
    assert table["high"].tolist() == pytest.approx([8 / 0.008, 16 / 0.008])

    drawing = drawn(times.draw_throughput, view)
    bars: Any = drawing.canvas.axes[0].containers[0]
    ends = bars.lines[2][0].get_segments()[0]
    assert ends[:, 1].tolist() == pytest.approx([8 / 0.05, 8 / 0.008])


def test_marks_by_level() -> None:
    # given a step counted both ways, and one whose L1 bytes alone are known
    static = point("a", l2_bytes=200e9, least_bytes=50e9)
    counter = point("a", provenance="counter", l2_bytes=200e9, l1_bytes=400e9, flag="odd")
    none = point("b", batch_size=16, provenance="counter", l1_bytes=400e9,
                 dram_bytes=float("nan"))  # fmt: skip
    view = only_view(study([run("a"), run("b", batch_size=16)], [static, counter, none]))

    intensities = rooflines.list_intensities(view.points)
    drawing = drawn(rooflines.draw_levels, view)

    # then what the cache holds is not moved from DRAM, and one level is no hierarchy
    assert [row.dropna().to_dict() for _, row in intensities.iterrows()] == [
        {"dram": 20.0, "l2": 5.0}, {"dram": 10.0, "l2": 5.0, "l1": 2.5}, {"l1": 2.5},
    ]  # fmt: skip
    marks = [(line.get_marker(), *line.get_xdata()) for line in lines(drawing, "mark")]
    assert marks == [("o", 20.0), ("D", 5.0), ("o", 10.0), ("D", 5.0), ("^", 2.5)]
    assert [list(line.get_xdata()) for line in lines(drawing, "link")] == [[5.0, 20.0], [2.5, 10.0]]
    assert [list(line.get_xdata()) for line in lines(drawing, "flag")] == [[10.0]]
    assert legend_texts(drawing)[2:6] == ["memory level", "DRAM", "L2", "L1"]
    assert len(lines(drawing, "roof")) == 3  # the flat one, DRAM and L2
    assert drawing.caption.startswith("1 step with their memory levels on a GPU.")


INFER: Any = {"mode": "infer"}
TITLES = [
    (rooflines.draw_steps, study([run("a"), run("b", **INFER)], [point("a"), point("b", **INFER)]),
     "a GPU: training and inference steps"),
    (rooflines.draw_steps, study([run("b", **INFER)], [point("b", **INFER)]),
     "a GPU: inference steps"),
    (rooflines.draw_layers, two_machines(),  # of the slowest run
     "2 layers of net, fp32, 16 on a GPU. Longest: conv1 of net, fp32, 16 (4.00 ms, 20.0 % of the"
     " possible). Bound by compute: 2."),
    (rooflines.draw_kernels, two_machines(),
     "1 kernel of net, fp32, 16 (1 launch) on a GPU. Longest: gemm of net, fp32, 16 (1.00 ms"),
    (times.draw_runtimes, study([run("a")], []),  # one time is no range
     "Step times: 10.0 ms (net, fp32, 8, a GPU)."),
]  # fmt: skip


@pytest.mark.parametrize(("draw", "shown", "text"), TITLES)
def test_titles_and_captions(draw: Any, shown: Study, text: str) -> None:
    views = list_views(shown)
    drawing = drawn(draw, views if draw is times.draw_runtimes else views[0])
    assert text in f"{drawing.title}\n{drawing.caption}"


def test_the_docs_have_every_figure() -> None:
    page = (Path(__file__).parents[2] / "docs" / "figures.md").read_text(encoding="utf-8")
    names = ["roofline_ENV", "roofline_ENV_layers", "roofline_ENV_kernels",
             "roofline_ENV_hierarchical", "throughput_ENV", "runtime"]  # fmt: skip
    assert [name for name in names if f"`{name}`" not in page] == []


ALONE = Roofs(
    env="gpu", device="cuda:0", integer={"int8 matrix": 1e15},
    compute={"fp32 vector": 6e13, "bf16 matrix": 8e14}, bandwidth={"l2": 8e12, "dram": 4.4e12},
)  # fmt: skip


def test_the_picture_of_a_machine_names_every_roof_and_the_datasheet() -> None:
    sheet = Roofs(env="gpu", device="cuda:0", source="datasheet", compute={"bf16 matrix": 9.9e14},
                  bandwidth={"dram": 4.8e12})  # fmt: skip
    with in_style():
        axes = draw_machine(ALONE, sheet, title="machine")

    assert {text.get_text() for text in axes.texts} >= {
        "bf16 matrix 800 (990) TFLOP/s", "fp32 vector 60.0 TFLOP/s", "DRAM 4.40 (4.80) TB/s",
        "L2 8.00 TB/s", "ridge 182",
    }  # fmt: skip


def test_the_curves_of_trainings(tmp_path: Path) -> None:
    found = write_figures(make_study(trainings=(training(),)), tmp_path, formats=["png"])
    assert [figure.path.name for figure in found] == ["training.png"]
    assert found[0].caption == (
        "1 training; the best is net, fp32, batch 16 with 75.0 % of the test images after epoch 2."
    )
