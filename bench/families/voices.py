"""Voice activity, speakers, pitch, events, noise and sources: models that listen."""

from __future__ import annotations

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
    AdaptedStep,
    Adapter,
    Example,
    make_audio_example,
    make_plain_example,
    make_text_example,
    register_family,
)
from .layers import (
    RootMeanSquare,
    make_feed_forward,
    make_fourier_basis,
    make_pair_angles,
    rotate_pairs,
)
from .recognition import WAVE

KIND = "voice activity and speakers"


class FsmnVad(nn.Module):
    """FunASR's voice activity: products and memories over time, then a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.ins = nn.Sequential(nn.Linear(BANDS, 48), nn.Linear(48, WIDTH), nn.ReLU())
        self.downs = nn.ModuleList(nn.Linear(WIDTH, 32, bias=False) for _ in range(4))
        self.memories = nn.ModuleList(
            nn.Conv2d(32, 32, (20, 1), groups=32, bias=False) for _ in range(4)
        )
        self.ups = nn.ModuleList(nn.Linear(32, WIDTH) for _ in range(4))
        self.outs = nn.Sequential(nn.Linear(WIDTH, 48), nn.Linear(48, 30))

    def forward(self, frames: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Return the scores of frames and the caches moved on."""
        hidden, moved = self.ins(frames), list[Tensor]()
        for down, memory, up, cache in zip(
            self.downs, self.memories, self.ups, caches, strict=True
        ):
            hidden = down(hidden)
            maps = hidden[:, None].permute(0, 3, 2, 1)
            longer = torch.cat([cache, maps], dim=2)
            moved.append(longer[:, :, -19:])
            maps = maps + memory(longer)
            hidden = torch.relu(up(maps.permute(0, 3, 2, 1).squeeze(1)))
        return (torch.softmax(self.outs(hidden), dim=-1), *moved)


@register_family("fsmn-vad", KIND)
def build_fsmn_vad() -> Example:
    """Build FunASR's FSMN-VAD with its caches."""
    caches = tuple(torch.zeros(2, 32, 19, 1) for _ in range(4))
    axes = ({0: BATCH, 1: TIME}, *[{0: BATCH}] * 4)
    return Example(AdaptedStep(FsmnVad()), (torch.randn(2, 30, BANDS), *caches), axes)


