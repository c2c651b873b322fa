"""Codecs and vocoders: samples from frames, and frames from samples."""

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
    WIDTH,
    Adapter,
    Axes,
    Example,
    Method,
    make_plain_example,
    register_family,
)
from .layers import CausalConv, InverseFourier, NeuralSource, Snake, apply_snake

KIND = "codecs and vocoders"
SAMPLES: tuple[Axes, ...] = ({0: BATCH, 2: TIME},)
CODES: tuple[Axes, ...] = ({0: BATCH, 2: TIME},)


def make_decode_example(
    model: nn.Module, books: int, *, entries: int = 32, **fixed: object
) -> Example:
    """Return an example of a codec's decode method over codes of [batch, books, time]."""
    codes = torch.randint(0, entries, (2, books, 20))
    return Example(Method(model, "decode", **fixed), (codes,), CODES)


@register_family("encodec-encoder", KIND)
def build_encodec_encoder() -> Example:
    """Build EnCodec's encoder."""
    return make_plain_example(_make_encodec().encoder, torch.randn(2, 1, 1600), axes=SAMPLES)


@register_family("encodec-decoder", KIND)
def build_encodec_decoder() -> Example:
    """Build EnCodec's decoder."""
    return make_plain_example(_make_encodec().decoder, torch.randn(2, WIDTH, 20), axes=SAMPLES)


def _make_encodec() -> nn.Module:
    config = hf.EncodecConfig(
        hidden_size=WIDTH, codebook_dim=WIDTH, num_filters=8, upsampling_ratios=[4, 4, 2, 2]
    )
    return hf.EncodecModel(config)


def _make_mimi() -> nn.Module:
    config = hf.MimiConfig(
        hidden_size=WIDTH,
        num_filters=8,
        upsampling_ratios=[4, 4, 2, 2],
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=16,
        intermediate_size=4 * WIDTH,
        codebook_size=32,
        codebook_dim=32,
        vector_quantization_hidden_dimension=32,
        num_quantizers=4,
        num_semantic_quantizers=1,
        upsample_groups=WIDTH,
    )
    return hf.MimiModel(config)


@register_family("mimi-encoder", KIND)
def build_mimi_encoder() -> Example:
    """Build Mimi's encoder up to its codes."""
    model = _make_mimi()
    return Example(Method(model, "encode"), (torch.randn(2, 1, 2560),), SAMPLES)


@register_family("mimi-decoder", KIND)
def build_mimi_decoder() -> Example:
    """Build Mimi's decoder."""
    return make_decode_example(_make_mimi(), 4)


def _make_dac() -> nn.Module:
    config = hf.DacConfig(
        encoder_hidden_size=8,
        downsampling_ratios=[2, 4],
        decoder_hidden_size=64,
        upsampling_ratios=[4, 2],
        n_codebooks=3,
        codebook_size=32,
        codebook_dim=8,
    )
    return hf.DacModel(config)


@register_family("dac-encoder", KIND)
def build_dac_encoder() -> Example:
    """Build DAC's encoder up to its quantized frames."""
    return Example(Method(_make_dac(), "encode"), (torch.randn(2, 1, 800),), SAMPLES)


class DacDecoder(nn.Module):
    """DAC's decoder from codes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _make_dac()

    def forward(self, codes: Tensor) -> Tensor:
        """Return samples."""
        return self.model.decode(audio_codes=codes).audio_values


@register_family("dac-decoder", KIND)
def build_dac_decoder() -> Example:
    """Build DAC's decoder."""
    return make_plain_example(DacDecoder(), torch.randint(0, 32, (2, 3, 20)), axes=CODES)


@register_family("xcodec-decoder", KIND)
def build_xcodec_decoder() -> Example:
    """Build X-Codec's acoustic decoder."""
    model = hf.DacModel(
        hf.DacConfig(
            encoder_hidden_size=8,
            downsampling_ratios=[2, 4],
            decoder_hidden_size=32,
            upsampling_ratios=[4, 2, 2],
            n_codebooks=2,
        )
    )
    width = model.config.hidden_size
    return make_plain_example(model.decoder, torch.randn(2, width, 20), axes=SAMPLES)


@register_family("wavtokenizer", KIND)
def build_wavtokenizer() -> Example:
    """Build WavTokenizer's decoder backbone, before its inverse Fourier transform."""
    from transformers.models.wavtokenizer import modeling_wavtokenizer as wav

    config = hf.WavTokenizerConfig(
        hidden_size=WIDTH,
        codebook_dim=WIDTH,
        codebook_size=64,
        decoder_hidden_size=WIDTH,
        decoder_intermediate_size=3 * WIDTH,
        decoder_num_layers=3,
        decoder_attention_num_groups=8,
    )
    backbone = wav.WavTokenizerVocosBackbone(config)
    inputs = (torch.randn(2, WIDTH, 20), torch.zeros(1, dtype=torch.int64))
    return make_plain_example(backbone, *inputs, axes=({0: BATCH, 2: TIME}, {}))


