"""Speech synthesis: text encoders, durations, flows, decoders and talkers."""

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
    AdaptedStep,
    Adapter,
    Example,
    make_padding_mask,
    make_plain_example,
    make_text_example,
    make_token_ids,
    register_family,
)
from .layers import (
    CausalConv,
    InverseFourier,
    NeuralSource,
    SelfAttention,
    Snake,
    make_feed_forward,
)

KIND = "speech synthesis"
TALKER = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": WIDTH // HEADS,
    "intermediate_size": 3 * WIDTH,
    "pad_token_id": 1,
}


def _make_vits_config() -> hf.VitsConfig:
    return hf.VitsConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        ffn_dim=4 * WIDTH,
        flow_size=WIDTH,
        spectrogram_bins=33,
        upsample_initial_channel=32,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2,
        posterior_encoder_num_wavenet_layers=2,
        duration_predictor_filter_channels=32,
        wavenet_dilation_rate=1,
    )


@register_family("vits", KIND)
def build_vits() -> Example:
    """Build a whole VITS (MMS-TTS, Piper) without its random numbers."""
    model = hf.VitsModel(_make_vits_config())
    model.noise_scale, model.noise_scale_duration = 0.0, 0.0
    return make_text_example(model, "waveform")


@register_family("vits-text-encoder", KIND)
def build_vits_text_encoder() -> Example:
    """Build VITS' text encoder."""
    from transformers.models.vits.modeling_vits import VitsTextEncoder

    mask = make_padding_mask()
    adapted = Adapter(VitsTextEncoder(_make_vits_config()), ("input_ids", "padding_mask"))
    inputs = (make_token_ids(), mask[..., None].float())
    return Example(adapted, inputs, ({0: BATCH, 1: TIME},) * 2)


@register_family("vits-flow", KIND)
def build_vits_flow() -> Example:
    """Build VITS' flow in reverse, over frames that are masked."""
    inputs = (torch.randn(2, WIDTH, 20), make_padding_mask(20, 5)[:, None].float())
    adapted = Adapter(hf.VitsModel(_make_vits_config()).flow, (), reverse=True)
    return Example(adapted, inputs, ({0: BATCH, 2: TIME},) * 2)


@register_family("vits-decoder", KIND)
def build_vits_decoder() -> Example:
    """Build VITS' vocoder."""
    decoder = hf.VitsModel(_make_vits_config()).decoder
    return make_plain_example(decoder, torch.randn(2, WIDTH, 20), axes=({0: BATCH, 2: TIME},))


def _make_fastspeech() -> nn.Module:
    config = hf.FastSpeech2ConformerConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_mel_bins=BANDS,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_num_attention_heads=2,
        decoder_num_attention_heads=2,
        encoder_linear_units=4 * WIDTH,
        decoder_linear_units=4 * WIDTH,
        duration_predictor_channels=32,
        energy_predictor_channels=32,
        pitch_predictor_channels=32,
        speech_decoder_postnet_units=32,
    )
    return hf.FastSpeech2ConformerModel(config)


@register_family("fastspeech2-conformer", KIND)
def build_fastspeech2_conformer() -> Example:
    """Build the encoder of a FastSpeech 2 Conformer."""
    encoder = _make_fastspeech().encoder
    inputs = (make_token_ids(), make_padding_mask()[:, None].bool())
    axes = ({0: BATCH, 1: TIME}, {0: BATCH, 2: TIME})
    return make_plain_example(encoder, *inputs, axes=axes)


@register_family("fastspeech2-decoder", KIND)
def build_fastspeech2_decoder() -> Example:
    """Build the decoder of a FastSpeech 2 Conformer."""
    return make_plain_example(_make_fastspeech().decoder, torch.randn(2, 30, WIDTH))


@register_family("speecht5-decoder", KIND)
def build_speecht5_decoder() -> Example:
    """Build SpeechT5's decoder of mel frames."""
    from transformers.models.speecht5.modeling_speecht5 import SpeechT5DecoderWithSpeechPrenet

    config = hf.SpeechT5Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        decoder_layers=LAYERS,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=4 * WIDTH,
        num_mel_bins=BANDS,
        speech_decoder_prenet_units=32,
        speaker_embedding_dim=16,
        max_speech_positions=200,
        speech_decoder_prenet_dropout=0.0,
    )
    decoder = SpeechT5DecoderWithSpeechPrenet(config)
    names = ("input_values", "encoder_hidden_states", "speaker_embeddings")
    inputs = (torch.randn(2, 9, BANDS), torch.randn(2, 12, WIDTH), torch.randn(2, 16))
    axes = ({0: BATCH, 1: "written"}, {0: BATCH, 1: TIME}, {0: BATCH})
    return Example(Adapter(decoder, names, use_cache=False), inputs, axes)


