"""What DirectML's Resize reads otherwise."""

from __future__ import annotations

import pytest

from tests.rules.checking import graph, severities


class TestResize:
    @pytest.mark.parametrize(
        ("attributes", "dims", "flagged"),
        [
            ('mode = "linear"', "1, 3, 8, 8", False),
            ('mode = "linear", antialias = 1', "1, 3, 8, 8", True),
            ('mode = "cubic", antialias = 1', "1, 3, 8, 8", False),  # it runs on the CPU
            ('mode = "nearest", keep_aspect_ratio_policy = "not_larger"', "1, 3, 8, 8", True),
            ('coordinate_transformation_mode = "pytorch_half_pixel"', "1, 3, 2, 8", True),
            ('coordinate_transformation_mode = "pytorch_half_pixel"', "1, 3, 4, 8", False),
        ],
    )
    def test_what_is_read_otherwise(self, attributes: str, dims: str, flagged: bool) -> None:
        text = f"""(float[{dims}] x) => (float[P, Q, R, S] y)
            <float[4] scales = {{1, 1, 0.5, 0.5}}> {{ y = Resize <{attributes}> (x, , scales) }}"""
        assert severities(graph(text, 18), "resize-mode") == ["error"] * flagged

    def test_a_constant_is_none_of_a_run(self) -> None:
        text = """(float[N] x) => (float[P, Q, R, S] y, float[N] z)
            <float[4] s = {1, 1, 1, 0.5}, float[1, 1, 1, 4] k = {1, 2, 3, 4}>
            { y = Resize <mode = "linear", antialias = 1> (k, , s)  z = Neg (x) }"""
        assert not severities(graph(text, 18), "resize-mode")

    def test_a_side_that_stays_as_it_is(self) -> None:
        text = """(float[1, 3, H, 8] x) => (float[P, Q, R, S] y) <int64[1] i0 = {0},
            int64[1] i3 = {3}, int64[1] wide = {16}> { all = Shape (x)  h = Slice (all, i0, i3)
            sizes = Concat <axis = 0> (h, wide)
            y = Resize <mode = "linear", antialias = 1> (x, , , sizes) }"""
        assert not severities(graph(text, 18), "resize-mode")

    def test_a_part_that_is_cut_out(self) -> None:
        text = """(float[1, 3, 8, 8] x, float[8] part) => (float[P, Q, R, S] y)
            <int64[4] sizes = {1, 3, 4, 4}> { y = Resize <mode = "linear",
                coordinate_transformation_mode = "tf_crop_and_resize"> (x, part, , sizes) }"""
        assert severities(graph(text, 18), "resize-mode") == ["error"]

    @pytest.mark.parametrize(
        ("how", "flagged"),
        [("(x, , twice)", False), ("(x, , , wide)", False), ("(x, , , narrow)", True)],
    )
    def test_antialias_is_for_what_becomes_shorter(self, how: str, flagged: bool) -> None:
        text = f"""(float[1, 3, 8, 8] x) => (float[P, Q, R, S] y)
            <float[4] twice = {{1, 1, 2, 1}}, int64[4] wide = {{1, 3, 16, 8}},
             int64[4] narrow = {{1, 3, 16, 4}}>
            {{ y = Resize <mode = "linear", antialias = 1> {how} }}"""
        assert severities(graph(text, 18), "resize-mode") == ["error"] * flagged