@register_family("univnet", KIND)
def build_univnet() -> Example:
    """Build UnivNet."""
    config = hf.UnivNetConfig(
        model_in_channels=16,
        model_hidden_channels=8,
        num_mel_bins=BANDS,
        resblock_kernel_sizes=[3, 3],
        resblock_stride_sizes=[4, 4],
        resblock_dilation_sizes=[[1, 3], [1, 3]],
        kernel_predictor_num_blocks=2,
        kernel_predictor_hidden_channels=16,
    )
    inputs = (torch.randn(2, 20, BANDS), torch.randn(2, 20, 16))
    names = ("input_features", "noise_sequence")
    return Example(Adapter(hf.UnivNetModel(config), names), inputs, ({0: BATCH, 1: TIME},) * 2)


@register_family("speecht5-hifigan", KIND)
def build_speecht5_hifigan() -> Example:
    """Build the HiFi-GAN of SpeechT5 and FastSpeech 2 in transformers."""
    config = hf.SpeechT5HifiGanConfig(
        model_in_dim=BANDS,
        upsample_initial_channel=32,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
    )
    adapted = Adapter(hf.SpeechT5HifiGan(config), ("spectrogram",))
    return Example(adapted, (torch.randn(2, 20, BANDS),), ({0: BATCH, 1: TIME},))


class ResidualUnit(nn.Module):
    """A dilated convolution between activations, then one of a single frame."""

    def __init__(self, channels: int, dilation: int, *, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Snake(channels),
            nn.Conv1d(
                *(channels, channels, 7),
                dilation=dilation,
                padding=3 * dilation,
                groups=groups,
            ),
            Snake(channels),
            nn.Conv1d(channels, channels, 1),
        )

    def forward(self, samples: Tensor) -> Tensor:
        """Add what the convolutions compute."""
        return samples + self.body(samples)


class NoiseBlock(nn.Module):
    """SNAC's noise, scaled by a product with the samples; fixed here, so that runs agree."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Conv1d(channels, channels, 1, bias=False)

    def forward(self, samples: Tensor) -> Tensor:
        """Add noise."""
        noise = torch.ones_like(samples[:, :1])
        return samples + noise * self.scale(samples)


class WindowAttention(nn.Module):
    """SNAC's attention in windows of a few frames."""

    def __init__(self, channels: int, window: int = 4) -> None:
        super().__init__()
        self.norm, self.window = nn.LayerNorm(channels), window
        self.project = nn.Linear(channels, 3 * channels, bias=False)
        self.out = nn.Linear(channels, channels, bias=False)
        self.register_buffer("steps", 10000 ** (-torch.arange(0, 16, 2) / 16))

    def forward(self, frames: Tensor) -> Tensor:
        """Attend inside each window of [batch, channels, time]."""
        batch, channels, time = frames.shape
        windows = time // self.window
        hidden = self.norm(frames.transpose(1, 2))
        parts = self.project(hidden).view(batch * windows, self.window, 3, -1, 16)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        query, key = self.rotate_heads(query), self.rotate_heads(key)
        mixed = fn.scaled_dot_product_attention(query, key, value)
        mixed = mixed.transpose(1, 2).reshape(batch, time, channels)
        return self.out(mixed).transpose(1, 2) + frames

    def rotate_heads(self, heads: Tensor) -> Tensor:
        """Rotate pairs of features by the place in the window."""
        angles = torch.arange(self.window)[:, None] * self.steps[None]
        angles = torch.cat([angles, angles], dim=-1)
        first, second = heads.chunk(2, dim=-1)
        return heads * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()