@register_family("bark-fine", KIND)
def build_bark_fine() -> Example:
    """Build Bark's fine model, for its third book."""
    config = hf.BarkFineConfig(
        input_vocab_size=40,
        output_vocab_size=40,
        hidden_size=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        block_size=64,
        n_codes_total=4,
        n_codes_given=1,
    )
    adapted = Adapter(hf.BarkFineModel(config), ("input_ids",), ("logits",), codebook_idx=2)
    return Example(adapted, (torch.randint(0, 40, (2, 16, 4)),), ({0: BATCH, 1: TIME},))


@register_family("bark-semantic", KIND)
def build_bark_semantic() -> Example:
    """Build Bark's semantic model without caches."""
    config = hf.BarkSemanticConfig(
        input_vocab_size=VOCABULARY,
        output_vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        block_size=64,
    )
    return make_text_example(hf.BarkSemanticModel(config), "logits", mask=False, use_cache=False)


@register_family("musicgen-decoder", KIND)
def build_musicgen_decoder() -> Example:
    """Build MusicGen's decoder over four books."""
    from transformers.models.musicgen.modeling_musicgen import MusicgenForCausalLM

    config = hf.MusicgenDecoderConfig(
        vocab_size=40,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        ffn_dim=4 * WIDTH,
        num_codebooks=4,
        max_position_embeddings=64,
        pad_token_id=39,
        bos_token_id=39,
    )
    names = ("input_ids", "encoder_hidden_states", "encoder_attention_mask")
    inputs = (torch.randint(0, 40, (8, 9)), torch.randn(2, 12, WIDTH), make_padding_mask())
    axes = ({1: "written"}, {1: TIME}, {1: TIME})
    adapted = Adapter(MusicgenForCausalLM(config), names, ("logits",), use_cache=False)
    return Example(adapted, inputs, axes)


@register_family("dia-encoder", KIND)
def build_dia_encoder() -> Example:
    """Build Dia's text encoder."""
    from transformers.models.dia.modeling_dia import DiaEncoder

    sizes = TALKER | {"num_key_value_heads": HEADS}
    sizes.pop("pad_token_id")
    return make_text_example(DiaEncoder(hf.DiaEncoderConfig(**sizes)))


@register_family("dia-decoder", KIND)
def build_dia_decoder() -> Example:
    """Build Dia's decoder over books, with attention to the text."""
    from transformers.models.dia.modeling_dia import DiaDecoder

    sizes = TALKER | {"cross_num_attention_heads": HEADS, "cross_num_key_value_heads": HEADS}
    sizes |= {"cross_head_dim": 16, "cross_hidden_size": WIDTH, "num_channels": 4}
    config = hf.DiaDecoderConfig(**sizes)
    names = ("input_ids", "position_ids", "encoder_hidden_states")
    inputs = (torch.randint(0, 100, (2, 9, 4)), torch.arange(9)[None].repeat(2, 1))
    axes = ({0: BATCH, 1: "written"}, {0: BATCH, 1: "written"}, {0: BATCH, 1: TIME})
    adapted = Adapter(DiaDecoder(config), names, use_cache=False)
    return Example(adapted, (*inputs, torch.randn(2, 12, WIDTH)), axes)


@register_family("csm-backbone", KIND)
def build_csm_backbone() -> Example:
    """Build CSM's backbone over embedded frames."""
    config = hf.LlamaConfig(**TALKER)
    names = ("inputs_embeds", "attention_mask")
    inputs = (torch.randn(2, 12, WIDTH), make_padding_mask())
    adapted = Adapter(hf.LlamaModel(config), names, use_cache=False)
    return Example(adapted, inputs, ({0: BATCH, 1: TIME},) * 2)


@register_family("csm-depth", KIND)
def build_csm_depth() -> Example:
    """Build CSM's depth decoder, which writes the books of a frame."""
    from transformers.models.csm.modeling_csm import CsmDepthDecoderModel

    config = hf.CsmDepthDecoderConfig(
        **TALKER | {"vocab_size": 40}, num_codebooks=4, backbone_hidden_size=WIDTH
    )
    names = ("input_ids", "backbone_last_hidden_state")
    inputs = (torch.randint(0, 40, (2, 4)), torch.randn(2, WIDTH))
    adapted = Adapter(CsmDepthDecoderModel(config), names, full=True, use_cache=False)
    return Example(adapted, inputs, ({0: BATCH}, {0: BATCH}))


@register_family("qwen3-tts-talker", KIND)
def build_qwen3_tts_talker() -> Example:
    """Build Qwen3-TTS' talker: a Qwen3 over sums of text and codes, with a head."""
    return make_plain_example(Talker(), torch.randn(2, 12, WIDTH), torch.randint(0, 32, (2, 12, 4)))


