"""Which axes are open, by comparing inputs of two sizes."""

from ridgeline.onnx import compare
from ridgeline.onnx.export.model_inputs import SEQUENCE, compare_shapes, names_in, nest_axes


def test_axes_that_differ_are_open() -> None:
    # given ids of 2 x 16 and a mask of 8 heads a sample, made again with a batch of 3
    shapes = {"ids": (2, 16), "mask": (16, 16, 16), "scale": ()}
    larger = {"ids": (3, 16), "mask": (24, 16, 16), "scale": ()}
    # then the batch is called so, and what moves with it has a name of its own
    axes = compare_shapes(shapes, larger, name="batch", size=2)
    assert axes == {"ids": {0: "batch"}, "mask": {0: "mask_batch"}, "scale": {}}
    assert names_in(axes) == ("batch", "mask_batch")


def test_a_list_of_samples_has_no_open_batch() -> None:
    two = {"images_0": (3, 8, 8), "images_1": (3, 8, 8)}
    three = {**two, "images_2": (3, 8, 8)}
    assert compare_shapes(two, three, name="batch", size=2) == {}


def test_the_comparison_looks_for_the_name_that_export_gives() -> None:
    assert compare.SEQUENCE == SEQUENCE


def test_axes_take_the_form_of_the_argument() -> None:
    axes = {"states_0": {0: "batch"}, "states_1_cell": {1: "batch"}}
    states = ["a tensor", {"cell": "a tensor"}, 3]
    assert nest_axes(states, "states", axes) == [{0: "batch"}, {"cell": {1: "batch"}}, None]