class SnacDecoder(nn.Module):
    """SNAC: codes at three rates, attention in windows, upsampling blocks with noise."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(32, 8) for _ in range(3))
        self.outs = nn.ModuleList(nn.Conv1d(8, WIDTH, 1) for _ in range(3))
        self.first = nn.Sequential(
            nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH), nn.Conv1d(WIDTH, WIDTH, 1)
        )
        self.attend = WindowAttention(WIDTH)
        blocks = list[nn.Module]()
        for channels in (WIDTH, WIDTH // 2):
            half = channels // 2
            blocks += [Snake(channels), nn.ConvTranspose1d(channels, half, 8, 4, 2)]
            blocks += [NoiseBlock(half), *(ResidualUnit(half, d, groups=half) for d in (1, 3, 9))]
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(Snake(WIDTH // 4), nn.Conv1d(WIDTH // 4, 1, 7, padding=3))

    def forward(self, coarse: Tensor, middle: Tensor, fine: Tensor) -> Tensor:
        """Return samples."""
        frames = torch.zeros(1)
        for i, codes in enumerate((coarse, middle, fine)):
            book = self.outs[i](self.books[i](codes).transpose(1, 2))
            frames = frames + book.repeat_interleave(2 ** (2 - i), dim=2)
        return torch.tanh(self.last(self.blocks(self.attend(self.first(frames)))))


@register_family("snac-decoder", KIND)
def build_snac_decoder() -> Example:
    """Build SNAC's decoder."""
    inputs = tuple(torch.randint(0, 32, (2, 4 * x)) for x in (1, 2, 4))
    axes = ({0: BATCH, 1: "coarse"}, {0: BATCH, 1: "middle"}, {0: BATCH, 1: "fine"})
    return make_plain_example(SnacDecoder(), *inputs, axes=axes)