class Talker(nn.Module):
    """A talker: embedded text plus embedded books, a decoder, the scores of the next code."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(32, WIDTH) for _ in range(4))
        self.project = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        model = hf.Qwen3Model(hf.Qwen3Config(**TALKER))
        self.model = Adapter(model, ("inputs_embeds",), full=True, use_cache=False)
        self.head = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, text: Tensor, codes: Tensor) -> Tensor:
        """Return the scores of the next code."""
        frames = self.project(text)
        for i, book in enumerate(self.books):
            frames = frames + book(codes[..., i])
        return self.head(self.model(frames))


@register_family("clvp-speech", KIND)
def build_clvp_speech() -> Example:
    """Build CLVP's encoder, which ranks Tortoise's candidates."""
    from transformers.models.clvp.modeling_clvp import ClvpEncoder

    config = hf.ClvpEncoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        projection_dim=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
    )
    return make_text_example(ClvpEncoder(config))


@register_family("kyutai-stt", KIND)
def build_kyutai_stt() -> Example:
    """Build Kyutai's decoder over text and books."""
    config = hf.KyutaiSpeechToTextConfig(
        vocab_size=VOCABULARY,
        codebook_vocab_size=33,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_codebooks=4,
        ffn_dim=4 * WIDTH,
        sliding_window=20,
        audio_pad_token_id=32,
    )
    from transformers.models.kyutai_speech_to_text.modeling_kyutai_speech_to_text import (
        KyutaiSpeechToTextModel,
    )

    model = Adapter(KyutaiSpeechToTextModel(config), ("input_ids",), full=True, use_cache=False)
    return Example(model, (torch.randint(0, 30, (2, 12, 5)),), ({0: BATCH, 1: TIME},))


# What follows is written down anew, after the papers and the code that people export.


class AdaptiveNorm(nn.Module):
    """StyleTTS 2's AdaIN: an instance norm whose scale and bias come from a style."""

    def __init__(self, channels: int, style: int = 32) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(channels, affine=True)
        self.style = nn.Linear(style, 2 * channels)

    def forward(self, frames: Tensor, style: Tensor) -> Tensor:
        """Normalize [batch, channels, time]."""
        gamma, beta = torch.chunk(self.style(style)[..., None], 2, dim=1)
        return (1 + gamma) * self.norm(frames) + beta


class AdaptiveBlock(nn.Module):
    """Kokoro's AdainResBlk1d: two conditioned norms, two convolutions, a shortcut."""

    def __init__(self, inputs: int, outputs: int, *, upsample: bool = False) -> None:
        super().__init__()
        self.upsample = upsample
        self.pool = (
            nn.ConvTranspose1d(inputs, inputs, 3, 2, 1, 1, groups=inputs)
            if upsample
            else nn.Identity()
        )
        self.norms = nn.ModuleList([AdaptiveNorm(inputs), AdaptiveNorm(outputs)])
        self.convolves = nn.ModuleList(
            [nn.Conv1d(inputs, outputs, 3, padding=1), nn.Conv1d(outputs, outputs, 3, padding=1)]
        )
        self.shortcut = nn.Conv1d(inputs, outputs, 1, bias=False)

    def forward(self, frames: Tensor, style: Tensor) -> Tensor:
        """Run the block."""
        hidden = fn.leaky_relu(self.norms[0](frames, style), 0.2)
        hidden = self.convolves[0](self.pool(hidden))
        hidden = self.convolves[1](fn.leaky_relu(self.norms[1](hidden, style), 0.2))
        short = fn.interpolate(frames, scale_factor=2.0) if self.upsample else frames
        return (hidden + self.shortcut(short)) * 2**-0.5


