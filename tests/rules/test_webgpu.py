"""Rules of WebGPU: what a run refuses, what is not read, and what comes out wrong."""

from __future__ import annotations

import pytest

from tests.rules.checking import findings, severities

HEAD = '<ir_version: 9, opset_import: ["" : {}, "com.microsoft" : 1]> m '
ATTEND = "com.microsoft.MultiHeadAttention <num_heads = 4>"


def found(check: str, body: str, opset: int = 18) -> list[str]:
    return severities(HEAD.format(opset) + body, check, "webgpu")


@pytest.mark.parametrize(
    ("body", "flagged"),
    [
        ("(float16[N] x) => (float16[N] y) { y = ThresholdedRelu (x) }", True),
        ("(float[N] x) => (float[N] y) { y = ThresholdedRelu (x) }", False),
        ("(float[B, 4, T, H, W] x, float[4, 2, 3, 3, 3] w) => (float[B, 4, P, Q, R] y) "
         "{ y = Conv <group = 2> (x, w) }", True),
        ("(float[B, 4, T, H, W] x, float[4, 4, 3, 3, 3] w) => (float[B, 4, P, Q, R] y) "
         "{ y = Conv (x, w) }", False),
        ("(float[B, 4, H, W] x, float[4, 2, 3, 3] w) => (float[B, 4, P, Q] y) "
         "{ y = Conv <group = 2> (x, w) }", False),
        ("(float[B, S, 32] q, int32[B, S] mask) => (float[B, S, 32] y) "
         f"{{ y = {ATTEND} (q, q, q, , mask) }}", True),
        ("(float[T, B, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[T, 1, B, 4] y) { y = "
         'LSTM <hidden_size = 4, activations = ["Relu", "Tanh", "Tanh"]> (x, w, r) }', True),
        ("(float[T, B, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[T, 1, B, 4] y) { y = "
         'LSTM <hidden_size = 4, activations = ["Sigmoid", "Tanh", "Tanh"]> (x, w, r) }', False),
    ],
)  # fmt: skip
def test_what_a_run_refuses(body: str, flagged: bool) -> None:
    assert found("refused-in-run", body) == ["error"] * flagged


@pytest.mark.parametrize(
    ("attributes", "flagged"),
    [("", False), (", softcap = 0.0", False), (", softcap = 50.0", True)],
)
def test_a_softcap_is_not_read(attributes: str, flagged: bool) -> None:
    body = (
        "(float[B, S, 32] q, float[B, S, 16] k, int32[B] last, int32 total) => (float[B, S, 32] y) "
        f"{{ y = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2{attributes}> "
        "(q, k, k, , , last, total) }"
    )
    assert found("unread", body) == ["error"] * flagged


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "flagged"),
    [(4, 1, 2, True), (4, 2, 2, False), (4, 1, 4, False), (4, 1, 1, False), ("C", 1, 2, False)],
)
def test_groups_of_one_output(
    channels: int | str, outputs: int, groups: int, flagged: bool
) -> None:
    body = (
        f"(float[B, {channels}, T] x, float[{channels}, {outputs}, 3] w) => (float[B, D, U] y) "
        f"{{ y = ConvTranspose <group = {groups}> (x, w) }}"
    )
    assert found("lone-outputs", body) == ["error"] * flagged


@pytest.mark.parametrize(
    ("queries", "keys", "flagged"),
    [("S", "S", True), (40, 40, True), (4, 4, False), (1, "S", False), ("S", 3, False)],
)
def test_more_keys_than_lanes(queries: int | str, keys: int | str, flagged: bool) -> None:
    body = (
        f"(float[B, {queries}, 32] q, float[B, {keys}, 32] k) => (float[B, {queries}, 32] y) "
        f"{{ y = {ATTEND} (q, k, k) }}"
    )
    assert found("many-keys", body) == ["warning"] * flagged


def test_few_keys_behind_a_past_are_many() -> None:
    body = (
        "(float[B, 2, 32] q, float[B, 4, P, 8] k, float[B, 4, P, 8] v) => (float[B, 2, 32] y) "
        f"{{ y = {ATTEND} (q, q, q, , , , k, v) }}"
    )
    assert found("many-keys", body) == ["warning"]


@pytest.mark.parametrize(
    ("op", "ep", "flagged"),
    [
        ("Relu", "webgpu", True), ("Relu", "dml", True), ("Softmax", "webgpu", True),
        ("Softmax", "dml", False), ("Sign", "webgpu", False), ("Sign", "dml", True),
    ],
)  # fmt: skip
def test_what_loses_nan_depends_on_the_provider(op: str, ep: str, flagged: bool) -> None:
    text = HEAD.format(18) + f"(float[N] x) => (bool[N] y) {{ a = {op} (x) y = IsNaN (a) }}"
    assert bool(severities(text, "lost-nan", ep)) is flagged


def test_exponentials_that_pass_the_largest_number_are_an_error() -> None:
    body = "(float[B, 20] x) => (float[B, 1] y) <int64[1] a = {1}> { y = ReduceLogSumExp (x, a) }"
    (finding,) = findings(HEAD.format(18) + body, ep="webgpu")
    assert (finding.rule, finding.severity, finding.fix) == (
        *("logsumexp-shift", "error"),
        "logsumexp-shift",
    )