class Spectrum(nn.Module):
    """Magnitudes of a Fourier transform by one convolution, as exports write it."""

    def __init__(self, size: int, hop: int, *, pad: int | None = None) -> None:
        super().__init__()
        self.hop, self.bins, self.pad = hop, size // 2 + 1, size // 2 if pad is None else pad
        self.register_buffer("basis", make_fourier_basis(size)[:, None])

    def transform_parts(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return the real and imaginary parts of [batch, samples]."""
        padded = fn.pad(samples[:, None], (self.pad, self.pad), mode="reflect")
        both = fn.conv1d(padded, self.basis, stride=self.hop)
        return both[:, : self.bins], both[:, self.bins :]

    def forward(self, samples: Tensor) -> Tensor:
        """Return magnitudes, [batch, bins, time]."""
        real, imaginary = self.transform_parts(samples)
        return torch.sqrt(real**2 + imaginary**2)


class SileroVad(nn.Module):
    """A VAD like Silero's: magnitudes, four convolutions, an LSTM cell, a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = Spectrum(256, 128, pad=64)
        sizes = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.encoder = nn.Sequential(
            *(layer for i, o, s in sizes for layer in (nn.Conv1d(i, o, 3, s, padding=1), nn.ReLU()))
        )
        self.memory = nn.LSTM(128, 128)
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(128, 1, 1), nn.Sigmoid())

    def forward(self, samples: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        """Return how likely each row is speech, and the states."""
        frames = self.encoder(self.spectrum(samples)).permute(2, 0, 1)
        frames, (hidden, cell) = self.memory(frames, (hidden, cell))
        return self.out(frames.permute(1, 2, 0)).mean(dim=2), hidden, cell


@register_family("silero-vad", KIND)
def build_silero_vad() -> Example:
    """Build a VAD like Silero's."""
    states = (torch.zeros(1, 2, 128), torch.zeros(1, 2, 128))
    axes = ({0: BATCH}, {1: BATCH}, {1: BATCH})
    return Example(AdaptedStep(SileroVad()), (torch.randn(2, 576), *states), axes)


class FireRedVad(nn.Module):
    """A VAD over whole clips: a spectrum, its logarithm, two convolutions and two GRU layers."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum, self.mel = Spectrum(64, 16), nn.Linear(33, 20, bias=False)
        self.convolve = nn.Conv1d(20, WIDTH, 5, padding=2)
        self.memory = nn.GRU(WIDTH, 32, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 1)

    def forward(self, samples: Tensor) -> Tensor:
        """Return how likely each frame is speech."""
        power = self.spectrum(samples).pow(2).transpose(1, 2)
        mel = torch.log(self.mel(power).abs().clamp(min=1e-6)).transpose(1, 2)
        hidden, _ = self.memory(torch.relu(self.convolve(mel)).transpose(1, 2))
        return torch.sigmoid(self.out(hidden))


@register_family("gru-vad", KIND)
def build_gru_vad() -> Example:
    """Build a VAD over whole clips."""
    return make_plain_example(FireRedVad(), torch.randn(2, 1600))


class SincFilters(nn.Module):
    """SincNet's first layer as exported: a convolution, absolute values, pooling, norms."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(1, affine=True)
        sizes = ((1, 32, 51, 5), (32, 24, 5, 1), (24, 24, 5, 1))
        self.convolves = nn.ModuleList(nn.Conv1d(i, o, k, s) for i, o, k, s in sizes)
        self.norms = nn.ModuleList(nn.InstanceNorm1d(o, affine=True) for _, o, _, _ in sizes)

    def forward(self, samples: Tensor) -> Tensor:
        """Return frames of [batch, 1, samples]."""
        frames = self.norm(samples)
        for i, (convolve, norm) in enumerate(zip(self.convolves, self.norms, strict=True)):
            frames = convolve(frames)
            frames = torch.abs(frames) if i == 0 else frames
            frames = fn.leaky_relu(norm(fn.max_pool1d(frames, 3, 3)))
        return frames


class PyanNet(nn.Module):
    """pyannote's segmentation: SincNet, two LSTM layers, two products, a log-softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = SincFilters()
        self.memory = nn.LSTM(24, 32, 2, batch_first=True, bidirectional=True)
        self.feeds = nn.ModuleList([nn.Linear(64, 32), nn.Linear(32, 32)])
        self.out = nn.Linear(32, 7)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the scores of speakers in each frame."""
        hidden, _ = self.memory(self.filters(samples).transpose(1, 2))
        for feed in self.feeds:
            hidden = fn.leaky_relu(feed(hidden))
        return torch.log_softmax(self.out(hidden), dim=-1)


@register_family("pyannote-segmentation", KIND)
def build_pyannote_segmentation() -> Example:
    """Build pyannote's segmentation."""
    return make_plain_example(PyanNet(), torch.randn(2, 1, 4000), axes=({0: BATCH, 2: TIME},))


def make_unit(inputs: int, outputs: int, kernel: int, dilation: int = 1) -> nn.Sequential:
    """Return a convolution, an activation and a norm."""
    padding = dilation * (kernel - 1) // 2
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, kernel, dilation=dilation, padding=padding),
        nn.ReLU(),
        nn.BatchNorm1d(outputs),
    )


class SqueezeExcite(nn.Module):
    """Scale channels by a gate made of their means over time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.Conv1d(channels, 16, 1), nn.ReLU(), nn.Conv1d(16, channels, 1), nn.Sigmoid()
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Scale [batch, channels, time]."""
        return frames * self.gate(frames.mean(dim=2, keepdim=True))


