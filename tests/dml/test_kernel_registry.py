"""The table of kernels is what each version of the provider registers."""

from __future__ import annotations

import json
import subprocess

import pytest

from graphfix.errors import GraphfixError
from graphfix.providers.directml import kernel_table
from graphfix.providers.table import PROVIDERS, variable_of
from graphfix.providers.versions import is_meant
from graphfix.runtime import python

DML = PROVIDERS["dml"]
LISTS = f"""
import json, onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state
kernels = [x for x in state.get_all_opkernel_def() if x.provider == {DML.ort_name!r}]
rows = [[x.op_name, x.domain, x.version_range[0], x.type_constraints] for x in kernels]
print(json.dumps([onnxruntime.__version__, rows]))
"""


@pytest.mark.parametrize("version", [x.version for x in DML.distributions])
def test_it_has_every_kernel_and_no_type_more(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_of("dml", "VERSION"), version)
    try:
        command = python.runner_for("dml").command
    except GraphfixError as error:
        pytest.skip(str(error))
    answer = subprocess.run([*command, "-c", LISTS], capture_output=True, timeout=180, check=True)
    found, rows = json.loads(answer.stdout.splitlines()[-1])
    if not is_meant("dml", found, version):
        pytest.skip(f"onnxruntime {found} is there, not {version}")
    assert len(rows) == 423
    for op, domain, since, constraints in rows:
        kernel = kernel_table.kernel_for(op, domain, since)
        assert kernel is not None, (op, domain, since)
        for name, types in kernel.types.items():
            registered = {x.removeprefix("tensor(").rstrip(")").upper() for x in constraints[name]}
            assert {x.name for x in types} <= registered, (op, since, name)