class Generator(nn.Module):
    """HiFi-GAN: upsampling convolutions, each followed by the mean of residual blocks.

    Args:
        activation: Makes an activation of so many channels; BigVGAN's are periodic.
    """

    def __init__(self, activation: type[nn.Module] | None = None, bands: int = BANDS) -> None:
        super().__init__()
        self.first = nn.Conv1d(bands, WIDTH, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for channels in (WIDTH, WIDTH // 2):
            half = channels // 2
            self.ups.append(nn.ConvTranspose1d(channels, half, 8, 4, 2))
            for kernel in (3, 7):
                self.blocks.append(GeneratorBlock(half, kernel, activation))
        self.last = nn.Conv1d(WIDTH // 4, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        """Return samples of [batch, bands, time]."""
        frames = self.first(mel)
        for i, up in enumerate(self.ups):
            frames = up(fn.leaky_relu(frames, 0.1))
            frames = (self.blocks[2 * i](frames) + self.blocks[2 * i + 1](frames)) / 2
        return torch.tanh(self.last(fn.leaky_relu(frames)))


class GeneratorBlock(nn.Module):
    """Three pairs of convolutions, the first of each dilated."""

    def __init__(self, channels: int, kernel: int, activation: type[nn.Module] | None) -> None:
        super().__init__()

        def make_activation() -> nn.Module:
            return nn.LeakyReLU(0.1) if activation is None else activation(channels)

        def make_convolution(dilation: int) -> nn.Module:
            padding = dilation * (kernel - 1) // 2
            return nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=padding)

        self.pairs = nn.ModuleList(
            nn.Sequential(
                make_activation(), make_convolution(d), make_activation(), make_convolution(1)
            )
            for d in (1, 3, 5)
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Add what each pair computes."""
        for pair in self.pairs:
            frames = frames + pair(frames)
        return frames


@register_family("hifigan", KIND)
def build_hifigan() -> Example:
    """Build a HiFi-GAN."""
    return make_plain_example(Generator(), torch.randn(2, BANDS, 20), axes=SAMPLES)


class AntiAliased(nn.Module):
    """BigVGAN's activation: upsampled, periodic, low-passed, downsampled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha, self.beta = (nn.Parameter(torch.randn(channels)) for _ in range(2))
        window = torch.hann_window(12)[None, None]
        self.register_buffer("low", (window / window.sum()).repeat(channels, 1, 1))
        self.channels = channels

    def forward(self, frames: Tensor) -> Tensor:
        """Apply the activation at twice the rate."""
        wide = fn.pad(frames, (5, 5), mode="replicate")
        wide = 2 * fn.conv_transpose1d(wide, self.low, stride=2, groups=self.channels)
        wide = wide[..., 15:-15]
        alpha, beta = self.alpha[None, :, None].exp(), self.beta[None, :, None].exp()
        wide = apply_snake(wide, alpha, beta)
        wide = fn.pad(wide, (5, 6), mode="replicate")
        return fn.conv1d(wide, self.low, stride=2, groups=self.channels)


@register_family("bigvgan", KIND)
def build_bigvgan() -> Example:
    """Build a BigVGAN."""
    return make_plain_example(Generator(AntiAliased), torch.randn(2, BANDS, 20), axes=SAMPLES)


class MelGan(nn.Module):
    """MelGAN: reflecting pads, upsampling, residual stacks with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ReflectionPad1d(3), nn.Conv1d(BANDS, WIDTH, 7)]
        for channels in (WIDTH, WIDTH // 2):
            layers += [nn.LeakyReLU(0.2), nn.ConvTranspose1d(channels, channels // 2, 8, 4, 2)]
            layers += [Stack(channels // 2, 3**i) for i in range(3)]
        layers += [nn.LeakyReLU(0.2), nn.ReflectionPad1d(3), nn.Conv1d(WIDTH // 4, 1, 7)]
        self.layers = nn.Sequential(*layers, nn.Tanh())

    def forward(self, mel: Tensor) -> Tensor:
        """Return samples."""
        return self.layers(mel)


class Stack(nn.Module):
    """One residual stack of MelGAN."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.LeakyReLU(0.2),
            nn.ReflectionPad1d(dilation),
            nn.Conv1d(channels, channels, 3, dilation=dilation),
            nn.LeakyReLU(0.2),
            nn.Conv1d(channels, channels, 1),
        )
        self.shortcut = nn.Conv1d(channels, channels, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """Add the shortcut."""
        return self.shortcut(frames) + self.body(frames)


@register_family("melgan", KIND)
def build_melgan() -> Example:
    """Build a MelGAN."""
    return make_plain_example(MelGan(), torch.randn(2, BANDS, 20), axes=SAMPLES)


class ConvNextBlock(nn.Module):
    """A depthwise convolution, a norm, two products, a scale, and the residual."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.deep = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, frames: Tensor) -> Tensor:
        """Run the block over [batch, channels, time]."""
        hidden = self.norm(self.deep(frames).transpose(1, 2))
        hidden = self.scale * self.narrow(fn.gelu(self.wide(hidden)))
        return frames + hidden.transpose(1, 2)


class Vocos(nn.Module):
    """Vocos: ConvNeXt blocks at the rate of frames, then an inverse Fourier transform."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(BANDS, WIDTH, 7, padding=3)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.blocks = nn.Sequential(*(ConvNextBlock() for _ in range(4)))
        self.out, self.inverse = nn.Linear(WIDTH, 2 * 33), InverseFourier(64, 16)

    def forward(self, mel: Tensor) -> Tensor:
        """Return samples."""
        frames = self.norms[0](self.first(mel).transpose(1, 2)).transpose(1, 2)
        frames = self.norms[1](self.blocks(frames).transpose(1, 2))
        magnitude, phase = self.out(frames).transpose(1, 2).chunk(2, dim=1)
        return self.inverse(torch.exp(magnitude).clip(max=1e2), phase)


@register_family("vocos", KIND)
def build_vocos() -> Example:
    """Build a Vocos."""
    return make_plain_example(Vocos(), torch.randn(2, BANDS, 20), axes=SAMPLES)


class SnakeBeta(nn.Module):
    """A periodic activation with a frequency and a magnitude of each channel, as logarithms."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha, self.beta = (nn.Parameter(torch.zeros(channels)) for _ in range(2))

    def forward(self, frames: Tensor) -> Tensor:
        """Apply the activation."""
        alpha, beta = self.alpha[None, :, None].exp(), self.beta[None, :, None].exp()
        return apply_snake(frames, alpha, beta)


def make_codec_transformer() -> nn.Module:
    """Return a few causal layers with rotary positions, root-mean-square norms, layer scales."""
    config = hf.Qwen3Config(
        vocab_size=8,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=16,
        intermediate_size=3 * WIDTH,
    )
    return Adapter(hf.Qwen3Model(config), ("inputs_embeds",), full=True, use_cache=False)


class QwenCodecDecoder(nn.Module):
    """The decoder of Qwen3-TTS' codec: books, a transformer, ConvNeXt upsampling, a vocoder."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(32, 16) for _ in range(4))
        self.outs = nn.ModuleList(nn.Conv1d(16, WIDTH, 1, bias=False) for _ in range(2))
        self.first, self.transformer = CausalConv(WIDTH, WIDTH, 3), make_codec_transformer()
        self.ups = nn.ModuleList(nn.ConvTranspose1d(WIDTH, WIDTH, 2, 2) for _ in range(2))
        self.nexts = nn.ModuleList(ConvNextBlock() for _ in range(2))
        self.second = CausalConv(WIDTH, WIDTH, 7)
        blocks = list[nn.Module]()
        for channels in (WIDTH, WIDTH // 2):
            half = channels // 2
            blocks += [SnakeBeta(channels), nn.ConvTranspose1d(channels, half, 8, 4, 2)]
            blocks += [CausalUnit(half, d) for d in (1, 3, 9)]
        self.blocks = nn.Sequential(*blocks, SnakeBeta(WIDTH // 4), CausalConv(WIDTH // 4, 1, 7))

    def forward(self, codes: Tensor) -> Tensor:
        """Return samples of codes of [batch, books, time]."""
        parts = [book(codes[:, i]) for i, book in enumerate(self.books)]
        first = self.outs[0](parts[0].transpose(1, 2))
        rest = self.outs[1]((parts[1] + parts[2] + parts[3]).transpose(1, 2))
        frames = self.first(first + rest).transpose(1, 2)
        frames = self.transformer(frames).transpose(1, 2)
        for up, block in zip(self.ups, self.nexts, strict=True):
            frames = block(up(frames))
        return self.blocks(self.second(frames)).clamp(-1, 1)


class CausalUnit(nn.Module):
    """A causal residual unit with two periodic activations."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            SnakeBeta(channels),
            CausalConv(channels, channels, 7, dilation=dilation),
            SnakeBeta(channels),
            CausalConv(channels, channels, 1),
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Add what the convolutions compute."""
        return frames + self.body(frames)


@register_family("qwen3-tts-codec", KIND)
def build_qwen3_tts_codec() -> Example:
    """Build the decoder of Qwen3-TTS' codec."""
    return make_plain_example(QwenCodecDecoder(), torch.randint(0, 32, (2, 4, 20)), axes=CODES)


class HiftGenerator(nn.Module):
    """CosyVoice's vocoder: a source of harmonics beside mel frames, then an inverse Fourier."""

    def __init__(self) -> None:
        super().__init__()
        self.pitch = nn.Sequential(
            nn.Conv1d(BANDS, WIDTH, 3, padding=1), nn.ELU(), nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        )
        self.to_pitch, self.source = nn.Linear(WIDTH, 1), NeuralSource(16, 64)
        self.first = nn.Conv1d(BANDS, WIDTH, 7, padding=3)
        self.downs = nn.ModuleList([nn.Conv1d(1, 32, 32, 16, 8), nn.Conv1d(1, 16, 8, 4, 2)])
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(x, x // 2, 8, 4, 2) for x in (WIDTH, WIDTH // 2)
        )
        self.sources = nn.ModuleList(ResidualUnit(x, 1) for x in (32, 16))
        self.blocks = nn.ModuleList(ResidualUnit(x, d) for x in (32, 16) for d in (1, 3))
        self.last, self.inverse = nn.Conv1d(16, 18, 7, padding=3), InverseFourier(16, 4)

    def forward(self, mel: Tensor) -> Tensor:
        """Return samples."""
        pitch = self.to_pitch(fn.elu(self.pitch(mel)).transpose(1, 2)).squeeze(-1).abs()
        source, frames = self.source(pitch), self.first(mel)
        for i, up in enumerate(self.ups):
            frames = up(fn.leaky_relu(frames, 0.1))
            frames = frames + self.sources[i](self.downs[i](source))
            frames = (self.blocks[2 * i](frames) + self.blocks[2 * i + 1](frames)) / 2
        magnitude, phase = self.last(fn.leaky_relu(frames)).chunk(2, dim=1)
        return self.inverse(torch.exp(magnitude), torch.sin(phase))


@register_family("cosyvoice-hift", KIND)
def build_cosyvoice_hift() -> Example:
    """Build CosyVoice's vocoder."""
    return make_plain_example(HiftGenerator(), torch.randn(2, BANDS, 20), axes=SAMPLES)


class SpeechTokenizer(nn.Module):
    """CosyVoice's speech tokenizer: convolutions, attention, finite scalar quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            *(nn.Conv1d(BANDS, WIDTH, 3, 2, 1), nn.GELU()),
            *(nn.Conv1d(WIDTH, WIDTH, 3, 2, 1), nn.GELU()),
        )
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.project = nn.Linear(WIDTH, 8)
        self.register_buffer("powers", 3.0 ** torch.arange(8))

    def forward(self, mel: Tensor) -> Tensor:
        """Return the ids of frames."""
        hidden = self.encoder(self.convolve(mel).transpose(1, 2))
        levels = (torch.tanh(self.project(hidden)) * 0.999).round() + 1
        return (levels * self.powers).sum(dim=-1).to(torch.int64)


@register_family("cosyvoice-tokenizer", KIND)
def build_cosyvoice_tokenizer() -> Example:
    """Build CosyVoice's speech tokenizer."""
    return make_plain_example(SpeechTokenizer(), torch.randn(2, BANDS, 40), axes=SAMPLES)