class Res2Block(nn.Module):
    """ECAPA-TDNN's block: slices of channels, of which each adds the one before."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.first, self.last = make_unit(WIDTH, WIDTH, 1), make_unit(WIDTH, WIDTH, 1)
        self.parts = nn.ModuleList(make_unit(16, 16, 3, dilation) for _ in range(3))
        self.excite = SqueezeExcite(WIDTH)

    def forward(self, frames: Tensor) -> Tensor:
        """Run the block."""
        first, *rest = torch.chunk(self.first(frames), 4, dim=1)
        done = [first]
        for i, (part, one) in enumerate(zip(self.parts, rest, strict=True)):
            done.append(part(one if i == 0 else one + done[-1]))
        return frames + self.excite(self.last(torch.cat(done, dim=1)))


class AttentivePooling(nn.Module):
    """Means and deviations over time, weighted by attention with global context."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.attend = nn.Sequential(
            nn.Conv1d(3 * channels, 16, 1), nn.ReLU(), nn.Tanh(), nn.Conv1d(16, channels, 1)
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Pool [batch, channels, time] to [batch, 2 channels]."""
        time = frames.shape[2]
        mean = frames.mean(dim=2, keepdim=True)
        deviation = torch.sqrt(frames.var(dim=2, keepdim=True).clamp(min=1e-4))
        context = torch.cat(
            [frames, mean.expand(-1, -1, time), deviation.expand(-1, -1, time)], dim=1
        )
        weights = torch.softmax(self.attend(context), dim=2)
        mean = (frames * weights).sum(dim=2)
        second = (frames.pow(2) * weights).sum(dim=2)
        return torch.cat([mean, torch.sqrt((second - mean.pow(2)).clamp(min=1e-4))], dim=1)


class Ecapa(nn.Module):
    """ECAPA-TDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.first = make_unit(BANDS, WIDTH, 5)
        self.blocks = nn.ModuleList(Res2Block(d) for d in (2, 3, 4))
        self.merge, self.pool = nn.Conv1d(3 * WIDTH, 96, 1), AttentivePooling(96)
        self.norm, self.out = nn.BatchNorm1d(192), nn.Linear(192, 48)

    def forward(self, frames: Tensor) -> Tensor:
        """Return one vector a clip of [batch, time, bands]."""
        hidden, parts = self.first(frames.transpose(1, 2)), list[Tensor]()
        for block in self.blocks:
            hidden = block(hidden)
            parts.append(hidden)
        return self.out(self.norm(self.pool(torch.relu(self.merge(torch.cat(parts, dim=1))))))


@register_family("ecapa-tdnn", KIND)
def build_ecapa_tdnn() -> Example:
    """Build an ECAPA-TDNN."""
    return make_plain_example(Ecapa(), torch.randn(2, 50, BANDS))


class CamLayer(nn.Module):
    """CAM++'s dense layer: a dilated convolution under a mask of context in segments."""

    def __init__(self, inputs: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.BatchNorm1d(inputs), nn.ReLU(), nn.Conv1d(inputs, 32, 1, bias=False)
        )
        self.second = nn.Sequential(nn.BatchNorm1d(32), nn.ReLU())
        self.local = nn.Conv1d(32, 16, 3, padding=dilation, dilation=dilation, bias=False)
        self.gate = nn.Sequential(
            nn.Conv1d(32, 16, 1), nn.ReLU(), nn.Conv1d(16, 16, 1), nn.Sigmoid()
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Return the new channels beside the old."""
        hidden = self.second(self.first(frames))
        context = hidden.mean(dim=-1, keepdim=True) + self.mean_segments(hidden)
        return torch.cat([frames, self.local(hidden) * self.gate(context)], dim=1)

    @staticmethod
    def mean_segments(frames: Tensor, length: int = 20) -> Tensor:
        """Return the mean of each segment, at each of its frames."""
        means = fn.avg_pool1d(frames, length, length, ceil_mode=True)
        batch, channels, count = means.shape
        wide = means[..., None].expand(-1, -1, -1, length)
        return wide.reshape(batch, channels, count * length)[..., : frames.shape[-1]]


class CamPlus(nn.Module):
    """CAM++: a head of two-dimensional blocks, dense layers, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.Conv2d(8, 8, 3, (2, 1), 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.Conv2d(8, 8, 3, (2, 1), 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        )
        self.first = make_unit(80, 32, 5)
        self.layers = nn.Sequential(*(CamLayer(32 + 16 * i, 1 + i % 2) for i in range(4)))
        self.last = nn.Sequential(nn.BatchNorm1d(96), nn.ReLU(), nn.Conv1d(96, 48, 1), nn.ReLU())
        self.out = nn.Linear(96, 32)

    def forward(self, frames: Tensor) -> Tensor:
        """Return one vector a clip of [batch, time, bands]."""
        maps = self.head(frames.transpose(1, 2)[:, None])
        batch, channels, bands, time = maps.shape
        hidden = self.last(self.layers(self.first(maps.reshape(batch, channels * bands, time))))
        return self.out(torch.cat([hidden.mean(dim=-1), hidden.std(dim=-1)], dim=-1))


@register_family("cam++", KIND)
def build_cam_plus() -> Example:
    """Build a CAM++."""
    return make_plain_example(CamPlus(), torch.randn(2, 50, BANDS))


class BasicBlock(nn.Module):
    """A block of a ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)),
            nn.ReLU(),
            *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.shortcut = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Run the block."""
        return torch.relu(self.body(maps) + self.shortcut(maps))


class SpeakerResNet(nn.Module):
    """WeSpeaker's ResNet with statistics over time."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(BasicBlock(16, 16, 1), BasicBlock(16, 32, 2), BasicBlock(32, 64, 2)),
        )
        self.out = nn.Linear(64 * 10 * 2, 32)

    def forward(self, frames: Tensor) -> Tensor:
        """Return one vector a clip of [batch, time, bands]."""
        maps = self.body(frames.permute(0, 2, 1)[:, None])
        mean = maps.mean(dim=-1).flatten(1)
        deviation = torch.sqrt(maps.var(dim=-1) + 1e-7).flatten(1)
        return self.out(torch.cat([mean, deviation], dim=1))


@register_family("speaker-resnet", KIND)
def build_speaker_resnet() -> Example:
    """Build WeSpeaker's ResNet."""
    return make_plain_example(SpeakerResNet(), torch.randn(2, 50, BANDS))


@register_family("wavlm-xvector", KIND)
def build_wavlm_xvector() -> Example:
    """Build WavLM with an x-vector head."""
    config = hf.WavLMConfig(
        **WAVE,
        num_buckets=32,
        max_bucket_distance=80,
        tdnn_dim=[32, 32, 48],
        tdnn_kernel=[5, 3, 1],
        tdnn_dilation=[1, 2, 1],
        xvector_output_dim=32,
    )
    return make_audio_example(hf.WavLMForXVector(config), "embeddings", mask=False)


@register_family("wav2vec2-classifier", KIND)
def build_wav2vec2_classifier() -> Example:
    """Build a classifier of emotions or languages on wav2vec 2.0."""
    config = hf.Wav2Vec2Config(**WAVE, num_labels=5, use_weighted_layer_sum=True)
    return make_audio_example(hf.Wav2Vec2ForSequenceClassification(config))


@register_family("audio-spectrogram-transformer", KIND)
def build_audio_spectrogram_transformer() -> Example:
    """Build an Audio Spectrogram Transformer, for its one length."""
    config = hf.ASTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_length=64,
        num_mel_bins=32,
        num_labels=5,
    )
    adapted = Adapter(hf.ASTForAudioClassification(config), ("input_values",))
    return Example(adapted, (torch.randn(2, 64, 32),), ({0: BATCH},))


@register_family("clap-text", KIND)
def build_clap_text() -> Example:
    """Build CLAP's text encoder."""
    config = hf.ClapTextConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=128,
        projection_dim=32,
    )
    return make_text_example(hf.ClapTextModelWithProjection(config), "text_embeds")


