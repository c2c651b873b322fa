"""Rules for inputs and attributes of ONNX Runtime's operators that DirectML misreads."""

from collections.abc import Iterator

from graphfix.core import Severity
from graphfix.facts.shapes import same_dim
from graphfix.facts.view import View
from graphfix.graph.nodes import attr_int, input_at
from graphfix.graph.text import size_text
from graphfix.ops.attention import attention_slots
from graphfix.rules.rule import Hazard, Rule

_BIAS_OF_SKIP = 3


class AttentionInputs(Rule):
    """Flags a MultiHeadAttention whose mask DirectML leaves out or refuses.

    Why:
        Run on onnxruntime-directml 1.24.4 (survey.csv): unidirectional=1 is not read, so that each
        position sees those behind it: off by 3, in silence. An attention_bias of [1, H, S, S],
        [B, 1, S, S] or [1, 1, S, S] ends in 80070057, and of [B, H, S, S] it is right; on the CPU
        all are repeated.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        causal (float[B, S, 32] q, float[B, S, 32] k, float[B, S, 32] v) => (float[B, S, 32] y)
        {
            y = com.microsoft.MultiHeadAttention <num_heads = 4, unidirectional = 1> (q, k, v)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        causal (float[B, S, 32] q, float[B, S, 32] k, float[B, S, 32] v, float[B, 4, S, S] mask)
            => (float[B, S, 32] y)
        {
            y = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v, , , mask)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each by its attribute, and by the dims of what is added to its scores."""
        for node in view.nodes("com.microsoft.MultiHeadAttention"):
            if attr_int(node, "unidirectional", 0):
                message = "unidirectional=1: DirectML does not read it, in silence"
                yield Hazard(node, f"{message}; add a mask as attention_bias", "error")
            slots = attention_slots(node)
            if slots is None or slots.addend is None:
                continue
            addend, query = input_at(node, slots.addend), input_at(node, slots.query)
            dims, batch = view.shapes.dims(addend), (view.shapes.dims(query) or (None,))[0]
            if addend is None or dims is None or len(dims) != 4:
                continue
            repeats_heads = dims[1] == 1 != attr_int(node, "num_heads", 1)
            if repeats_heads or (dims[0] == 1 and (batch is None or not same_dim(dims[0], batch))):
                text = ", ".join(map(size_text, dims))
                severity: Severity = "error" if repeats_heads or batch != 1 else "warning"
                message = f"an attention_bias of [{text}]: DirectML repeats none, 80070057"
                yield Hazard(node, f"{message}; expand it to [batch, heads, S, S]", severity)


class SkipBias(Rule):
    """Flags a SkipSimplifiedLayerNormalization with a bias, which DirectML adds elsewhere.

    Why:
        Run on onnxruntime-directml 1.24.4 (survey.csv): the bias is added to the result, and not to
        the sum before the norm: off by 2.8, in silence. SkipLayerNormalization with a bias is
        right. Optimizers of language models fuse one so.

    Flagged:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        norm (float[B, S, 4] x, float[B, S, 4] skip) => (float[B, S, 4] y)
        <float[4] scale = {1, 1, 1, 1}, float[4] bias = {1, 2, 3, 4}>
        {
            y = com.microsoft.SkipSimplifiedLayerNormalization (x, skip, scale, bias)
        }

    Clean:
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        norm (float[B, S, 4] x, float[B, S, 4] skip) => (float[B, S, 4] y)
        <float[4] scale = {1, 1, 1, 1}, float[4] bias = {1, 2, 3, 4}>
        {
            sum = Add (x, bias)
            y = com.microsoft.SkipSimplifiedLayerNormalization (sum, skip, scale)
        }
    """

    def find_hazards(self, view: View) -> Iterator[Hazard]:
        """Flag each that has a bias."""
        for node in view.nodes("com.microsoft.SkipSimplifiedLayerNormalization"):
            bias = input_at(node, _BIAS_OF_SKIP)
            if bias is not None:
                message = f"its bias {bias.name!r} is added behind the norm, in silence"
                yield Hazard(node, f"{message}; write an Add before it", "error")