class KokoroGeneratorBlock(nn.Module):
    """Kokoro's AdaINResBlock1: conditioned norms, periodic activations, dilated convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.firsts = nn.ModuleList(
            nn.Conv1d(channels, channels, 3, dilation=d, padding=d) for d in (1, 3, 5)
        )
        self.seconds = nn.ModuleList(nn.Conv1d(channels, channels, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(AdaptiveNorm(channels) for _ in range(6))
        self.snakes = nn.ModuleList(Snake(channels) for _ in range(6))

    def forward(self, frames: Tensor, style: Tensor) -> Tensor:
        """Run the block."""
        for i, (first, second) in enumerate(zip(self.firsts, self.seconds, strict=True)):
            hidden = first(self.snakes[2 * i](self.norms[2 * i](frames, style)))
            hidden = self.snakes[2 * i + 1](self.norms[2 * i + 1](hidden, style))
            frames = frames + second(hidden)
        return frames


class KokoroGenerator(nn.Module):
    """Kokoro's iSTFTNet: a source of harmonics, upsampling, an inverse Fourier transform."""

    def __init__(self) -> None:
        super().__init__()
        self.source = NeuralSource(16, 64)
        self.ups = nn.ModuleList(nn.ConvTranspose1d(x, x // 2, 8, 4, 2) for x in (WIDTH, 32))
        self.downs = nn.ModuleList([nn.Conv1d(1, 32, 32, 16, 8), nn.Conv1d(1, 16, 8, 4, 2)])
        self.sources = nn.ModuleList(KokoroGeneratorBlock(x) for x in (32, 16))
        self.blocks = nn.ModuleList(KokoroGeneratorBlock(x) for x in (32, 32, 16, 16))
        self.last, self.inverse = nn.Conv1d(16, 18, 7, padding=3), InverseFourier(16, 4)

    def forward(self, frames: Tensor, style: Tensor, pitch: Tensor) -> Tensor:
        """Return samples."""
        source = self.source(pitch)
        for i, up in enumerate(self.ups):
            frames = up(fn.leaky_relu(frames, 0.1))
            frames = frames + self.sources[i](self.downs[i](source), style)
            both = self.blocks[2 * i](frames, style) + self.blocks[2 * i + 1](frames, style)
            frames = both / 2
        magnitude, phase = self.last(fn.leaky_relu(frames)).chunk(2, dim=1)
        return self.inverse(torch.exp(magnitude), torch.sin(phase))


class KokoroDecoder(nn.Module):
    """Kokoro's decoder: aligned text, pitch and energy through conditioned blocks, then samples."""

    def __init__(self) -> None:
        super().__init__()
        self.pitch = nn.Conv1d(1, 1, 3, padding=1)
        self.energy = nn.Conv1d(1, 1, 3, padding=1)
        self.text = nn.Conv1d(WIDTH, 16, 1)
        self.first = AdaptiveBlock(WIDTH + 2, WIDTH)
        self.blocks = nn.ModuleList(
            [AdaptiveBlock(WIDTH + 18, WIDTH), AdaptiveBlock(WIDTH + 18, WIDTH)]
        )
        self.generator = KokoroGenerator()

    def forward(self, text: Tensor, pitch: Tensor, energy: Tensor, style: Tensor) -> Tensor:
        """Return samples of [batch, channels, time]."""
        curves = [self.pitch(pitch[:, None]), self.energy(energy[:, None])]
        frames = self.first(torch.cat([text, *curves], dim=1), style)
        short = self.text(text)
        for block in self.blocks:
            frames = block(torch.cat([frames, short, *curves], dim=1), style)
        return self.generator(frames, style, pitch)


@register_family("kokoro-decoder", KIND)
def build_kokoro_decoder() -> Example:
    """Build Kokoro's decoder and vocoder."""
    inputs = (torch.randn(2, WIDTH, 20), torch.rand(2, 20), torch.rand(2, 20), torch.randn(2, 32))
    axes = ({0: BATCH, 2: TIME}, {0: BATCH, 1: TIME}, {0: BATCH, 1: TIME}, {0: BATCH})
    return make_plain_example(KokoroDecoder(), *inputs, axes=axes)


@register_family("kokoro-plbert", KIND)
def build_kokoro_plbert() -> Example:
    """Build Kokoro's ALBERT over phonemes, with the product behind it."""
    return make_plain_example(PhonemeBert(), make_token_ids(), make_padding_mask())


class PhonemeBert(nn.Module):
    """PL-BERT: an ALBERT over phonemes and a product."""

    def __init__(self) -> None:
        super().__init__()
        config = hf.AlbertConfig(
            vocab_size=VOCABULARY,
            embedding_size=32,
            hidden_size=WIDTH,
            num_hidden_layers=3,
            num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=128,
        )
        self.bert, self.out = hf.AlbertModel(config), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return [batch, channels, time]."""
        return self.out(self.bert(ids, attention_mask=mask).last_hidden_state).transpose(-1, -2)


class ChannelNorm(nn.Module):
    """A layer norm over the channels of [batch, channels, time]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta = (
            nn.Parameter(torch.rand(channels)),
            nn.Parameter(torch.rand(channels)),
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Normalize."""
        rows = fn.layer_norm(frames.transpose(1, -1), self.gamma.shape, self.gamma, self.beta)
        return rows.transpose(1, -1)


class StyleTextEncoder(nn.Module):
    """StyleTTS 2's text encoder: convolutions with norms, masks, a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(WIDTH, WIDTH, 5, padding=2), ChannelNorm(WIDTH), nn.LeakyReLU(0.2)
            )
            for _ in range(3)
        )
        self.memory = nn.LSTM(WIDTH, WIDTH // 2, 1, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return [batch, channels, time]."""
        hidden, padded = self.embed(ids).transpose(1, 2), (mask == 0)[:, None]
        hidden = hidden.masked_fill(padded, 0.0)
        for layer in self.layers:
            hidden = layer(hidden).masked_fill(padded, 0.0)
        hidden, _ = self.memory(hidden.transpose(1, 2))
        return hidden.transpose(-1, -2).masked_fill(padded, 0.0)


@register_family("styletts2-text-encoder", KIND)
def build_styletts2_text_encoder() -> Example:
    """Build StyleTTS 2's text encoder."""
    return make_plain_example(StyleTextEncoder(), make_token_ids(), make_padding_mask())


class AdaptiveLayerNorm(nn.Module):
    """A layer norm whose scale and bias come from a style."""

    def __init__(self) -> None:
        super().__init__()
        self.style = nn.Linear(32, 2 * WIDTH)

    def forward(self, rows: Tensor, style: Tensor) -> Tensor:
        """Normalize [batch, time, features]."""
        gamma, beta = torch.chunk(self.style(style)[:, None], 2, dim=-1)
        return (1 + gamma) * fn.layer_norm(rows, (WIDTH,)) + beta


class ProsodyPredictor(nn.Module):
    """StyleTTS 2's prosody: LSTMs between conditioned norms, durations, pitch, energy."""

    def __init__(self) -> None:
        super().__init__()
        self.memories = nn.ModuleList(
            nn.LSTM(WIDTH + 32, WIDTH // 2, batch_first=True, bidirectional=True) for _ in range(2)
        )
        self.norms = nn.ModuleList(AdaptiveLayerNorm() for _ in range(2))
        self.last = nn.LSTM(WIDTH + 32, WIDTH // 2, batch_first=True, bidirectional=True)
        self.duration = nn.Linear(WIDTH, 50)
        self.pitch = nn.ModuleList([AdaptiveBlock(WIDTH, WIDTH) for _ in range(2)])
        self.energy = nn.ModuleList([AdaptiveBlock(WIDTH, WIDTH) for _ in range(2)])
        self.outs = nn.ModuleList(nn.Conv1d(WIDTH, 1, 1) for _ in range(2))

    def forward(self, text: Tensor, style: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Return durations, pitch and energy of [batch, time, features]."""
        padded = (mask == 0)[..., None]
        wide = style[:, None].expand(-1, text.shape[1], -1)
        hidden = torch.cat([text, wide], dim=-1).masked_fill(padded, 0.0)
        for memory, norm in zip(self.memories, self.norms, strict=True):
            hidden = norm(memory(hidden)[0], style)
            hidden = torch.cat([hidden, wide], dim=-1).masked_fill(padded, 0.0)
        hidden, _ = self.last(hidden)
        duration = torch.sigmoid(self.duration(hidden)).sum(dim=-1)
        pitch = energy = hidden.transpose(1, 2)
        for i in range(2):
            pitch, energy = self.pitch[i](pitch, style), self.energy[i](energy, style)
        return duration, self.outs[0](pitch).squeeze(1), self.outs[1](energy).squeeze(1)


@register_family("styletts2-prosody", KIND)
def build_styletts2_prosody() -> Example:
    """Build StyleTTS 2's (and Kokoro's) predictor of prosody."""
    inputs = (torch.randn(2, 12, WIDTH), torch.randn(2, 32), make_padding_mask())
    axes = ({0: BATCH, 1: TIME}, {0: BATCH}, {0: BATCH, 1: TIME})
    return make_plain_example(ProsodyPredictor(), *inputs, axes=axes)


class Tacotron(nn.Module):
    """Tacotron 2's encoder and postnet."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.convolves = nn.Sequential(
            *(
                layer
                for _ in range(3)
                for layer in (
                    nn.Conv1d(WIDTH, WIDTH, 5, padding=2),
                    nn.BatchNorm1d(WIDTH),
                    nn.ReLU(),
                )
            )
        )
        self.memory = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor) -> Tensor:
        """Return encoded text."""
        return self.memory(self.convolves(self.embed(ids).transpose(1, 2)).transpose(1, 2))[0]


@register_family("tacotron2-encoder", KIND)
def build_tacotron2_encoder() -> Example:
    """Build Tacotron 2's encoder."""
    return make_plain_example(Tacotron(), make_token_ids())


class TacotronStep(nn.Module):
    """One frame of Tacotron 2: a prenet, two LSTM cells, location-sensitive attention."""

    def __init__(self) -> None:
        super().__init__()
        self.prenet = nn.Sequential(
            nn.Linear(BANDS, 32, bias=False), nn.ReLU(), nn.Linear(32, 32, bias=False), nn.ReLU()
        )
        self.attention_cell = nn.LSTMCell(32 + WIDTH, WIDTH)
        self.query, self.memory = nn.Linear(WIDTH, 32, bias=False), nn.Linear(WIDTH, 32, bias=False)
        self.locate, self.place = nn.Conv1d(2, 8, 15, padding=7, bias=False), nn.Linear(8, 32)
        self.score = nn.Linear(32, 1, bias=False)
        self.decoder_cell = nn.LSTMCell(2 * WIDTH, WIDTH)
        self.out, self.stop = nn.Linear(2 * WIDTH, BANDS), nn.Linear(2 * WIDTH, 1)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the frame, the stop token and the states."""
        frame, encoded, mask, context, weights, total, *states = inputs
        step = torch.cat([self.prenet(frame), context], dim=-1)
        first = self.attention_cell(step, (states[0], states[1]))
        places = self.place(self.locate(torch.stack([weights, total], dim=1)).transpose(1, 2))
        scores = self.score(
            torch.tanh(self.query(first[0])[:, None] + places + self.memory(encoded))
        )
        scores = scores.squeeze(-1).masked_fill(mask == 0, float("-inf"))
        weights = torch.softmax(scores, dim=1)
        context = torch.bmm(weights[:, None], encoded).squeeze(1)
        second = self.decoder_cell(torch.cat([first[0], context], dim=-1), (states[2], states[3]))
        both = torch.cat([second[0], context], dim=-1)
        return self.out(both), self.stop(both), context, weights, total + weights, *first, *second


@register_family("tacotron2-step", KIND)
def build_tacotron2_step() -> Example:
    """Build one frame of Tacotron 2's decoder."""
    inputs = (
        torch.randn(2, BANDS),
        torch.randn(2, 12, WIDTH),
        make_padding_mask(),
        torch.randn(2, WIDTH),
    )
    inputs += (torch.rand(2, 12), torch.rand(2, 12), *(torch.randn(2, WIDTH) for _ in range(4)))
    timed = {1, 2, 4, 5}
    axes = tuple({0: BATCH, 1: TIME} if i in timed else {0: BATCH} for i in range(len(inputs)))
    return Example(AdaptedStep(TacotronStep()), inputs, axes)


class WindowedAttention(nn.Module):
    """Glow-TTS' attention with relative positions in a window, shifted by pads and views."""

    def __init__(self, window: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.window, self.heads, self.size = window, heads, WIDTH // heads
        self.projects = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(4))
        self.keys, self.values = (
            nn.Parameter(torch.randn(1, 2 * window + 1, self.size)) for _ in range(2)
        )

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Attend over [batch, channels, time]."""
        batch, _, time = frames.shape
        query, key, value = (
            project(frames).view(batch, self.heads, self.size, time).transpose(2, 3)
            for project in self.projects[:3]
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(self.size)
        near = torch.matmul(query, self.cut_table(self.keys, time)[None].transpose(-2, -1))
        scores = scores + self.place_scores(near) / math.sqrt(self.size)
        scores = scores.masked_fill(mask[:, None, None] * mask[:, None, :, None] == 0, -1e4)
        weights = torch.softmax(scores, dim=-1)
        mixed = torch.matmul(weights, value)
        relative = self.measure_distances(weights)
        mixed = mixed + torch.matmul(relative, self.cut_table(self.values, time)[None])
        return self.projects[3](mixed.transpose(2, 3).contiguous().view(batch, WIDTH, time))

    def cut_table(self, table: Tensor, time: int) -> Tensor:
        """Return the rows of a table of distances that so many frames need."""
        pad = max(time - (self.window + 1), 0)
        start = max((self.window + 1) - time, 0)
        return fn.pad(table, (0, 0, pad, pad))[:, start : start + 2 * time - 1]

    @staticmethod
    def place_scores(scores: Tensor) -> Tensor:
        """Turn scores by distance into scores by place."""
        batch, heads, time, _ = scores.shape
        flat = fn.pad(scores, (0, 1)).view(batch, heads, time * 2 * time)
        flat = fn.pad(flat, (0, time - 1)).view(batch, heads, time + 1, 2 * time - 1)
        return flat[:, :, :time, time - 1 :]

    @staticmethod
    def measure_distances(weights: Tensor) -> Tensor:
        """Turn weights by place into weights by distance."""
        batch, heads, time, _ = weights.shape
        flat = fn.pad(weights, (0, time - 1)).view(batch, heads, time**2 + time * (time - 1))
        return fn.pad(flat, (time, 0)).view(batch, heads, time, 2 * time)[..., 1:]


class GlowTextEncoder(nn.Module):
    """Glow-TTS' text encoder: windowed attention, convolutional feed forwards, masks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.attends = nn.ModuleList(WindowedAttention() for _ in range(LAYERS))
        self.feeds = nn.ModuleList(
            nn.ModuleList(
                [
                    nn.Conv1d(WIDTH, 4 * WIDTH, 3, padding=1),
                    nn.Conv1d(4 * WIDTH, WIDTH, 3, padding=1),
                ]
            )
            for _ in range(LAYERS)
        )
        self.norms = nn.ModuleList(ChannelNorm(WIDTH) for _ in range(2 * LAYERS))
        self.mean, self.duration = nn.Conv1d(WIDTH, BANDS, 1), nn.Conv1d(WIDTH, 1, 3, padding=1)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and durations of letters."""
        mask = mask.float()
        wide = mask[:, None]
        frames = self.embed(ids).transpose(1, 2) * math.sqrt(WIDTH)
        for i, (attend, feed) in enumerate(zip(self.attends, self.feeds, strict=True)):
            frames = frames * wide
            frames = self.norms[2 * i](frames + attend(frames, mask))
            hidden = torch.relu(feed[0](frames * wide))
            frames = self.norms[2 * i + 1](frames + feed[1](hidden * wide) * wide)
        return self.mean(frames * wide) * wide, self.duration(frames * wide) * wide


@register_family("glow-tts-text-encoder", KIND)
def build_glow_tts_text_encoder() -> Example:
    """Build Glow-TTS' (and Matcha-TTS') text encoder."""
    return make_plain_example(GlowTextEncoder(), make_token_ids(), make_padding_mask())


class WaveNet(nn.Module):
    """Gated dilated convolutions with skips, as flows of Glow-TTS and VITS use them."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.ins = nn.ModuleList(
            nn.Conv1d(WIDTH, 2 * WIDTH, 5, dilation=2**i, padding=2 * 2**i) for i in range(layers)
        )
        self.outs = nn.ModuleList(nn.Conv1d(WIDTH, 2 * WIDTH, 1) for _ in range(layers))

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Return the sum of the skips."""
        total = torch.zeros_like(frames)
        for inside, outside in zip(self.ins, self.outs, strict=True):
            both = inside(frames)
            gated = torch.tanh(both[:, :WIDTH]) * torch.sigmoid(both[:, WIDTH:])
            both = outside(gated)
            frames = (frames + both[:, :WIDTH]) * mask
            total = total + both[:, WIDTH:]
        return total * mask


class GlowDecoder(nn.Module):
    """Glow-TTS' flow in reverse: couplings, invertible products, activation norms."""

    def __init__(self) -> None:
        super().__init__()
        self.firsts = nn.ModuleList(nn.Conv1d(BANDS, WIDTH, 1) for _ in range(2))
        self.waves = nn.ModuleList(WaveNet() for _ in range(2))
        self.lasts = nn.ModuleList(nn.Conv1d(WIDTH, 2 * BANDS, 1) for _ in range(2))
        self.mixes = nn.ParameterList(torch.randn(4, 4) for _ in range(2))
        self.scales = nn.ParameterList(torch.randn(1, 2 * BANDS, 1) for _ in range(2))
        self.biases = nn.ParameterList(torch.randn(1, 2 * BANDS, 1) for _ in range(2))

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Return mel frames of [batch, bands, time]."""
        batch, bands, time = frames.shape
        half = time // 2
        frames = frames[..., : 2 * half].view(batch, bands, half, 2)
        frames = frames.permute(0, 3, 1, 2).reshape(batch, 2 * bands, half)
        mask = mask[:, None, 1::2][..., :half]
        frames = frames * mask
        for i, wave in enumerate(self.waves):
            kept, moved = torch.chunk(frames, 2, dim=1)
            mean, scale = torch.chunk(self.lasts[i](wave(self.firsts[i](kept) * mask, mask)), 2, 1)
            frames = torch.cat([kept, (moved - mean) * torch.exp(-scale) * mask], dim=1)
            parts = frames.view(batch, 2, bands // 2, 2, half).permute(0, 1, 3, 2, 4)
            parts = parts.reshape(batch, 4, bands // 2, half)
            parts = fn.conv2d(parts, self.mixes[i][..., None, None])
            parts = parts.view(batch, 2, 2, bands // 2, half).permute(0, 1, 3, 2, 4)
            frames = parts.reshape(batch, 2 * bands, half) * mask
            frames = (frames - self.biases[i]) * torch.exp(-self.scales[i]) * mask
        frames = frames.view(batch, 2, bands, half).permute(0, 2, 3, 1)
        return frames.reshape(batch, bands, 2 * half)


@register_family("glow-tts-decoder", KIND)
def build_glow_tts_decoder() -> Example:
    """Build Glow-TTS' flow."""
    inputs = (torch.randn(2, BANDS, 20), make_padding_mask(20, 4).float())
    axes = ({0: BATCH, 2: TIME}, {0: BATCH, 1: TIME})
    return make_plain_example(GlowDecoder(), *inputs, axes=axes)