@register_family("clap-audio", KIND)
def build_clap_audio() -> Example:
    """Build CLAP's audio encoder: a Swin transformer over a spectrogram."""
    config = hf.ClapAudioConfig(
        hidden_size=WIDTH,
        window_size=4,
        num_mel_bins=32,
        spec_size=128,
        patch_size=4,
        patch_stride=[4, 4],
        depths=[2, 2],
        num_attention_heads=[2, 4],
        patch_embeds_hidden_size=32,
        num_hidden_layers=2,
        projection_dim=32,
    )
    model = hf.ClapAudioModelWithProjection(config)
    adapted = Adapter(model, ("input_features",), ("audio_embeds",), is_longer=None)
    return Example(adapted, (torch.randn(2, 1, 512, 32),), ({0: BATCH},))


class Gtcrn(nn.Module):
    """GTCRN, a small denoiser: bands, convolutions, grouped GRUs over bands and time."""

    def __init__(self) -> None:
        super().__init__()
        self.bands, self.unband = nn.Linear(65, 33, bias=False), nn.Linear(33, 65, bias=False)
        self.encoder = nn.ModuleList(
            [
                nn.Sequential(
                    nn.Conv2d(3, 16, (1, 5), (1, 2), (0, 2)), nn.BatchNorm2d(16), nn.PReLU()
                ),
                nn.Sequential(
                    nn.Conv2d(16, 16, (1, 5), (1, 2), (0, 2), groups=2),
                    nn.BatchNorm2d(16),
                    nn.PReLU(),
                ),
            ]
        )
        self.inside = nn.GRU(16, 8, batch_first=True, bidirectional=True)
        self.across = nn.GRU(16, 16, batch_first=True)
        self.feeds = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm((9, 16), eps=1e-8) for _ in range(2))
        self.decoder = nn.ModuleList(
            [
                nn.ConvTranspose2d(16, 16, (1, 5), (1, 2), (0, 2), groups=2),
                nn.ConvTranspose2d(16, 2, (1, 5), (1, 2), (0, 2)),
            ]
        )

    def forward(self, spectrum: Tensor) -> Tensor:
        """Return the masked spectrum of [batch, bins, time, 2]."""
        real, imaginary = spectrum[..., 0].transpose(1, 2), spectrum[..., 1].transpose(1, 2)
        magnitude = torch.sqrt(real**2 + imaginary**2 + 1e-12)
        maps = self.bands(torch.stack([magnitude, real, imaginary], dim=1))
        skips = list[Tensor]()
        for layer in self.encoder:
            maps = layer(maps)
            skips.append(maps)
        maps = self.run_dual_path(maps)
        for layer, skip in zip(self.decoder, reversed(skips), strict=True):
            maps = layer(maps + skip)
        mask = torch.tanh(self.unband(maps))
        parts = (
            real * mask[:, 0] - imaginary * mask[:, 1],
            imaginary * mask[:, 0] + real * mask[:, 1],
        )
        return torch.stack(parts, dim=1).permute(0, 3, 2, 1)

    def run_dual_path(self, maps: Tensor) -> Tensor:
        """Run one GRU over bands in each frame and one over frames in each band."""
        maps = maps.permute(0, 2, 3, 1)
        batch, time, bands, channels = maps.shape
        inside, _ = self.inside(maps.reshape(batch * time, bands, channels))
        inside = self.feeds[0](inside).view(batch, -1, bands, channels)
        maps = maps + self.norms[0](inside)
        across = maps.permute(0, 2, 1, 3)
        across, _ = self.across(across.reshape(batch * bands, time, channels))
        across = self.feeds[1](across).view(batch, bands, -1, channels).permute(0, 2, 1, 3)
        return (maps + self.norms[1](across)).permute(0, 3, 1, 2)


