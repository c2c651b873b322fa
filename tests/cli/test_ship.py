"""What ``graphfix ship`` prints first."""

import pytest

from graphfix.cli.ship import _print_step_cost
from graphfix.shipped.manifest import Container


def container(recompiled: int, cpu: int) -> Container:
    after = {"dispatches": 86, "cpu": cpu, "recompiled": recompiled}
    return Container("model.onnx", {"S": 1}, {"before": after, "after": after})


@pytest.mark.parametrize(
    ("recompiled", "cpu", "printed"),
    [
        (65, 1, "86 kernels a step on DirectML, 65 of them recompiled, and 1 on the CPU"),
        (0, 3, "86 kernels a step on DirectML, 0 of them recompiled, and 3 on the CPU"),
        (0, 0, ""),
    ],
)
def test_a_dear_step_is_said(
    recompiled: int, cpu: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print_step_cost([container(0, 0), container(recompiled, cpu)])
    output = " ".join(capsys.readouterr().out.split())
    assert (printed in output) if printed else not output
