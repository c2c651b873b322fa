"""Axes, places and amounts that are computed of constants: behind Casts, sums, of a rank."""

from __future__ import annotations

import zlib

import onnx
import pytest

from tests.lengths.padding import hold

BODIES = {
    "a cast": """a=Cast<to=7>(c1)
        y=ReduceMean(x,a)""",
    "from the end": """a=Cast<to=7>(cm2)
        y=ReduceMean(x,a)""",
    "of a float": """a=Cast<to=7>(f1)
        y=ReduceMean(x,a)""",
    "cast twice": """b=Cast<to=1>(c1)
        a=Cast<to=7>(b)
        y=ReduceMean(x,a)""",
    "a sum": """b=Add(c1,c0)
        a=Cast<to=7>(b)
        y=ReduceMean(x,a)""",
    "in another shape": """b=Squeeze(c1)
        a0=Cast<to=7>(b)
        m1=Constant<value=int64[1]{1}>()
        a=Reshape(a0,m1)
        y=ReduceMean(x,a)""",
    "of a sum over time": """a=Cast<to=7>(c1)
        y=ReduceSum(x,a)""",
    "of a running sum": """a=Cast<to=7>(s1)
        k=CumSum(x,a)
        a2=Cast<to=7>(c1)
        y=ReduceMax(k,a2) """,
    "unsqueezed": """a=Cast<to=7>(c1)
        u=Unsqueeze(x,a)
        z=Constant<value=int64[1]{2}>()
        y=ReduceMean(u,z)""",
    "of a cut": """a=Cast<to=7>(c1)
        b=Cast<to=7>(big)
        w=Slice(x,a,b,a)
        y=ReduceMean(w,a)""",
    "a cut by int32": """w=Slice(x,c1,big,c1)
        a=Cast<to=7>(c1)
        y=ReduceMean(w,a)""",
    "of a pad": """a=Cast<to=7>(c1)
        p=Cast<to=7>(pads2)
        e=Pad<mode="edge">(x,p,,a)
        y=ReduceMax(e,a)""",
    "the last frame": """i=Constant<value=int32{-1}>()
        ii=Cast<to=7>(i)
        y=Gather<axis=1>(x,ii)""",
    "filled": """sh=Shape(c1)
        o=ConstantOfShape<value=int64[1]{1}>(sh)
        y=ReduceMean(x,o)""",
    "a range": """z0=Cast<to=7>(s1)
        z2=Constant<value=int64{2}>()
        zz=Constant<value=int64{1}>()
        r=Range(z0,z2,zz)
        y=ReduceMean(x,r)""",
    "chosen": """k=Constant<value=bool[1]{1}>()
        w=Where(k,c1,c0)
        a=Cast<to=7>(w)
        y=ReduceMean(x,a)""",
    "a sum of constants": """r=Constant<value=int64[1]{3}>()
        n=Constant<value=int64[1]{-2}>()
        s=Add(n,r)
        y=ReduceMean(x,s)""",
    "a sum of floats": """fz=Constant<value=float[1]{0.0}>()
        ff=Add(f1,fz)
        a=Cast<to=7>(ff)
        y=ReduceMean(x,a)""",
    "of the rank": """sh=Shape(x)
        rank=Shape(sh)
        r32=Cast<to=6>(rank)
        two=Constant<value=int32[1]{2}>()
        d=Sub(r32,two)
        a=Cast<to=7>(d)
        y=ReduceMean(x,a)""",
    "squeezed": """a=Cast<to=7>(c1)
        u=Unsqueeze(x,a)
        v=Squeeze(u,a)
        y=ReduceMean(v,a)""",
    "of tiles": """sh=Constant<value=int32[3]{1,3,1}>()
        shc=Cast<to=7>(sh)
        l=Constant<value=int64[1]{-1}>()
        f=Constant<value=int64[1]{9223372036854775807}>()
        a=Cast<to=7>(c1)
        w=Slice(x,l,f,a)
        e=Tile(w,shc)
        y=Concat<axis=1>(x,e)""",
    "of parts": """n=Constant<value=int32[2]{2,2}>()
        nn=Cast<to=7>(n)
        p,q=Split<axis=2>(x,nn)
        a=Cast<to=7>(c1)
        y=ReduceMean(p,a)""",
    "of limits": """lo=Constant<value=int32{0}>()
        l=Cast<to=1>(lo)
        w=Clip(x,l)
        a=Cast<to=7>(c1)
        y=ReduceMean(w,a)""",
}


def model(body: str) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        m (float[B, T, 4] x) => (float[] y)
        <int32[1] c1 = {{1}}, int32[1] cm2 = {{-2}}, float[1] f1 = {{1.0}}, int32[1] c0 = {{0}},
         int32 s1 = {{1}}, int32[1] big = {{2147483647}}, int32[2] pads2 = {{1, 1}}>
        {{ {body} }}"""
    made = onnx.parser.parse_model(text)
    made.graph.output[0].ClearField("type")
    return made


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_is_computed_of_constants_is_known(body: str) -> None:
    found = hold(model(body), zlib.crc32(body.encode()), "B")
    assert found.kind == "repaired", found.what


def test_an_axis_that_is_data_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
        m (float[B, T, 4] x, int64[1] a) => (float[] y) { y = ReduceMean (x, a) }"""
    made = onnx.parser.parse_model(text)
    made.graph.output[0].ClearField("type")
    found = hold(made, 0, "B")
    assert found.kind in ("refused", "not run"), found.what