class LengthRegulator(nn.Module):
    """FastSpeech 2's core: letters through layers, repeated by durations, through layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("positions", torch.randn(1, 400, WIDTH))
        self.attends = nn.ModuleList(SelfAttention() for _ in range(2 * LAYERS))
        self.feeds = nn.ModuleList(make_feed_forward() for _ in range(2 * LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4 * LAYERS))
        self.duration, self.out = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, BANDS)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return mel frames."""
        frames = self.run_layers(self.embed(ids), mask, 0)
        durations = torch.exp(self.duration(frames).squeeze(-1)).round().clamp(1, 4) * mask
        ends = torch.cumsum(durations, dim=1)
        places = torch.arange(64)[None, :, None]
        aligned = (places < ends[:, None]) & (places >= (ends - durations)[:, None])
        frames = torch.matmul(aligned.float(), frames)
        return self.out(self.run_layers(frames, (places[..., 0] < ends[:, -1:]).float(), LAYERS))

    def run_layers(self, frames: Tensor, mask: Tensor, first: int) -> Tensor:
        """Run the layers of one side."""
        frames = frames + self.positions[:, : frames.shape[1]]
        for i in range(first, first + LAYERS):
            frames = self.norms[2 * i](frames + self.attends[i](frames, mask))
            frames = self.norms[2 * i + 1](frames + self.feeds[i](frames))
        return frames


