"""How many entries each timed step adds, if the user does not say."""

import dataclasses

import pytest

from graphfix.errors import UsageError
from graphfix.shipped.manifest import Axis, Cache, Container, InputPort, Manifest, Port, Streaming
from graphfix.shipping.step_stream import choose_counts

SIZES = ((1, 64), (16, 64), (1, 256), (16, 256))


def manifest(*, grows: bool = True, rolls: bool = False, joins: bool = True) -> Manifest:
    sizes = ({"S": new, "past": past} for new, past in SIZES)
    return Manifest(
        axis=Axis("S", "x", 0),
        batch=None,
        lengths=None,
        inputs=(InputPort("x", "tensor(float)", ("S",), None),),
        outputs=(Port("y", "tensor(float)", ("S",), None),),
        containers=tuple(Container(f"{i}.onnx", x) for i, x in enumerate(sizes)),
        stream=Streaming((Cache("past", "", grows),), (), rolls=rolls, joins=joins),
    )


def test_a_prompt_and_single_entries_until_the_caches_are_full() -> None:
    assert choose_counts(manifest(), None, 5) == (37, 1, 1, 1, 1, 1)
    assert choose_counts(manifest(), None, 1000) == (37,) + (1,) * (256 - 37)


def test_caches_that_roll_are_never_full() -> None:
    assert choose_counts(manifest(rolls=True), None, 1000) == (37,) + (1,) * 1000
    assert choose_counts(manifest(rolls=True), (300,), 0) == (300,)


def test_steps_that_cannot_be_split_are_containers() -> None:
    assert choose_counts(manifest(joins=False), None, 2) == (16, 1, 1)


def test_a_model_without_caches_that_grow_begins_with_a_container() -> None:
    assert choose_counts(manifest(grows=False), None, 2) == (16, 1, 1)
    assert choose_counts(manifest(grows=False), (300,), 0) == (300,)


def test_a_prompt_fills_half_of_small_caches() -> None:
    small = manifest()
    containers = tuple(
        dataclasses.replace(x, sizes={**x.sizes, "past": 10}) for x in small.containers
    )
    small = dataclasses.replace(small, containers=containers)
    assert choose_counts(small, None, 100) == (5, 1, 1, 1, 1, 1)


@pytest.mark.parametrize("counts", [(), (0,), (256, 1)])
def test_other_counts_are_an_error(counts: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="all together 256 at most, as the caches hold"):
        choose_counts(manifest(), counts, 0)
