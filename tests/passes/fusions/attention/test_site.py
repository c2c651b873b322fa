"""What an attention consists of in the graph around its products, and why it is none."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graphfix.core import Skip
from graphfix.facts.view import View
from graphfix.passes.fusions.attention.site import (
    Attention,
    attention_at,
    binary_note,
    shape_readers_of,
)
from tests.passes.fusions.test_fuse_attention import (
    GIVEN,
    HEAD,
    HIDES,
    IN,
    OTHERS,
    PLAIN,
    QKV,
    SCORED,
    UNSCALED,
    WEIGHED,
    with_groups,
    with_past,
)


def site_of(text: str) -> Attention | Skip | None:
    """Return what is found at the product of weights and values, whose result is c or y."""
    m = ir.from_onnx_text(f"{HEAD} m {text}")
    view, products = View(m), ("MatMul", "Einsum")
    node = [x for x in m.graph if x.op_type in products][-1]
    return attention_at(node, view)


def shown(site: Attention) -> list[str]:
    """Return operands and result, sizes, scale, and what is added, as lines."""
    sizes = site.sizes
    operands = " ".join(str(x.tensor.value.name) for x in site.operands)
    terms = " ".join(f"{x.value.name}*{x.factor:g}" for x in site.bias_terms)
    mask = site.key_mask.bit.value.name if site.key_mask else ""
    return [
        f"{operands} -> {site.result.value.name}",
        f"[{sizes.batch}, {sizes.heads}, {sizes.queries}, {sizes.keys}] {sizes.width}",
        f"{site.scale:.3g} {site.groups.group_size} {mask} {terms}".rstrip(),
    ]


def text(body: str, more: str = "", inputs: str = IN) -> str:
    return f"({inputs}{more}) => (float[B,T,16] y) {GIVEN} {{ {body} }}"


PLAIN_LINES = ["q k v -> y", "[B, 2, T, S] 16"]


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (text(PLAIN), [*PLAIN_LINES, "0.3 1"]),
        (text(f"{QKV} qx = Mul (qh, sc) kx = Mul (kt, sc) m = MatMul (qx, kx) {WEIGHED}"),
         [*PLAIN_LINES, "0.09 1"]),
        (text(f"{SCORED} {HIDES} m = Add (s, ha) {WEIGHED}", ", bool[B,1,1,S] hidden"),
         [*PLAIN_LINES, "0.3 1 hidden"]),
        (text(f"{SCORED} {HIDES} m = Add (s, ha) {WEIGHED}", ", bool[1,1,1,S] hidden"),
         [*PLAIN_LINES, "0.3 1 hidden"]),
        (text(f"{SCORED} {HIDES} m = Add (s, ha) {WEIGHED}", ", bool[B,1,T,S] hidden"),
         [*PLAIN_LINES, "0.3 1  ha*1"]),
        (text(f"{SCORED} {HIDES} m = Add (s, ha) {WEIGHED}", ", bool[B,2,1,S] hidden"),
         [*PLAIN_LINES, "0.3 1  ha*1"]),
        # Beside another addend a mask is one of them.
        (text(f"{SCORED} {HIDES} mb = Add (s, bias) m = Add (mb, ha) {WEIGHED}",
              ", bool[B,1,1,S] hidden, float[T,S] bias"), [*PLAIN_LINES, "0.3 1  bias*1 ha*1"]),
        (text(f"{SCORED} mb = Add (s, bias) m = Mul (mb, sc) {WEIGHED}", ", float[T,S] bias"),
         [*PLAIN_LINES, "0.09 1  bias*0.3"]),
        # A mask that hides nothing.
        (text(f"""{SCORED} z = Constant <value_float = 0.0> () l = Shape <start = 1, end = 2> (k)
            ls = Squeeze (l) i0 = Constant <value_int = 0> () i1 = Constant <value_int = 1> ()
            r = Range (i0, ls, i1) ok = GreaterOrEqual (r, i0) no = Not (ok)
            f = Cast <to = 1> (no) ha = Mul (f, floor) m = Add (s, ha) {WEIGHED}"""),
         [*PLAIN_LINES, "0.3 1"]),
        (OTHERS["no batch"][0], ["q k v -> y", "[1, 1, T, S] 16", "0.3 1"]),
        (OTHERS["one head of rank 3"][0], ["q k v -> y", "[B, 1, T, S] 16", "0.3 1 hidden"]),
        (OTHERS["one head, a bias of rank 3"][0],
         ["q k v -> y", "[B, 1, T, S] 16", "0.3 1  bias*1"]),
        (OTHERS["grouped heads"][0], ["q k v -> y", "[B, 4, T, S] 16", "0.3 1"]),
        (OTHERS["positions of merged heads"][0],
         ["q k v -> y", "[B, 2, T, S] 16", "1 1  positions*1"]),
        (OTHERS["a mask of keys of merged heads"][0],
         ["q k v -> y", "[B, 2, T, S] 16", "1 1 hidden"]),
        (OTHERS["merged heads, each with an addend of its own"][0],
         ["q k v -> y", "[B, 2, T, S] 16", "1 1  bias*1"]),
        (OTHERS["values are wider"][0], ["q k v -> y", "[B, 2, T, S] 16", "0.3 1"]),
        (OTHERS["heads are not merged"][0], ["q k v -> y", "[B, 2, T, S] 16", "0.3 1"]),
        (with_past("", "m = Identity (s)"), ["q k v -> y", "[B, 2, T, P + T] 16", "0.3 1"]),
        (with_past(", bool[B,1,1,N] hidden", f"{HIDES} m = Add (s, ha)"),
         ["q k v -> y", "[B, 2, T, P + T] 16", "0.3 1  ha*1"]),
        (with_groups("", "m = Identity (s)"), ["q k v -> y", "[B, 2, T, P + T] 16", "0.25 3"]),
        (with_groups(", float[B,1,T,N] bias", "m = Add (s, bias)"),
         ["q k v -> y", "[B, 2, T, P + T] 16", "0.25 3  bias*1"]),
    ],
)  # fmt: skip
def test_an_attention(case: str, lines: list[str]) -> None:
    site = site_of(case)
    assert isinstance(site, Attention), site
    assert shown(site) == lines
    assert site.product.op_type in ("MatMul", "Einsum")
    assert site.scores_node.op_type in ("MatMul", "Einsum")
    assert site.scores_node is not site.product


DOUBLE = text(PLAIN).replace("float", "double")
MIXED = "float[B,T,16] q, float16[B,S,16] k, float16[B,S,16] v"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (DOUBLE, "MultiHeadAttention has no kernel for DOUBLE"),
        (text(PLAIN, inputs=IN.replace("[B,S,16] v", "[C,S,16] v")), "not seen to be batches"),
        (text(f"{SCORED} m = Identity (s) z = Relu (s) {WEIGHED}"), "read more than once"),
        (text(f"{SCORED} m = Tanh (s) {WEIGHED}"), "neither a constant scale nor an addend"),
        (text(f"{UNSCALED} m = Add (p, r) w = Softmax <axis = -1> (m) y = MatMul (w, v)",
              ", float[T,S] r"), "takes more kernels than it saves"),
        (text(f"{SCORED} m = Add (r, s) {WEIGHED}", ", float[B,1,T,M] r",
              IN.replace("[B,S,16] v", "[B,R,16] v")), "S keys and R values: not proved"),
        (with_past(", float[B,1,T,M] r", "m = Add (s, r)").replace("[B,2,P,8] pv", "[B,2,R,8] pv"),
         "not proved to be as many"),
        (text(f"{SCORED} {HIDES} m = Add (s, ha) w0 = Softmax <axis = -1> (m) nk = Not (other) "
              f"kk = Cast <to = 1> (nk) w = Mul (w0, kk) {WEIGHED.partition(') ')[2]}",
              ", bool[B,1,1,S] hidden, bool[B,1,1,S] other"),
         "by kk, which is not seen to be 0 only where a mask hides a key"),
        (text(f"{SCORED} m = Relu (r) {WEIGHED}", ", float[B,2,T,S] r"), None),
    ],
)  # fmt: skip
def test_why_it_is_none(case: str, reason: str | None) -> None:
    site = site_of(case)
    assert not isinstance(site, Attention)
    if reason is None:
        assert site is None or isinstance(site, Skip)
    else:
        assert isinstance(site, Skip)
        assert reason in site.reason


def test_a_bias_of_each_head_is_none_of_grouped_heads() -> None:
    site = site_of(with_groups(", float[B,6,T,N] bias", "m = Add (s, bias)"))
    assert isinstance(site, Attention)
    assert site.groups.group_size == 1
    assert all(x.tensor.past is None for x in site.operands)


@pytest.mark.parametrize("kept", [True, False])
def test_weights_may_be_0_where_a_mask_hides(kept: bool) -> None:
    keep = "nh = Not (hidden) nk = Cast <to = 1> (nh)" if kept else "nk = Cast <to = 1> (hidden)"
    body = f"""{SCORED} {HIDES} m = Add (s, ha) w0 = Softmax <axis = -1> (m) {keep}
        w = Mul (w0, nk) {WEIGHED.partition(") ")[2]}"""
    site = site_of(text(body, ", bool[B,1,1,S] hidden"))
    assert isinstance(site, Attention) == kept


@pytest.mark.parametrize(
    ("left", "right", "readers", "count"),
    [
        ("B, T, 8", "B, 8, S", "z = Shape (p)", 1),
        ("B, T, 8", "B, 8, S", "z = Shape (p) u = Shape (p)", 2),
        ("B, T, 8", "B, 8, S", "z = Shape <start = 1> (p)", 0),
        ("B, T, 8", "B, 8, S", "z = Relu (p)", 0),
        ("1, T, 8", "B, 8, S", "z = Shape (p)", 0),  # its batch is that of the second
        ("B, T, 8", "8, S", "z = Shape (p)", 1),
        ("B, T, 8", "8", "z = Shape (p)", 0),
        ("8", "B, 8, S", "z = Shape (p)", 0),
    ],
)
def test_shapes_that_operands_tell_as_well(left: str, right: str, readers: str, count: int) -> None:
    m = ir.from_onnx_text(
        f"{HEAD} m (float[{left}] a, float[{right}] b) => (z) {{ p = MatMul (a, b) {readers} }}"
    )
    assert len(shape_readers_of(m.graph[0], View(m))) == count
    assert not shape_readers_of(m.graph[1], View(m))


def test_inputs_that_are_0_and_1_are_named() -> None:
    body = f"""{SCORED} f = Cast <to = 1> (seen) i = Sub (one, f) ha = Mul (i, floor)
        m = Add (s, ha) {WEIGHED}"""
    site = site_of(text(body, ", int64[B,1,1,S] seen"))
    assert isinstance(site, Attention)
    assert site.note == "seen holds only 0 and 1"
    bit = site.key_mask.bit if site.key_mask else None
    assert bit is not None
    assert binary_note([bit, bit]) == "seen holds only 0 and 1"
    assert binary_note([]) == ""
