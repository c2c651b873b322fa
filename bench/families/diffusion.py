"""Diffusion and flow matching: what one step of a sampler calls."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as fn
import transformers as hf
from torch import Tensor, nn

from .family import (
    BANDS,
    BATCH,
    HEADS,
    LAYERS,
    TIME,
    VOCABULARY,
    WIDTH,
    Example,
    make_padding_mask,
    make_plain_example,
    make_token_ids,
    register_family,
)
from .layers import (
    SIZE,
    TANH_GELU,
    RelativeAttention,
    RootMeanSquare,
    SwooshL,
    ZipformerLayer,
    apply_snake,
    make_feed_forward,
    make_pair_angles,
    make_positions,
    rotate_pairs,
)

KIND = "diffusion transformers"


class TimeEmbedding(nn.Module):
    """The time of a step as sines and cosines through two products."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.register_buffer("steps", torch.exp(torch.arange(16) * (-math.log(10000) / 15)))
        self.feed = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, time: Tensor) -> Tensor:
        """Return one vector a row."""
        angles = 1000 * time[:, None] * self.steps[None]
        return self.feed(torch.cat([angles.sin(), angles.cos()], dim=-1))


class DitAttention(nn.Module):
    """F5-TTS' attention: three products, rotary features of the first head, a mask."""

    def __init__(self, *, all_heads: bool = False) -> None:
        super().__init__()
        self.all_heads = all_heads
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.register_buffer("steps", 10000 ** (-torch.arange(0, SIZE, 2) / SIZE))

    def forward(self, rows: Tensor, mask: Tensor) -> Tensor:
        """Attend over [batch, time, features]."""
        batch, time, _ = rows.shape
        angles = make_pair_angles(self.steps, time)
        query, key, value = self.query(rows), self.key(rows), self.value(rows)
        if not self.all_heads:  # F5-TTS rotates the first features only
            query = torch.cat([rotate_pairs(query[..., :SIZE], angles), query[..., SIZE:]], dim=-1)
            key = torch.cat([rotate_pairs(key[..., :SIZE], angles), key[..., SIZE:]], dim=-1)
        query, key, value = (
            x.view(batch, -1, HEADS, SIZE).transpose(1, 2) for x in (query, key, value)
        )
        if self.all_heads:
            query, key = rotate_pairs(query, angles), rotate_pairs(key, angles)
        shown = mask[:, None, None].expand(batch, HEADS, time, time)
        mixed = fn.scaled_dot_product_attention(query, key, value, attn_mask=shown)
        mixed = mixed.transpose(1, 2).reshape(batch, -1, WIDTH)
        return self.out(mixed).masked_fill(~mask[..., None], 0.0)


class DitBlock(nn.Module):
    """A diffusion transformer's block: norms that time conditions, attention, a feed forward."""

    def __init__(self) -> None:
        super().__init__()
        self.condition = nn.Linear(WIDTH, 6 * WIDTH)
        self.norms = nn.ModuleList(
            nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6) for _ in range(2)
        )
        self.attend = DitAttention()
        self.feed = make_feed_forward(TANH_GELU, 2)

    def forward(self, rows: Tensor, time: Tensor, mask: Tensor) -> Tensor:
        """Run the block."""
        parts = torch.chunk(self.condition(fn.silu(time)), 6, dim=1)
        hidden = self.norms[0](rows) * (1 + parts[1][:, None]) + parts[0][:, None]
        rows = rows + parts[2][:, None] * self.attend(hidden, mask)
        hidden = self.norms[1](rows) * (1 + parts[4][:, None]) + parts[3][:, None]
        return rows + parts[5][:, None] * self.feed(hidden)


