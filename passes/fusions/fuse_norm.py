"""fuse-norm: the manual is the docstring of the class."""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graphfix.core import Change, Match, Pass, Skip

from .norms.pieces import NormPieces, NormSite
from .norms.residual import NormResidual


@dataclass(frozen=True)
class FuseNorm(Pass):
    """Fuses LayerNorm and RMSNorm, with the residual sum before them, into one operator.

    The pieces are found in every order and spelling: a square by Pow or Mul, the root by Sqrt or
    Pow, divided by it or multiplied with its inverse, one difference or, as TorchScript writes it,
    two. They become LayerNormalization or SimplifiedLayerNormalization, between two Transposes
    where frames or pixels follow the channels that are normed; over all dims but the batch, as a
    global LayerNorm has it, InstanceNormalization of an image of one channel. Where that, or one
    that was there before, is taken of a residual sum, the two become SkipLayerNormalization or
    SkipSimplifiedLayerNormalization of com.microsoft, with the bias in that sum, also where it is
    one of three tensors; a sum that is used elsewhere too is its fourth output.

    Why:
        Each piece is a kernel of its own on DirectML: seven for an RMSNorm, eight for a LayerNorm.
        ONNX Runtime's optimizer finds no RMSNorm for DirectML, and fuses a residual sum only where
        nothing else uses it: a quarter of those in exports of speech and language models. Run on
        onnxruntime-directml 1.24.4: the operators are within 3e-7 of the CPU, also below opset 17.
        What it gets wrong is refused: a SkipLayerNormalization of two shapes, which adds other
        numbers (off by 2.6), and a SkipSimplifiedLayerNormalization with a bias, which it does not
        add to the sum (off by 1.9); such a bias stays as it is. Norms of channels, by `graphfix
        plan`: 85 kernels on the device where 123 were in a text encoder as Glow-TTS and Matcha-TTS
        have it, 42 where 54 were in two blocks of ConvNeXt V2 (transformers 4.41). Global norms: 54
        kernels where 89 to 105 were in three blocks of a Conv-TasNet, 5e-7 from the CPU.

    Before:
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        block (float[B, T, 8] x, float[B, T, 8] y, float[8] b) => (
            float[B, T, 8] h, float[B, T, 8] z)
        <float[1] axis = {-1}, float two = {2.0}, float epsilon = {1e-5},
         float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] shift = {8, 7, 6, 5, 4, 3, 2, 1}>
        {
            product = Add (x, b)
            h = Add (product, y)
            mean = ReduceMean <axes = [-1]> (h)
            apart = Sub (h, mean)
            square = Pow (apart, two)
            variance = ReduceMean <axes = [-1]> (square)
            more = Add (variance, epsilon)
            deviation = Sqrt (more)
            normed = Div (apart, deviation)
            scaled = Mul (normed, scale)
            z = Add (scaled, shift)
        }

    After:
        <
            ir_version: 8,
            opset_import: ["" : 17, "com.microsoft" : 1]
        >
        block (float[B, T, 8] x, float[B, T, 8] y, float[8] b) => (
            float[B, T, 8] h, float[B, T, 8] z)
        <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] shift = {8, 7, 6, 5, 4, 3, 2, 1}>
        {
            z, , , h = com.microsoft.SkipLayerNormalization <epsilon = 1e-5> (x, y, scale, shift, b)
        }

    Left alone:
        A norm without a scale of its sizes, which are not known, "how many ones to give is not
        known":
        <
            ir_version: 8,
            opset_import: ["" : 17]
        >
        norm (float[B, T, H] x) => (float[B, T, H] y)
        <float two = {2.0}, float epsilon = {1e-5}>
        {
            square = Pow (x, two)
            variance = ReduceMean <axes = [-1]> (square)
            more = Add (variance, epsilon)
            deviation = Sqrt (more)
            y = Div (x, deviation)
        }

    Safety:
        Exact, except rounding. Casts around a norm stay: in float16 DirectML's mean of squares goes
        no further than 65504 (float-norm), and float32 was chosen for that. Refused, with the
        reason: a mean over other than one axis or the last ones, or that loses them (keepdims=0);
        parts that are used elsewhere or are outputs, which would have to stay; types other than
        float and float16, and those of a local function, which are not known; a sum of tensors of
        two shapes, of 4 dims, or one used elsewhere where the scale is computed; a norm whose mean
        or deviation is used; an epsilon below 0. A norm without a scale gets one of ones, for which
        its dims have to be numbers.

    Options:
        residual: Whether the sum before a norm goes into it. That is a kernel or two less on
            DirectML. ONNX Runtime's CPU kernel for both is slow where its kernels for each are
            not: 1.28 ms for 0.28 with a bias and a sum that is kept (1.31, 500 rows of 512
            numbers, one thread). So the profile ``fast-cpu`` says ``residual=no``.
    """

    keeps_shapes = True

    residual: bool = True

    @property
    def _sub_passes(self) -> tuple[NormPieces | NormResidual, ...]:
        """Return the passes that this one consists of."""
        return (NormPieces(), NormResidual()) if self.residual else (NormPieces(),)

    def sites(self, model: ir.Model) -> Iterator[Match | Skip]:
        """Yield norms in pieces, then norms with a sum before them."""
        for sub_pass in self._sub_passes:
            yield from sub_pass.sites(model)

    def supports_site_exclusion(self) -> bool:
        """Return whether single sites can be excluded: the parts use the name without options."""
        return self.residual

    def message(self, site: Match) -> str:
        """Describe the norm at a site."""
        return (NormPieces() if isinstance(site, NormSite) else NormResidual()).message(site)

    def repair(self, model: ir.Model) -> Iterator[Change | Skip]:
        """Fuse the norms, then the sums before them, also those of new norms."""
        for sub_pass in self._sub_passes:
            yield from sub_pass.repair(model)
