"""Layers that families of several kinds share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as fn
from torch import Tensor, nn

from .family import HEADS, WIDTH

SIZE = WIDTH // HEADS
"""Features of a head."""
TANH_GELU = functools.partial(nn.GELU, approximate="tanh")


def make_feed_forward(
    activation: Callable[[], nn.Module] = nn.ReLU, factor: int = 4
) -> nn.Sequential:
    """Return the two products of a layer, the first of which is wider by the factor."""
    wide = factor * WIDTH
    return nn.Sequential(nn.Linear(WIDTH, wide), activation(), nn.Linear(wide, WIDTH))


def split_heads(frames: Tensor) -> Tensor:
    """Lay the features of [batch, time, features] out by head."""
    return frames.view(frames.shape[0], -1, HEADS, SIZE).transpose(1, 2)


class SelfAttention(nn.Module):
    """Attention of heads in one product, as FunASR and WeNet write it, with a padding mask.

    Args:
        packed: Whether one product computes queries, keys and values.
    """

    def __init__(self, *, packed: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH) if packed else None
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Attend over all frames that the mask shows."""
        if self.project is not None:
            parts = torch.split(self.project(frames), WIDTH, dim=-1)
        else:
            parts = (self.query(frames), self.key(frames), self.value(frames))
        query, key, value = (split_heads(x) for x in parts)
        scores = torch.matmul(query * SIZE**-0.5, key.transpose(-2, -1))
        return self.out(weigh_values(scores, value, mask))