class TextBlock(nn.Module):
    """F5-TTS' ConvNeXt V2 block over letters, with a global response norm."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.deep, self.norm = (
            nn.Conv1d(width, width, 7, padding=3, groups=width),
            nn.LayerNorm(width),
        )
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gamma, self.beta = (nn.Parameter(torch.rand(1, 1, 2 * width)) for _ in range(2))

    def forward(self, rows: Tensor) -> Tensor:
        """Run the block."""
        hidden = self.norm(self.deep(rows.transpose(1, 2)).transpose(1, 2))
        hidden = fn.gelu(self.wide(hidden))
        size = torch.norm(hidden, p=2, dim=1, keepdim=True)
        size = size / (size.mean(dim=-1, keepdim=True) + 1e-6)
        return rows + self.narrow(self.gamma * (hidden * size) + self.beta + hidden)


class F5Dit(nn.Module):
    """F5-TTS: noise, a prompt and letters, through blocks that time conditions."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.letters = TimeEmbedding(), nn.Embedding(VOCABULARY, 32)
        self.register_buffer("places", torch.randn(200, 32))
        self.text = nn.Sequential(*(TextBlock() for _ in range(2)))
        self.first = nn.Linear(2 * BANDS + 32, WIDTH)
        self.position = nn.Sequential(
            *(nn.Conv1d(WIDTH, WIDTH, 15, padding=7, groups=4), nn.Mish()),
            *(nn.Conv1d(WIDTH, WIDTH, 15, padding=7, groups=4), nn.Mish()),
        )
        self.blocks = nn.ModuleList(DitBlock() for _ in range(LAYERS))
        self.condition, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, BANDS)
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)

    def forward(
        self, noise: Tensor, prompt: Tensor, letters: Tensor, time: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the velocity of each frame."""
        mask, condition = mask > 0, self.time(time)
        text = self.text(self.letters(letters + 1) + self.places[: letters.shape[1]])
        rows = self.first(torch.cat([noise, prompt, text], dim=-1))
        padded = rows.masked_fill(~mask[..., None], 0.0).transpose(1, 2)
        rows = rows + self.position(padded).transpose(1, 2)
        for block in self.blocks:
            rows = block(rows, condition, mask)
        scale, shift = torch.chunk(self.condition(fn.silu(condition)), 2, dim=1)
        return self.out(self.norm(rows) * (1 + scale[:, None]) + shift[:, None])


@register_family("f5-tts", KIND)
def build_f5_tts() -> Example:
    """Build F5-TTS' transformer."""
    inputs = (torch.randn(2, 20, BANDS), torch.randn(2, 20, BANDS))
    inputs += (make_token_ids(20) - 2, torch.rand(2), make_padding_mask(20, 4))
    timed = {0: BATCH, 1: TIME}
    return make_plain_example(F5Dit(), *inputs, axes=(timed, timed, timed, {0: BATCH}, timed))


class E2Unet(nn.Module):
    """E2-TTS: a flat U-Net transformer, time as a frame in front."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.time, self.letters = TimeEmbedding(), nn.Embedding(VOCABULARY, 32)
        self.first, self.out = nn.Linear(2 * BANDS + 32, WIDTH), nn.Linear(WIDTH, BANDS)
        self.attends = nn.ModuleList(DitAttention(all_heads=True) for _ in range(layers))
        self.feeds = nn.ModuleList(make_feed_forward(nn.GELU) for _ in range(layers))
        self.norms = nn.ModuleList(RootMeanSquare() for _ in range(2 * layers + 1))
        self.skips = nn.ModuleList(
            nn.Linear(2 * WIDTH, WIDTH, bias=False) for _ in range(layers // 2)
        )

    def forward(
        self, noise: Tensor, prompt: Tensor, letters: Tensor, time: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the velocity of each frame."""
        rows = self.first(torch.cat([noise, prompt, self.letters(letters)], dim=-1))
        rows = torch.cat([self.time(time)[:, None], rows], dim=1)
        shown, kept = fn.pad(mask, (1, 0), value=1) > 0, list[Tensor]()
        half = len(self.attends) // 2
        for i, (attend, feed) in enumerate(zip(self.attends, self.feeds, strict=True)):
            if i < half:
                kept.append(rows)
            else:
                rows = self.skips[i - half](torch.cat([rows, kept.pop()], dim=-1))
            rows = rows + attend(self.norms[2 * i](rows), shown)
            rows = rows + feed(self.norms[2 * i + 1](rows))
        return self.out(self.norms[-1](rows)[:, 1:])


@register_family("e2-tts", KIND)
def build_e2_tts() -> Example:
    """Build E2-TTS' transformer."""
    inputs = (torch.randn(2, 20, BANDS), torch.randn(2, 20, BANDS))
    inputs += (make_token_ids(20), torch.rand(2), make_padding_mask(20, 4))
    timed = {0: BATCH, 1: TIME}
    return make_plain_example(E2Unet(), *inputs, axes=(timed, timed, timed, {0: BATCH}, timed))


class ZipVoice(nn.Module):
    """ZipVoice: noise, letters and a prompt through Zipformer layers, to which time is added."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.first = TimeEmbedding(), nn.Linear(3 * BANDS, WIDTH)
        self.conditions = nn.ModuleList(
            nn.Sequential(SwooshL(1.0, 0.313), nn.Linear(WIDTH, WIDTH)) for _ in range(LAYERS)
        )
        self.layers = nn.ModuleList(ZipformerLayer() for _ in range(LAYERS))
        self.combine = nn.Parameter(torch.rand(WIDTH))
        self.out = nn.Linear(WIDTH, BANDS)

    def forward(
        self, noise: Tensor, text: Tensor, prompt: Tensor, time: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the velocity of each frame."""
        rows = self.first(torch.cat([noise, text, prompt], dim=-1)).permute(1, 0, 2)
        condition, start = self.time(time), rows
        positions = make_positions(rows.shape[0])
        for layer, add_time in zip(self.layers, self.conditions, strict=True):
            rows = layer(rows + add_time(condition)[None], positions, mask)
        rows = start + (rows - start) * self.combine
        return self.out(rows.permute(1, 0, 2))


@register_family("zipvoice", KIND)
def build_zipvoice() -> Example:
    """Build ZipVoice's decoder."""
    inputs = tuple(torch.randn(2, 20, BANDS) for _ in range(3))
    inputs += (torch.rand(2), make_padding_mask(20, 4))
    timed = {0: BATCH, 1: TIME}
    return make_plain_example(ZipVoice(), *inputs, axes=(timed, timed, timed, {0: BATCH}, timed))


class ResnetBlock(nn.Module):
    """Matcha-TTS' block: masked convolutions with group norms and Mish, time added between."""

    def __init__(self, inputs: int, outputs: int, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal
        pad = 0 if causal else 1
        self.convolves = nn.ModuleList(
            [
                nn.Conv1d(inputs, outputs, 3, padding=pad),
                nn.Conv1d(outputs, outputs, 3, padding=pad),
            ]
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(outputs) if causal else nn.GroupNorm(8, outputs) for _ in range(2)
        )
        self.time = nn.Sequential(nn.Mish(), nn.Linear(4 * WIDTH, outputs))
        self.shortcut = nn.Conv1d(inputs, outputs, 1)

    def run_half(self, frames: Tensor, mask: Tensor, i: int) -> Tensor:
        """Run one of the two convolutions."""
        frames = frames * mask
        hidden = self.convolves[i](fn.pad(frames, (2, 0)) if self.causal else frames)
        if self.causal:
            hidden = self.norms[i](hidden.transpose(1, 2)).transpose(1, 2)
        else:
            hidden = self.norms[i](hidden)
        return fn.mish(hidden) * mask

    def forward(self, frames: Tensor, mask: Tensor, time: Tensor) -> Tensor:
        """Run the block over [batch, channels, time]."""
        hidden = self.run_half(frames, mask, 0) + self.time(time)[..., None]
        return self.run_half(hidden, mask, 1) + self.shortcut(frames * mask)


class MatchaLayer(nn.Module):
    """The transformer layer of Matcha-TTS and CosyVoice: diffusers' basic block."""

    def __init__(self, activation: type[nn.Module]) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed = make_feed_forward(activation)

    def forward(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Run the layer over [batch, time, features]."""
        hidden = self.norms[0](rows)
        query, key, value = (
            x(hidden).view(rows.shape[0], -1, HEADS, SIZE).transpose(1, 2)
            for x in (self.query, self.key, self.value)
        )
        mixed = fn.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        rows = rows + self.out(mixed.transpose(1, 2).reshape(rows.shape[0], -1, WIDTH))
        return rows + self.feed(self.norms[1](rows))


class SnakeLayer(nn.Module):
    """Matcha-TTS' SnakeBeta over features."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = (nn.Parameter(torch.zeros(4 * WIDTH)) for _ in range(2))

    def forward(self, rows: Tensor) -> Tensor:
        """Apply the activation."""
        return apply_snake(rows, self.alpha.exp(), self.beta.exp())


class FlowUnet(nn.Module):
    """A one-dimensional U-Net for flow matching.

    Args:
        causal: CosyVoice 2's, whose convolutions see no later frame; Matcha-TTS' see both sides.
    """

    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.causal, self.embed = causal, TimeEmbedding(4 * WIDTH)
        inputs = 4 * BANDS if causal else 2 * BANDS
        activation = nn.GELU if causal else SnakeLayer
        self.down = ResnetBlock(inputs, WIDTH, causal=causal)
        self.middle = ResnetBlock(WIDTH, WIDTH, causal=causal)
        self.up = ResnetBlock(2 * WIDTH, WIDTH, causal=causal)
        self.layers = nn.ModuleList(MatchaLayer(activation) for _ in range(3))
        self.shrink = nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.grow = nn.ConvTranspose1d(WIDTH, WIDTH, 4, 2, 1)
        self.last = ResnetBlock(WIDTH, WIDTH, causal=causal)
        self.out = nn.Conv1d(WIDTH, BANDS, 1)

    def forward(
        self, noise: Tensor, mask: Tensor, mean: Tensor, time: Tensor, *more: Tensor
    ) -> Tensor:
        """Return the velocity of each frame of [batch, bands, time]."""
        embedded, parts = self.embed(time), [noise, mean]
        if self.causal:
            speaker, prompt = more
            parts += [speaker[..., None].expand(-1, -1, noise.shape[-1]), prompt]
        frames = self.down(torch.cat(parts, dim=1), mask, embedded)
        skip = frames = self.run_transformer(frames, mask, 0)
        small = mask
        if not self.causal:
            frames, small = self.shrink(frames * mask), mask[..., ::2]
        frames = self.run_transformer(self.middle(frames, small, embedded), small, 1)
        if not self.causal:
            frames = self.grow(frames * small)
        frames = self.up(torch.cat([frames, skip], dim=1), mask, embedded)
        frames = self.run_transformer(frames, mask, 2)
        return self.out(self.last(frames, mask, embedded) * mask) * mask

    def run_transformer(self, frames: Tensor, mask: Tensor, i: int) -> Tensor:
        """Run one transformer layer."""
        bias = ((1.0 - mask) * -1e10)[:, None]
        return self.layers[i](frames.transpose(1, 2), bias).transpose(1, 2)


@register_family("matcha-tts", KIND)
def build_matcha_tts() -> Example:
    """Build Matcha-TTS' decoder."""
    inputs = (torch.randn(2, BANDS, 20), make_padding_mask(20, 4)[:, None].float())
    inputs += (torch.randn(2, BANDS, 20), torch.rand(2))
    timed = {0: BATCH, 2: TIME}
    return make_plain_example(
        FlowUnet(causal=False), *inputs, axes=(timed, timed, timed, {0: BATCH})
    )


@register_family("cosyvoice-flow", KIND)
def build_cosyvoice_flow() -> Example:
    """Build the estimator of CosyVoice 2's flow."""
    inputs = (torch.randn(2, BANDS, 20), make_padding_mask(20, 4)[:, None].float())
    inputs += (torch.randn(2, BANDS, 20), torch.rand(2), torch.randn(2, BANDS))
    inputs += (torch.randn(2, BANDS, 20),)
    timed = {0: BATCH, 2: TIME}
    axes = (timed, timed, timed, {0: BATCH}, {0: BATCH}, timed)
    return make_plain_example(FlowUnet(causal=True), *inputs, axes=axes)


class LatentUpsampler(nn.Module):
    """CosyVoice 2's token encoder: relative attention before and behind an upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.project = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.look = nn.Conv1d(WIDTH, WIDTH, 4)
        self.attends = nn.ModuleList(RelativeAttention() for _ in range(2))
        self.feeds = nn.ModuleList(make_feed_forward(nn.SiLU) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.register_buffer("table", torch.randn(1, 399, WIDTH))
        self.grow, self.out = nn.Conv1d(WIDTH, WIDTH, 5), nn.Linear(WIDTH, BANDS)

    def run_layer(self, rows: Tensor, mask: Tensor, i: int) -> Tensor:
        """Run one layer."""
        time = rows.shape[1]
        positions = self.table[:, 200 - time : 199 + time]
        rows = rows + self.attends[i](self.norms[2 * i](rows), mask, positions)
        return rows + self.feeds[i](self.norms[2 * i + 1](rows))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the mean of each frame; there are two for each token."""
        rows = self.project(self.embed(tokens))
        looked = self.look(fn.pad(rows.transpose(1, 2), (0, 3)))
        rows = rows + fn.leaky_relu(looked).transpose(1, 2)
        mask = torch.arange(tokens.shape[1])[None] < lengths[:, None]
        rows = self.run_layer(rows, mask, 0)
        wide = fn.interpolate(rows.transpose(1, 2), scale_factor=2.0, mode="nearest")
        rows = self.grow(fn.pad(wide, (4, 0))).transpose(1, 2)
        mask = torch.arange(rows.shape[1])[None] < 2 * lengths[:, None]
        return self.out(self.run_layer(rows, mask, 1))


@register_family("cosyvoice-encoder", KIND)
def build_cosyvoice_encoder() -> Example:
    """Build the encoder of CosyVoice 2's flow."""
    inputs = (make_token_ids(), torch.tensor([12, 8]))
    return make_plain_example(LatentUpsampler(), *inputs, axes=({0: BATCH, 1: TIME}, {0: BATCH}))


class JointBlock(nn.Module):
    """A block of Stable Diffusion 3 and Stable Audio: text and latents in one attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conditions = nn.ModuleList(nn.Linear(WIDTH, 6 * WIDTH) for _ in range(2))
        self.packs = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.feeds = nn.ModuleList(make_feed_forward(TANH_GELU) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)

    def forward(self, latents: Tensor, text: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        """Run the block."""
        sides, parts, heads = [latents, text], list[tuple[Tensor, ...]](), list[Tensor]()
        for i, side in enumerate(sides):
            parts.append(self.conditions[i](fn.silu(time))[:, None].chunk(6, dim=-1))
            hidden = self.norm(side) * (1 + parts[i][1]) + parts[i][0]
            packed = self.packs[i](hidden).view(side.shape[0], -1, 3, HEADS, SIZE)
            heads.append(packed.permute(2, 0, 3, 1, 4))
        query, key, value = torch.cat(heads, dim=3).unbind(0)
        mixed = fn.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        mixed = mixed.reshape(latents.shape[0], -1, WIDTH)
        cuts = (mixed[:, : latents.shape[1]], mixed[:, latents.shape[1] :])
        for i, cut in enumerate(cuts):
            side = sides[i] + parts[i][2] * self.outs[i](cut)
            hidden = self.norm(side) * (1 + parts[i][4]) + parts[i][3]
            sides[i] = side + parts[i][5] * self.feeds[i](hidden)
        return sides[0], sides[1]


class JointTransformer(nn.Module):
    """A multimodal diffusion transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.text = nn.Linear(16, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.time, self.out = TimeEmbedding(), nn.Linear(WIDTH, 16)
        self.blocks = nn.ModuleList(JointBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)

    def forward(self, latents: Tensor, text: Tensor, time: Tensor) -> Tensor:
        """Return the velocity of each latent."""
        rows, text, condition = self.first(latents), self.text(text), self.time(time)
        for block in self.blocks:
            rows, text = block(rows, text, condition)
        return self.out(self.norm(rows))


@register_family("mmdit", KIND)
def build_mmdit() -> Example:
    """Build a multimodal diffusion transformer."""
    inputs = (torch.randn(2, 16, 16), torch.randn(2, 7, WIDTH), torch.rand(2))
    axes = ({0: BATCH, 1: TIME}, {0: BATCH, 1: "words"}, {0: BATCH})
    return make_plain_example(JointTransformer(), *inputs, axes=axes)


class VideoDit(nn.Module):
    """A diffusion transformer over patches with one condition for all blocks (PixArt, Wan)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.time = nn.Linear(16, WIDTH), TimeEmbedding()
        self.condition = nn.Linear(WIDTH, 6 * WIDTH)
        self.tables = nn.ParameterList(torch.randn(6, WIDTH) for _ in range(LAYERS))
        self.attends = nn.ModuleList(
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2 * LAYERS)
        )
        self.feeds = nn.ModuleList(make_feed_forward(TANH_GELU) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.out = nn.Linear(WIDTH, 16)

    def forward(self, latents: Tensor, text: Tensor, time: Tensor) -> Tensor:
        """Return the velocity of each latent."""
        rows = self.first(latents)
        shared = self.condition(fn.silu(self.time(time))).view(-1, 6, WIDTH)
        for i, table in enumerate(self.tables):
            shift, scale, gate, shift2, scale2, gate2 = (table[None] + shared).chunk(6, dim=1)
            hidden = self.norm(rows) * (1 + scale) + shift
            rows = rows + gate * self.attends[2 * i](hidden, hidden, hidden)[0]
            rows = rows + self.attends[2 * i + 1](rows, text, text)[0]
            rows = rows + gate2 * self.feeds[i](self.norm(rows) * (1 + scale2) + shift2)
        return self.out(self.norm(rows))


@register_family("cross-attention-dit", KIND)
def build_cross_attention_dit() -> Example:
    """Build a diffusion transformer that attends to text."""
    inputs = (torch.randn(2, 16, 16), torch.randn(2, 7, WIDTH), torch.rand(2))
    axes = ({0: BATCH, 1: TIME}, {0: BATCH, 1: "words"}, {0: BATCH})
    return make_plain_example(VideoDit(), *inputs, axes=axes)


VISION = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "image_size": 32,
    "patch_size": 8,
}


@register_family("clip-vision", KIND)
def build_clip_vision() -> Example:
    """Build CLIP's vision encoder."""
    config = hf.CLIPVisionConfig(**VISION, intermediate_size=4 * WIDTH)
    return make_plain_example(
        hf.CLIPVisionModel(config), torch.randn(2, 3, 32, 32), axes=({0: BATCH},)
    )


@register_family("sam-vision", KIND)
def build_sam_vision() -> Example:
    """Build SAM's image encoder, with attention in windows."""
    config = hf.SamVisionConfig(
        hidden_size=WIDTH,
        output_channels=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        image_size=64,
        patch_size=8,
        window_size=4,
        global_attn_indexes=[1],
        mlp_dim=4 * WIDTH,
    )
    from transformers.models.sam.modeling_sam import SamVisionEncoder

    return make_plain_example(
        SamVisionEncoder(config), torch.randn(2, 3, 64, 64), axes=({0: BATCH},)
    )


@register_family("mobilenet-v2", KIND)
def build_mobilenet_v2() -> Example:
    """Build a MobileNet V2."""
    config = hf.MobileNetV2Config(image_size=64, depth_multiplier=0.35, num_labels=10)
    model = hf.MobileNetV2ForImageClassification(config)
    return make_plain_example(model, torch.randn(2, 3, 64, 64), axes=({0: BATCH},))


@register_family("dinov2", KIND)
def build_dinov2() -> Example:
    """Build a DINOv2, for its one size."""
    config = hf.Dinov2Config(**VISION)
    model = hf.Dinov2Model(config)
    return make_plain_example(model, torch.randn(2, 3, 32, 32), axes=({0: BATCH},))


@register_family("siglip-vision", KIND)
def build_siglip_vision() -> Example:
    """Build SigLIP's vision encoder."""
    config = hf.SiglipVisionConfig(**VISION, intermediate_size=4 * WIDTH)
    model = hf.SiglipVisionModel(config)
    return make_plain_example(model, torch.randn(2, 3, 32, 32), axes=({0: BATCH},))


@register_family("swin", KIND)
def build_swin() -> Example:
    """Build a Swin transformer."""
    config = hf.SwinConfig(
        image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return make_plain_example(hf.SwinModel(config), torch.randn(2, 3, 64, 64), axes=({0: BATCH},))