@register_family("fastspeech2", KIND)
def build_fastspeech2() -> Example:
    """Build a FastSpeech 2 with its length regulator."""
    return make_plain_example(LengthRegulator(), make_token_ids(), make_padding_mask())


class SpeakerPrompt(nn.Module):
    """XTTS' speaker latents: convolution, attention blocks over frames, a resampler of queries."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(BANDS, WIDTH, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, WIDTH) for _ in range(LAYERS))
        self.packs = nn.ModuleList(nn.Conv1d(WIDTH, 3 * WIDTH, 1) for _ in range(LAYERS))
        self.outs = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(LAYERS))
        self.latents = nn.Parameter(torch.randn(1, 8, WIDTH))
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, mel: Tensor) -> Tensor:
        """Return 8 latents of [batch, bands, time]."""
        frames = self.first(mel)
        batch, _, time = frames.shape
        for norm, pack, out in zip(self.norms, self.packs, self.outs, strict=True):
            parts = pack(norm(frames)).reshape(batch * HEADS, -1, time)
            query, key, value = parts.split(WIDTH // HEADS, dim=1)
            scale = (WIDTH // HEADS) ** -0.25
            weights = torch.einsum("bct,bcs->bts", query * scale, key * scale)
            mixed = torch.einsum("bts,bcs->bct", torch.softmax(weights, dim=-1), value)
            frames = frames + out(mixed.reshape(batch, -1, time))
        rows = frames.transpose(1, 2)
        latents = self.latents.expand(batch, -1, -1)
        return latents + self.attend(latents, rows, rows)[0]


@register_family("xtts-conditioning", KIND)
def build_xtts_conditioning() -> Example:
    """Build XTTS' (and Tortoise's) speaker conditioning."""
    return make_plain_example(
        SpeakerPrompt(), torch.randn(2, BANDS, 20), axes=({0: BATCH, 2: TIME},)
    )


class ReferenceEncoder(nn.Module):
    """A style encoder: strided convolutions over mel frames, a GRU, attention to style tokens."""

    def __init__(self) -> None:
        super().__init__()
        layers = list[nn.Module]()
        for inputs, outputs in ((1, 16), (16, 16), (16, 32)):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers, self.memory = nn.Sequential(*layers), nn.GRU(32 * 5, WIDTH, batch_first=True)
        self.tokens = nn.Parameter(torch.randn(10, WIDTH))
        self.attend = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, mel: Tensor) -> Tensor:
        """Return a style of [batch, time, bands]."""
        maps = self.layers(mel[:, None])
        _, state = self.memory(maps.transpose(1, 2).flatten(2))
        tokens = torch.tanh(self.tokens)[None].expand(mel.shape[0], -1, -1)
        return self.attend(state.transpose(0, 1), tokens, tokens)[0]


@register_family("style-tokens", KIND)
def build_style_tokens() -> Example:
    """Build an encoder of global style tokens."""
    return make_plain_example(ReferenceEncoder(), torch.randn(2, 40, BANDS))


class ToneConverter(nn.Module):
    """A voice converter: a causal encoder of content, a speaker's gate, a WaveNet, a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first = CausalConv(BANDS, WIDTH, 5)
        self.wave, self.speaker = WaveNet(), nn.Linear(32, WIDTH)
        self.out = nn.Conv1d(WIDTH, BANDS, 1)

    def forward(self, mel: Tensor, speaker: Tensor, mask: Tensor) -> Tensor:
        """Return mel frames in another voice."""
        frames = self.first(mel) + self.speaker(speaker)[..., None]
        return self.out(self.wave(frames * mask, mask)) * mask


@register_family("voice-converter", KIND)
def build_voice_converter() -> Example:
    """Build a voice converter (OpenVoice, RVC)."""
    inputs = (
        torch.randn(2, BANDS, 20),
        torch.randn(2, 32),
        make_padding_mask(20, 4)[:, None].float(),
    )
    axes = ({0: BATCH, 2: TIME}, {0: BATCH}, {0: BATCH, 2: TIME})
    return make_plain_example(ToneConverter(), *inputs, axes=axes)