def weigh_values(scores: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return the values that masked scores weigh, as [batch, time, features]."""
    hidden = mask[:, None, None, :] == 0
    weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
    weights = weights.masked_fill(hidden, 0.0)
    frames = torch.matmul(weights, value).transpose(1, 2)
    return frames.contiguous().view(frames.shape[0], -1, frames.shape[2] * frames.shape[3])


class RelativeAttention(SelfAttention):
    """Attention with Transformer-XL's relative positions and its biases u and v.

    Args:
        shift: Whether scores of positions are moved row by row (ESPnet, NeMo); WeNet does without.
    """

    def __init__(self, *, shift: bool = True) -> None:
        super().__init__()
        self.shift = shift
        self.position = nn.Linear(WIDTH, WIDTH, bias=False)
        self.u, self.v = (nn.Parameter(torch.randn(HEADS, SIZE)) for _ in range(2))

    def forward(self, frames: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Attend over all frames that the mask shows."""
        query = self.query(frames).view(frames.shape[0], -1, HEADS, SIZE)
        key, value = split_heads(self.key(frames)), split_heads(self.value(frames))
        place = split_heads(self.position(positions))
        content = torch.matmul((query + self.u).transpose(1, 2), key.transpose(-2, -1))
        offset = torch.matmul((query + self.v).transpose(1, 2), place.transpose(-2, -1))
        if self.shift:
            offset = shift_rows(offset)[..., : content.shape[-1]]
        return self.out(weigh_values((content + offset) / math.sqrt(SIZE), value, mask))


def shift_rows(scores: Tensor) -> Tensor:
    """Move each row by one more, by a pad and two views."""
    batch, heads, rows, columns = scores.shape
    padded = fn.pad(scores, (1, 0)).view(batch, heads, columns + 1, rows)
    return padded[:, :, 1:].reshape(batch, heads, rows, columns)


def make_pair_angles(steps: Tensor, time: int) -> Tensor:
    """Return the angle of each feature at each time; neighbours share one."""
    angles = torch.arange(time)[:, None] * steps[None]
    return torch.stack([angles, angles], dim=-1).flatten(-2)


def rotate_pairs(rows: Tensor, angles: Tensor) -> Tensor:
    """Rotate neighbouring features, as x-transformers writes it."""
    pairs = rows.unflatten(-1, (-1, 2))
    turned = torch.stack([-pairs[..., 1], pairs[..., 0]], dim=-1).flatten(-2)
    return rows * angles.cos() + turned * angles.sin()


class RootMeanSquare(nn.Module):
    """E2-TTS' norm: unit length times a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDTH))

    def forward(self, rows: Tensor) -> Tensor:
        """Normalize."""
        return fn.normalize(rows, dim=-1) * WIDTH**0.5 * self.scale


class SwooshL(nn.Module):
    """Zipformer's activation: a softplus moved and tilted."""

    def __init__(self, shift: float = 4.0, offset: float = 0.035) -> None:
        super().__init__()
        self.shift, self.offset = shift, offset

    def forward(self, frames: Tensor) -> Tensor:
        """Apply the activation as icefall exports it."""
        moved = frames - self.shift
        soft = (1.0 + moved.exp()).log()
        soft = torch.where(soft == float("inf"), moved, soft)
        return soft - 0.08 * frames - self.offset


class BiasNorm(nn.Module):
    """Zipformer's norm: by the root mean square of what is left without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.scale = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.tensor(0.3))

    def forward(self, frames: Tensor) -> Tensor:
        """Divide by the root mean square."""
        scales = torch.mean((frames - self.bias) ** 2, dim=-1, keepdim=True) ** -0.5
        return frames * (scales * self.scale.exp())


def make_positions(length: int) -> Tensor:
    """Return the features of the distances of frames, as a Zipformer takes them."""
    steps = torch.arange(-(length - 1), length, dtype=torch.float32)[:, None]
    squeezed = 24**0.5 * steps.sign() * ((steps.abs() + 24**0.5).log() - math.log(24**0.5))
    angles = (squeezed / 4).atan() * torch.arange(1, 13)[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)[None]


class ZipformerLayer(nn.Module):
    """A Zipformer layer: shared attention weights, three feed forwards, two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, HEADS * (2 * 16 + 4))
        self.position = nn.Linear(24, HEADS * 4, bias=False)
        self.feeds = nn.ModuleList(make_feed_forward(SwooshL, 3) for _ in range(3))
        self.values = nn.ModuleList(nn.Linear(WIDTH, HEADS * 12) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(HEADS * 12, WIDTH) for _ in range(2))
        self.gates = nn.Linear(WIDTH, 3 * WIDTH)
        self.gate_out = nn.Linear(WIDTH, WIDTH)
        self.ins = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(2))
        self.deeps = nn.ModuleList(
            nn.Conv1d(WIDTH, WIDTH, 15, groups=WIDTH, padding=7) for _ in range(2)
        )
        self.tails = nn.ModuleList(
            nn.Sequential(SwooshL(1.0, 0.313), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )
        self.norm = BiasNorm()
        self.bypass, self.middle = (nn.Parameter(torch.rand(WIDTH)) for _ in range(2))

    def compute_weights(self, frames: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights, [heads, batch, time, time]."""
        time, batch, _ = frames.shape
        query, key, place = torch.split(
            self.project(frames), [HEADS * 16, HEADS * 16, HEADS * 4], dim=-1
        )
        query = query.reshape(time, batch, HEADS, 16).permute(2, 1, 0, 3)
        key = key.reshape(time, batch, HEADS, 16).permute(2, 1, 3, 0)
        place = place.reshape(time, batch, HEADS, 4).permute(2, 1, 0, 3)
        steps = self.position(positions)
        steps = steps.reshape(1, 2 * time - 1, HEADS, 4).permute(2, 0, 3, 1)
        offset = torch.matmul(place, steps)
        rows = torch.arange(time - 1, -1, -1)[:, None] + torch.arange(time)[None]
        rows = rows.repeat(batch * HEADS, 1)
        offset = offset.reshape(-1, 2 * time - 1).gather(dim=1, index=rows)
        scores = torch.matmul(query, key) + offset.view(HEADS, batch, time, time)
        return scores.masked_fill(mask[None, :, None] == 0, -1000.0).softmax(dim=-1)

    def attend_values(self, frames: Tensor, weights: Tensor, i: int) -> Tensor:
        """Weigh values by the weights that the layer shares."""
        time, batch, _ = frames.shape
        value = self.values[i](frames).reshape(time, batch, HEADS, 12).permute(2, 1, 0, 3)
        value = torch.matmul(weights, value).permute(2, 1, 0, 3)
        return self.outs[i](value.reshape(time, batch, HEADS * 12))

    def attend_gated_values(self, frames: Tensor, weights: Tensor) -> Tensor:
        """Weigh values between two gates, by the weights of the first head."""
        time, batch, _ = frames.shape
        scale, value, gate = self.gates(frames).chunk(3, dim=-1)
        value = (value * torch.tanh(scale)).reshape(time, batch, 1, WIDTH).permute(2, 1, 0, 3)
        value = torch.matmul(weights[:1], value).permute(2, 1, 0, 3).reshape(time, batch, WIDTH)
        return self.gate_out(value * gate)

    def convolve_frames(self, frames: Tensor, mask: Tensor, i: int) -> Tensor:
        """Run one of the two convolution modules."""
        value, gate = self.ins[i](frames).chunk(2, dim=-1)
        value = (value * gate.sigmoid()).permute(1, 2, 0)
        value = self.deeps[i](value.masked_fill(mask[:, None] == 0, 0.0))
        return self.tails[i](value.permute(2, 0, 1))

    def forward(self, frames: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Run the layer over [time, batch, features]."""
        start, weights = frames, self.compute_weights(frames, positions, mask)
        frames = frames + self.feeds[0](frames)
        frames = frames + self.attend_gated_values(frames, weights)
        frames = frames + self.attend_values(frames, weights, 0)
        frames = frames + self.convolve_frames(frames, mask, 0)
        frames = frames + self.feeds[1](frames)
        frames = start + (frames - start) * self.middle
        frames = frames + self.attend_values(frames, weights, 1)
        frames = frames + self.convolve_frames(frames, mask, 1)
        frames = self.norm(frames + self.feeds[2](frames))
        return start + (frames - start) * self.bypass


def apply_snake(frames: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """Return x + sin(alpha x)^2 / beta."""
    return frames + (1.0 / (beta + 1e-9)) * torch.sin(frames * alpha).pow(2)


class Snake(nn.Module):
    """A periodic activation: x + sin(a x)^2 / a."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, samples: Tensor) -> Tensor:
        """Apply the activation."""
        wave = torch.sin(self.alpha * samples).pow(2)
        return samples + (self.alpha + 1e-9).reciprocal() * wave


class CausalConv(nn.Module):
    """A convolution that sees no later sample."""

    def __init__(self, *sizes: int, dilation: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.left = (sizes[2] - 1) * dilation
        self.convolve = nn.Conv1d(*sizes, dilation=dilation, groups=groups)

    def forward(self, frames: Tensor) -> Tensor:
        """Pad on the left and convolve."""
        return self.convolve(fn.pad(frames, (self.left, 0)))


def make_fourier_basis(size: int) -> Tensor:
    """Return the windowed cosines and sines of a Fourier transform, [2 bins, size]."""
    angles = 2 * math.pi * torch.arange(size // 2 + 1)[:, None] * torch.arange(size) / size
    return torch.cat([angles.cos(), -angles.sin()]) * torch.hann_window(size)


class InverseFourier(nn.Module):
    """Samples from magnitudes and phases, by one transposed convolution, as exports write it."""

    def __init__(self, size: int, hop: int) -> None:
        super().__init__()
        self.hop = hop
        basis = make_fourier_basis(size) / size
        self.register_buffer("basis", basis[:, None])

    def forward(self, magnitude: Tensor, phase: Tensor) -> Tensor:
        """Return samples of [batch, bins, time]."""
        parts = torch.cat([magnitude * torch.cos(phase), magnitude * torch.sin(phase)], dim=1)
        return fn.conv_transpose1d(parts, self.basis, stride=self.hop)


class NeuralSource(nn.Module):
    """Harmonics of a pitch: angles summed over time, their sines, and a product."""

    def __init__(self, scale: int, hop: int, harmonics: int = 8) -> None:
        super().__init__()
        self.scale, self.hop, self.rate = scale, hop, 1000.0
        self.merge = nn.Linear(harmonics + 1, 1)
        self.register_buffer("numbers", torch.arange(1, harmonics + 2).float()[None, None])

    def forward(self, pitch: Tensor) -> Tensor:
        """Return the source of [batch, time] frames of pitch, [batch, 1, samples]."""
        wide = fn.interpolate(pitch[:, None], scale_factor=float(self.hop)).transpose(1, 2)
        turns = (wide * self.numbers / self.rate) % 1
        turns = fn.interpolate(turns.transpose(1, 2), scale_factor=1 / self.hop, mode="linear")
        angles = torch.cumsum(turns, dim=2) * 2 * math.pi * self.hop
        angles = fn.interpolate(angles, scale_factor=float(self.hop), mode="linear")
        voiced = (wide > 10).float()
        waves = torch.sin(angles).transpose(1, 2) * 0.1 * voiced
        return torch.tanh(self.merge(waves)).transpose(1, 2)
