"""Assertions for projects that keep models: two compute the same, one runs on DirectML."""

from typing import Unpack

from graphfix.files.model_input import ModelLike
from graphfix.job.checking import check
from graphfix.job.comparing import verify
from graphfix.proof.verify import Options


def assert_same(before: ModelLike, after: ModelLike, **options: Unpack[Options]) -> None:
    """Fail unless two models compute the same; ``options`` are those of graphfix.verify.

    Raises:
        AssertionError: They do not, with the output, the case and the difference.
    """
    __tracebackhide__ = True
    verdict = verify(before, after, **options)
    if not verdict:
        raise AssertionError(str(verdict))


def assert_runs_on_directml(model: ModelLike) -> None:
    """Fail if ``graphfix check`` finds an error on DirectML in a model; nothing is run.

    Raises:
        AssertionError: It does; with each error, its place and the pass that repairs it.
    """
    __tracebackhide__ = True
    errors = [x for x in check(model, ep="dml") if x.severity == "error"]
    if errors:
        raise AssertionError("\n".join(f"{x.at}: {x.message} ({x.rule})" for x in errors))