@register_family("gtcrn", KIND)
def build_gtcrn() -> Example:
    """Build a GTCRN."""
    return make_plain_example(Gtcrn(), torch.randn(2, 65, 20, 2), axes=({0: BATCH, 2: TIME},))


class GroupedGru(nn.Module):
    """DeepFilterNet's squeezed GRU: grouped products before and behind."""

    def __init__(self, width: int, groups: int = 4) -> None:
        super().__init__()
        self.groups = groups
        self.ins, self.outs = (
            nn.Parameter(torch.randn(groups, width // groups, width // groups)) for _ in range(2)
        )
        self.memory = nn.GRU(width, width, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:
        """Run the layer over [batch, time, width]."""
        hidden, _ = self.memory(torch.relu(self.multiply_groups(frames, self.ins)))
        return torch.relu(self.multiply_groups(hidden, self.outs))

    def multiply_groups(self, frames: Tensor, weight: Tensor) -> Tensor:
        """Multiply each group of features by its own matrix."""
        batch, time, width = frames.shape
        parts = frames.view(batch, time, self.groups, width // self.groups)
        return torch.einsum("btgi,gih->btgh", parts, weight).flatten(2, 3)


class DeepFilterNet(nn.Module):
    """DeepFilterNet's encoder and gains: separable convolutions, grouped GRUs, a mask of bands."""

    def __init__(self) -> None:
        super().__init__()
        self.convolves = nn.ModuleList(
            nn.Sequential(
                nn.ConstantPad2d((0, 0, 2, 0), 0.0),
                nn.Conv2d(i, 16, 3, (1, s), (0, 1), groups=g, bias=False),
                nn.Conv2d(16, 16, 1, bias=False),
                nn.BatchNorm2d(16),
                nn.ReLU(),
            )
            for i, s, g in ((1, 1, 1), (16, 2, 16), (16, 2, 16))
        )
        self.filters = nn.Sequential(
            nn.ConstantPad2d((0, 0, 2, 0), 0.0),
            *(nn.Conv2d(2, 16, 3, (1, 2), (0, 1), groups=2, bias=False), nn.BatchNorm2d(16)),
            nn.ReLU(),
        )
        self.merge = nn.Linear(16 * 24, 128)
        self.memory, self.back = GroupedGru(128), nn.Linear(128, 128)
        self.paths = nn.ModuleList(nn.Conv2d(16, 16, 1, bias=False) for _ in range(3))
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(16, 16, (1, 3), (1, 2), (0, 1), (0, 1), groups=16) for _ in range(2)
        )
        self.mask = nn.Sequential(nn.Conv2d(16, 1, (1, 3), padding=(0, 1)), nn.Sigmoid())
        self.snr = nn.Sequential(nn.Linear(128, 1), nn.Sigmoid())

    def forward(self, bands: Tensor, spectrum: Tensor) -> tuple[Tensor, Tensor]:
        """Return gains and signal-to-noise ratios of frames, [batch, 1, time, bands]."""
        maps, skips = bands, list[Tensor]()
        for layer in self.convolves:
            maps = layer(maps)
            skips.append(maps)
        extra = self.filters(spectrum).permute(0, 2, 1, 3).flatten(2)
        hidden = maps.permute(0, 2, 1, 3).flatten(2) + torch.relu(self.merge(extra))
        hidden = self.memory(hidden)
        snr = self.snr(hidden) * 50 - 15
        maps = torch.relu(self.back(hidden))
        maps = maps.view(maps.shape[0], maps.shape[1], 16, 8).permute(0, 2, 1, 3)
        for i, up in enumerate(self.ups):
            maps = torch.relu(up(torch.relu(self.paths[i](skips[2 - i])) + maps))
        return self.mask(torch.relu(self.paths[2](skips[0])) + maps), snr


@register_family("deepfilternet", KIND)
def build_deepfilternet() -> Example:
    """Build DeepFilterNet's encoder and gains."""
    inputs = (torch.randn(2, 1, 20, 32), torch.randn(2, 2, 20, 48))
    return make_plain_example(DeepFilterNet(), *inputs, axes=({0: BATCH, 2: TIME},) * 2)


class DprnnBlock(nn.Module):
    """One block of DPDFNet or DPRNN: a GRU over bands, then one over frames."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.GRU(32, 16, batch_first=True, bidirectional=True)
        self.across = nn.GRU(32, 32, batch_first=True)
        self.feeds = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))

    def forward(self, maps: Tensor) -> Tensor:
        """Run the block over [batch, channels, time, bands]."""
        batch, channels, time, bands = maps.shape
        rows = maps.permute(0, 2, 3, 1).reshape(batch * time, bands, channels)
        rows = rows + self.norms[0](self.feeds[0](self.inside(rows)[0]))
        rows = rows.view(batch, time, bands, channels).permute(0, 2, 1, 3)
        rows = rows.reshape(batch * bands, time, channels)
        rows = rows + self.norms[1](self.feeds[1](self.across(rows)[0]))
        return rows.view(batch, bands, time, channels).permute(0, 3, 2, 1)


class DpdfNet(nn.Module):
    """DPDFNet: a spectrum, convolutions, dual-path blocks, a complex mask."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = Spectrum(64, 32)
        self.first = nn.Sequential(nn.Conv2d(2, 32, 3, padding=1), nn.BatchNorm2d(32), nn.PReLU())
        self.blocks = nn.Sequential(*(DprnnBlock() for _ in range(LAYERS)))
        self.mask = nn.Conv2d(32, 2, 1)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the masked spectrum of [batch, samples]."""
        real, imaginary = self.spectrum.transform_parts(samples)
        maps = torch.stack([real, imaginary], dim=1).transpose(2, 3)
        mask = torch.tanh(self.mask(self.blocks(self.first(maps))))
        return maps * mask


@register_family("dpdfnet", KIND)
def build_dpdfnet() -> Example:
    """Build a DPDFNet."""
    return make_plain_example(DpdfNet(), torch.randn(2, 1600))


class Demucs(nn.Module):
    """Demucs: strided convolutions with gates down and up, LSTMs between."""

    def __init__(self) -> None:
        super().__init__()
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        for inputs, outputs in ((1, 16), (16, 32), (32, 64)):
            self.downs.append(
                nn.Sequential(
                    *(nn.Conv1d(inputs, outputs, 8, 4), nn.ReLU()),
                    *(nn.Conv1d(outputs, 2 * outputs, 1), nn.GLU(1)),
                )
            )
            up = [nn.Conv1d(outputs, 2 * outputs, 1), nn.GLU(1)]
            up.append(nn.ConvTranspose1d(outputs, inputs, 8, 4))
            self.ups.insert(0, nn.Sequential(*up, *([nn.ReLU()] if inputs > 1 else [])))
        self.memory = nn.LSTM(64, 64, 2, bidirectional=True)
        self.back = nn.Linear(128, 64)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the samples without noise, [batch, 1, samples]."""
        frames, skips = samples / (samples.std(dim=2, keepdim=True) + 1e-3), list[Tensor]()
        for down in self.downs:
            frames = down(frames)
            skips.append(frames)
        frames = frames.permute(2, 0, 1)
        frames = self.back(self.memory(frames)[0]).permute(1, 2, 0)
        for up in self.ups:
            skip = skips.pop()
            frames = up(frames + skip[..., : frames.shape[-1]])
        return frames


@register_family("demucs", KIND)
def build_demucs() -> Example:
    """Build a Demucs."""
    return make_plain_example(Demucs(), torch.randn(2, 1, 2388), axes=({0: BATCH, 2: TIME},))


class HybridDemucs(nn.Module):
    """The transformer of HT Demucs: layers over bins and over samples that read each other."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.own = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, activation=fn.gelu, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.crossed = nn.ModuleList(
            nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2)
        )
        self.scales = nn.ParameterList(torch.rand(WIDTH) for _ in range(2))

    def forward(self, spectral: Tensor, temporal: Tensor) -> tuple[Tensor, Tensor]:
        """Run both sides over [batch, channels, time]."""
        sides = [self.norms[i](x.transpose(1, 2)) for i, x in enumerate((spectral, temporal))]
        sides = [self.own[i](x) for i, x in enumerate(sides)]
        crossed = [
            x + self.scales[i] * self.crossed[i](x, sides[1 - i], sides[1 - i])[0]
            for i, x in enumerate(sides)
        ]
        return crossed[0].transpose(1, 2), crossed[1].transpose(1, 2)


@register_family("htdemucs-transformer", KIND)
def build_htdemucs_transformer() -> Example:
    """Build the transformer of HT Demucs."""
    inputs = (torch.randn(2, WIDTH, 24), torch.randn(2, WIDTH, 18))
    axes = ({0: BATCH, 2: TIME}, {0: BATCH, 2: "other"})
    return make_plain_example(HybridDemucs(), *inputs, axes=axes)


class MaskFormerLayer(nn.Module):
    """A layer of a band-split RoFormer: attention over frames, then over bands, with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.gate, self.out = nn.Linear(WIDTH, HEADS), nn.Linear(WIDTH, WIDTH, bias=False)
        self.norms = nn.ModuleList(RootMeanSquare() for _ in range(2))
        self.feed = make_feed_forward(nn.GELU)
        self.register_buffer("steps", 10000 ** (-torch.arange(0, 16, 2) / 16))

    def forward(self, rows: Tensor) -> Tensor:
        """Run the layer over [rows, length, features]."""
        hidden = self.norms[0](rows)
        parts = self.project(hidden).view(rows.shape[0], -1, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = fn.scaled_dot_product_attention(
            self.rotate_heads(query), self.rotate_heads(key), value
        )
        gates = self.gate(hidden).transpose(1, 2)[..., None].sigmoid()
        mixed = (mixed * gates).transpose(1, 2).reshape(rows.shape[0], -1, WIDTH)
        rows = rows + self.out(mixed)
        return rows + self.feed(self.norms[1](rows))

    def rotate_heads(self, heads: Tensor) -> Tensor:
        """Rotate neighbouring features by the place in the row."""
        return rotate_pairs(heads, make_pair_angles(self.steps, heads.shape[2]))


class BandSplitRoformer(nn.Module):
    """A band-split RoFormer: vocals from a mixture's spectrum."""

    def __init__(self, bands: int = 6) -> None:
        super().__init__()
        self.ins = nn.ModuleList(nn.Linear(8, WIDTH) for _ in range(bands))
        self.layers = nn.ModuleList(MaskFormerLayer() for _ in range(2 * LAYERS))
        self.outs = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, 16), nn.GLU(-1))
            for _ in range(bands)
        )

    def forward(self, spectrum: Tensor) -> Tensor:
        """Return the mask of [batch, time, bins]."""
        bands = spectrum.split(8, dim=-1)
        frames = torch.stack([f(x) for f, x in zip(self.ins, bands, strict=True)], dim=2)
        batch, time, count, width = frames.shape
        for i, layer in enumerate(self.layers):
            frames = frames.transpose(1, 2)
            rows = frames.reshape(-1, time if i % 2 == 0 else count, width)
            sizes = (batch, count, time, width) if i % 2 == 0 else (batch, time, count, width)
            frames = layer(rows).reshape(sizes)
        return torch.cat([f(x) for f, x in zip(self.outs, frames.unbind(2), strict=True)], dim=-1)


@register_family("band-split-roformer", KIND)
def build_band_split_roformer() -> Example:
    """Build a band-split RoFormer."""
    return make_plain_example(BandSplitRoformer(), torch.randn(2, 20, 48))


class Rmvpe(nn.Module):
    """RMVPE: a deep U-Net over mel frames, a bidirectional GRU, a sigmoid of pitches."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 8), (8, 16), (16, 32))
        self.downs = nn.ModuleList(BasicBlock(i, o, 1) for i, o in sizes)
        self.middle = BasicBlock(32, 32, 1)
        self.ups = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(i, i, 3, 2, 1, 1), nn.BatchNorm2d(i), nn.ReLU())
            for i in (32, 16, 8)
        )
        self.merges = nn.ModuleList(BasicBlock(2 * i, max(i // 2, 8), 1) for i in (32, 16, 8))
        self.last = nn.Conv2d(8, 3, 3, padding=1)
        self.memory = nn.GRU(3 * 32, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, 60)

    def forward(self, mel: Tensor) -> Tensor:
        """Return how likely each pitch is in each frame of [batch, bands, time]."""
        maps, skips = mel.transpose(1, 2)[:, None], list[Tensor]()
        for down in self.downs:
            maps = down(maps)
            skips.append(maps)
            maps = fn.avg_pool2d(maps, 2)
        maps = self.middle(maps)
        for up, merge in zip(self.ups, self.merges, strict=True):
            maps = merge(torch.cat([up(maps), skips.pop()], dim=1))
        frames = self.last(maps).transpose(1, 2).flatten(-2)
        return torch.sigmoid(self.out(self.memory(frames)[0]))


@register_family("rmvpe", KIND)
def build_rmvpe() -> Example:
    """Build an RMVPE."""
    return make_plain_example(Rmvpe(), torch.randn(2, 32, 32), axes=({0: BATCH, 2: TIME},))


class Crepe(nn.Module):
    """CREPE: six convolutions over a frame of samples, then a product."""

    def __init__(self) -> None:
        super().__init__()
        layers = list[nn.Module]()
        for inputs, outputs, stride in ((1, 32, 4), (32, 16, 1), (16, 16, 1), (16, 32, 1)):
            layers += [nn.Conv1d(inputs, outputs, 16, stride, padding=8), nn.ReLU()]
            layers += [nn.BatchNorm1d(outputs), nn.MaxPool1d(2, 2)]
        self.layers, self.out = nn.Sequential(*layers), nn.Linear(32 * 16, 60)

    def forward(self, frames: Tensor) -> Tensor:
        """Return how likely each pitch is in each row of [frames, 1024]."""
        hidden = self.layers(frames[:, None]).transpose(1, 2)
        return torch.sigmoid(self.out(hidden.reshape(frames.shape[0], -1)))


@register_family("crepe", KIND)
def build_crepe() -> Example:
    """Build a CREPE."""
    return make_plain_example(Crepe(), torch.randn(2, 1024), axes=({0: BATCH},))


class ConvTasNet(nn.Module):
    """Conv-TasNet: a learned transform, dilated separable blocks with global norms, a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Conv1d(1, WIDTH, 16, 8, bias=False)
        self.norm, self.first = nn.GroupNorm(1, WIDTH, eps=1e-8), nn.Conv1d(WIDTH, 32, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv1d(32, WIDTH, 1), nn.PReLU(), nn.GroupNorm(1, WIDTH, eps=1e-8)),
                nn.Conv1d(WIDTH, WIDTH, 3, padding=2**i, dilation=2**i, groups=WIDTH),
                *(nn.PReLU(), nn.GroupNorm(1, WIDTH, eps=1e-8), nn.Conv1d(WIDTH, 32, 1)),
            )
            for i in range(4)
        )
        self.mask = nn.Sequential(nn.PReLU(), nn.Conv1d(32, 2 * WIDTH, 1), nn.ReLU())
        self.decode = nn.ConvTranspose1d(WIDTH, 1, 16, 8, bias=False)

    def forward(self, samples: Tensor) -> Tensor:
        """Return two speakers of [batch, 1, samples]."""
        coded = torch.relu(self.encode(samples))
        frames = self.first(self.norm(coded))
        for block in self.blocks:
            frames = frames + block(frames)
        masks = self.mask(frames).view(samples.shape[0], 2, WIDTH, -1)
        both = (masks * coded[:, None]).flatten(0, 1)
        return self.decode(both).view(samples.shape[0], 2, -1)


@register_family("conv-tasnet", KIND)
def build_conv_tasnet() -> Example:
    """Build a Conv-TasNet."""
    return make_plain_example(ConvTasNet(), torch.randn(2, 1, 1600), axes=({0: BATCH, 2: TIME},))
