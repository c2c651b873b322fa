"""What ``graphfix ship`` prints first."""

import pytest

from graphfix.cli.ship import _print_step_cost
from graphfix.shipped.manifest import Container


def container(recompiled: int, cpu: int, copies: int = 0) -> Container:
    after = {"dispatches": 86, "cpu": cpu, "recompiled": recompiled, "copies": copies}
    return Container("model.onnx", {"S": 1}, {"before": after, "after": after})


@pytest.mark.parametrize(
    ("counts", "printed"),
    [
        ((65, 1), "86 kernels a step on DirectML, 65 of them recompiled, and 1 on the CPU; pred"),
        ((0, 3), "86 kernels a step on DirectML, 0 of them recompiled, and 3 on the CPU; pred"),
        ((0, 1, 2), "and 1 on the CPU, with 2 copies between them; predicted"),
        ((0, 0, 1), "and 0 on the CPU, with 1 copy between them; predicted"),
        ((0, 0), ""),
    ],
)
def test_a_dear_step_is_said(
    counts: tuple[int, ...], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print_step_cost([container(0, 0), container(*counts)])
    output = " ".join(capsys.readouterr().out.split())
    assert (printed in output) if printed else not output
