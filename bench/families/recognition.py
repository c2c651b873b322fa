"""Encoders of speech recognition, of transformers and written down anew after their papers."""

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
    ModelTable,
    Sizes,
    make_audio_example,
    make_frames_example,
    make_padding_mask,
    make_plain_example,
    make_token_ids,
    register_family,
    register_models,
)
from .layers import (
    SIZE,
    RelativeAttention,
    SelfAttention,
    ZipformerLayer,
    make_feed_forward,
    make_positions,
    split_heads,
    weigh_values,
)

KIND = "speech recognition"
WAVE: Sizes = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
    "conv_dim": (32, 32, 32),
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
LARGE: Sizes = {
    "feat_extract_norm": "layer",
    "do_stable_layer_norm": True,
    "conv_bias": True,
}
WAVES: ModelTable = {
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForCTC", {}),
    "wav2vec2-large": ("Wav2Vec2Config", "Wav2Vec2ForCTC", LARGE),
    "hubert": ("HubertConfig", "HubertModel", {}),
    "hubert-large": ("HubertConfig", "HubertForCTC", LARGE),
    "wavlm": ("WavLMConfig", "WavLMModel", {"num_buckets": 32, "max_bucket_distance": 80}),
    "unispeech": ("UniSpeechConfig", "UniSpeechForCTC", {}),
    "unispeech-sat": ("UniSpeechSatConfig", "UniSpeechSatForCTC", {}),
    "data2vec-audio": (
        "Data2VecAudioConfig",
        "Data2VecAudioForCTC",
        {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 9},
    ),
    "sew": ("SEWConfig", "SEWForCTC", {"squeeze_factor": 2}),
    "sew-d": ("SEWDConfig", "SEWDForCTC", {"squeeze_factor": 2, "position_buckets": 32}),
    "wav2vec2-conformer-relative": (
        "Wav2Vec2ConformerConfig",
        "Wav2Vec2ConformerForCTC",
        {"position_embeddings_type": "relative", "max_source_positions": 256},
    ),
    "wav2vec2-conformer-rotary": (
        "Wav2Vec2ConformerConfig",
        "Wav2Vec2ConformerForCTC",
        {"position_embeddings_type": "rotary"},
    ),
}


register_models(KIND, WAVES, WAVE, make_audio_example)


@register_family("w2v-bert", KIND)
def build_w2v_bert() -> Example:
    """Build a W2V-BERT 2.0."""
    config = hf.Wav2Vec2BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        feature_projection_input_dim=BANDS,
        left_max_position_embeddings=16,
        right_max_position_embeddings=4,
    )
    return make_frames_example(hf.Wav2Vec2BertForCTC(config), BANDS)


SEAMLESS = {
    "hidden_size": WIDTH,
    "speech_encoder_layers": LAYERS,
    "speech_encoder_attention_heads": HEADS,
    "speech_encoder_intermediate_size": 4 * WIDTH,
    "feature_projection_input_dim": BANDS,
    "max_source_positions": 128,
}


@register_family("seamless-m4t", KIND)
def build_seamless_m4t() -> Example:
    """Build SeamlessM4T's speech encoder."""
    from transformers.models.seamless_m4t.modeling_seamless_m4t import SeamlessM4TSpeechEncoder

    return make_frames_example(SeamlessM4TSpeechEncoder(hf.SeamlessM4TConfig(**SEAMLESS)), BANDS)


@register_family("seamless-m4t-v2", KIND)
def build_seamless_m4t_v2() -> Example:
    """Build SeamlessM4T v2's speech encoder."""
    from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import (
        SeamlessM4Tv2SpeechEncoder,
    )

    config = hf.SeamlessM4Tv2Config(
        **SEAMLESS, left_max_position_embeddings=16, right_max_position_embeddings=4
    )
    return make_frames_example(SeamlessM4Tv2SpeechEncoder(config), BANDS)


@register_family("speech2text", KIND)
def build_speech2text() -> Example:
    """Build Speech2Text's encoder."""
    from transformers.models.speech_to_text.modeling_speech_to_text import Speech2TextEncoder

    config = hf.Speech2TextConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        input_feat_per_channel=BANDS,
        conv_channels=64,
        max_source_positions=400,
    )
    return make_frames_example(Speech2TextEncoder(config), BANDS)


@register_family("speecht5-encoder", KIND)
def build_speecht5_encoder() -> Example:
    """Build SpeechT5's speech encoder."""
    from transformers.models.speecht5.modeling_speecht5 import SpeechT5EncoderWithSpeechPrenet

    config = hf.SpeechT5Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        encoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        encoder_max_relative_position=16,
        max_speech_positions=400,
        **{x: WAVE[x] for x in WAVE if x.startswith(("conv", "num_conv"))},
    )
    return make_audio_example(SpeechT5EncoderWithSpeechPrenet(config))


WHISPER = {
    "vocab_size": VOCABULARY,
    "num_mel_bins": BANDS,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH,
    "max_source_positions": 100,
    "max_target_positions": 64,
    "pad_token_id": 1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@register_family("whisper-encoder", KIND)
def build_whisper_encoder() -> Example:
    """Build Whisper's encoder, for its one length."""
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return _make_window_example(WhisperEncoder(hf.WhisperConfig(**WHISPER)))


def _make_window_example(encoder: nn.Module) -> Example:
    """Return an example of an encoder of mel frames that has one length."""
    adapted = Adapter(encoder, ("input_features",))
    return Example(adapted, (torch.randn(2, BANDS, 200),), ({0: BATCH},))


@register_family("whisper-decoder", KIND)
def build_whisper_decoder() -> Example:
    """Build Whisper's decoder without caches."""
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    return _make_decoder_example(WhisperDecoder(hf.WhisperConfig(**WHISPER)), WIDTH)


def _make_decoder_example(decoder: nn.Module, width: int) -> Example:
    """Return an example of a decoder that reads the tokens written so far, and frames."""
    names = ("input_ids", "encoder_hidden_states")
    inputs = (make_token_ids(7), torch.randn(2, 30, width))
    axes = ({0: BATCH, 1: "written"}, {0: BATCH, 1: TIME})
    return Example(Adapter(decoder, names, full=True, use_cache=False), inputs, axes)


MOONSHINE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 72,
    "intermediate_size": 4 * 72,
    "encoder_num_hidden_layers": LAYERS,
    "decoder_num_hidden_layers": LAYERS,
    "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2,
    "pad_head_dim_to_multiple_of": 8,
}


@register_family("moonshine-encoder", KIND)
def build_moonshine_encoder() -> Example:
    """Build Moonshine's encoder, whose heads of 36 numbers are padded to 40."""
    from transformers.models.moonshine.modeling_moonshine import MoonshineEncoder

    encoder = MoonshineEncoder(hf.MoonshineConfig(**MOONSHINE))
    return make_audio_example(encoder, mask=False, samples=8000)


@register_family("moonshine-decoder", KIND)
def build_moonshine_decoder() -> Example:
    """Build Moonshine's decoder without caches."""
    from transformers.models.moonshine.modeling_moonshine import MoonshineDecoder

    return _make_decoder_example(MoonshineDecoder(hf.MoonshineConfig(**MOONSHINE)), 72)


CONFORMER = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
    "num_mel_bins": BANDS,
    "subsampling_conv_channels": 16,
}


@register_family("parakeet", KIND)
def build_parakeet() -> Example:
    """Build a Parakeet with a CTC head."""
    config = hf.ParakeetCTCConfig(vocab_size=VOCABULARY, encoder_config=CONFORMER, pad_token_id=0)
    return make_frames_example(hf.ParakeetForCTC(config), BANDS, frames=96)


@register_family("lasr", KIND)
def build_lasr() -> Example:
    """Build a LASR (MedASR) with a CTC head."""
    config = hf.LasrCTCConfig(vocab_size=VOCABULARY, encoder_config=CONFORMER, pad_token_id=0)
    return make_frames_example(hf.LasrForCTC(config), BANDS, frames=96)


@register_family("qwen2-audio-encoder", KIND)
def build_qwen2_audio_encoder() -> Example:
    """Build Qwen2-Audio's encoder, for its one length."""
    from transformers.models.qwen2_audio.modeling_qwen2_audio import Qwen2AudioEncoder

    sizes = {x: WHISPER[x] for x in WHISPER if x.startswith(("num_mel", "d_model", "encoder"))}
    config = hf.Qwen2AudioEncoderConfig(**sizes, max_source_positions=100)
    return _make_window_example(Qwen2AudioEncoder(config))


@register_family("voxtral-encoder", KIND)
def build_voxtral_encoder() -> Example:
    """Build Voxtral's encoder, for its one length."""
    from transformers.models.voxtral.modeling_voxtral import VoxtralEncoder

    config = hf.VoxtralEncoderConfig(
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_mel_bins=BANDS,
        max_source_positions=100,
    )
    return _make_window_example(VoxtralEncoder(config))


@register_family("glm-asr-encoder", KIND)
def build_glm_asr_encoder() -> Example:
    """Build GLM-ASR's encoder, with rotary positions."""
    from transformers.models.glmasr.modeling_glmasr import GlmAsrEncoder

    config = hf.GlmAsrEncoderConfig(
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_mel_bins=BANDS,
    )
    names = ("input_features",)
    return make_frames_example(GlmAsrEncoder(config), BANDS, names, channels_first=True)


@register_family("granite-speech-encoder", KIND)
def build_granite_speech_encoder() -> Example:
    """Build Granite Speech's block-wise Conformer encoder."""
    from transformers.models.granite_speech.modeling_granite_speech import GraniteSpeechCTCEncoder

    config = hf.GraniteSpeechEncoderConfig(
        input_dim=BANDS,
        num_layers=LAYERS,
        hidden_dim=WIDTH,
        num_heads=HEADS,
        dim_head=16,
        output_dim=VOCABULARY,
        context_size=20,
        max_pos_emb=32,
    )
    return make_frames_example(GraniteSpeechCTCEncoder(config), BANDS, ("hidden_states",))


@register_family("fun-asr-nano-encoder", KIND)
def build_fun_asr_nano_encoder() -> Example:
    """Build Fun-ASR-Nano's encoder: SANM layers, as transformers has them."""
    from transformers.models.fun_asr_nano.modeling_fun_asr_nano import FunAsrNanoEncoder

    config = hf.FunAsrNanoEncoderConfig(
        num_mel_bins=10,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=3,
        num_timestamp_prediction_layers=1,
    )
    names = ("input_features", "input_features_mask")
    return make_frames_example(FunAsrNanoEncoder(config), 70, names)


# What follows is written down anew, after the papers and the code that people export.


class Sanm(SelfAttention):
    """Attention with a memory: a convolution over time of the values (FunASR)."""

    def __init__(self) -> None:
        super().__init__(packed=True)
        self.memory = nn.Conv1d(WIDTH, WIDTH, 11, groups=WIDTH, bias=False)

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Attend, and add what the memory says."""
        value = self.project(frames)[..., -frames.shape[-1] :]
        valid = mask[:, :, None].to(value.dtype)
        memory = fn.pad((value * valid).transpose(1, 2), (5, 5))
        memory = self.memory(memory).transpose(1, 2) + value * valid
        return super().forward(frames, mask) + memory * valid


class SanmLayer(nn.Module):
    """One layer of a SANM encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.feed = Sanm(), make_feed_forward()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Run the layer."""
        frames = frames + self.attend(self.norms[0](frames), mask)
        return frames + self.feed(self.norms[1](frames))


def make_sinusoids(length: Tensor | int, width: int) -> Tensor:
    """Return positions as sines and cosines, [length, width]."""
    steps = torch.exp(torch.arange(width // 2) * (-math.log(10000.0) / (width // 2 - 1)))
    angles = torch.arange(1, length + 1)[:, None] * steps[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class SenseVoice(nn.Module):
    """SenseVoice's encoder: four query frames in front, SANM layers, a CTC head."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Embedding(16, BANDS)
        self.first = nn.Linear(BANDS, WIDTH)
        self.layers = nn.ModuleList(SanmLayer() for _ in range(3))
        self.norm, self.ctc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self, speech: Tensor, lengths: Tensor, language: Tensor, textnorm: Tensor
    ) -> Tensor:
        """Return the log-probabilities of each frame."""
        batch = speech.shape[0]
        event = self.queries(torch.tensor([[1, 2]])).repeat(batch, 1, 1)
        parts = (self.queries(language)[:, None], event, self.queries(textnorm)[:, None], speech)
        speech = torch.cat(parts, dim=1)
        mask = (torch.arange(speech.shape[1])[None] < (lengths + 4)[:, None]).to(speech.dtype)
        frames = self.first(speech * BANDS**0.5 + make_sinusoids(speech.shape[1], BANDS)[None])
        for layer in self.layers:
            frames = layer(frames, mask)
        return torch.log_softmax(self.ctc(self.norm(frames)), dim=-1)


@register_family("sensevoice", KIND)
def build_sensevoice() -> Example:
    """Build a SenseVoice."""
    ids = torch.tensor([3, 4])
    inputs = (torch.randn(2, 30, BANDS), torch.tensor([30, 22]), ids, ids)
    axes = ({0: BATCH, 1: TIME}, {0: BATCH}, {0: BATCH}, {0: BATCH})
    return make_plain_example(SenseVoice(), *inputs, axes=axes)


class Paraformer(nn.Module):
    """Paraformer: a SANM encoder, a predictor of acoustic embeddings, a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(BANDS, WIDTH)
        self.layers = nn.ModuleList(SanmLayer() for _ in range(LAYERS))
        self.predict = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.weight = nn.Linear(WIDTH, 1)
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, speech: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of each token, and the weights that count tokens."""
        frames = self.first(speech * BANDS**0.5 + make_sinusoids(speech.shape[1], BANDS)[None])
        for layer in self.layers:
            frames = layer(frames, mask)
        hidden = torch.relu(self.predict(frames.transpose(1, 2))).transpose(1, 2) + frames
        alphas = torch.sigmoid(self.weight(hidden)).squeeze(-1) * mask
        tokens = torch.cumsum(alphas[..., None] * frames, dim=1)
        fired = torch.cumsum(alphas, dim=1).floor()
        shown = (fired[:, 1:] > fired[:, :-1]).to(frames.dtype)
        tokens = (tokens[:, 1:] - tokens[:, :-1]) * shown[..., None]
        for layer in self.decoder:
            tokens = layer(tokens, frames, mask)
        return torch.log_softmax(self.out(tokens), dim=-1), alphas


class DecoderLayer(nn.Module):
    """A Paraformer decoder layer: feed forward, memory over tokens, attention to frames."""

    def __init__(self) -> None:
        super().__init__()
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.ReLU(),
            nn.LayerNorm(4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH, bias=False),
        )
        self.memory = nn.Conv1d(WIDTH, WIDTH, 11, groups=WIDTH, padding=5, bias=False)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.query, self.pair = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, frames: Tensor, mask: Tensor) -> Tensor:
        """Run the layer."""
        hidden = self.norms[1](self.feed(self.norms[0](tokens)))
        tokens = tokens + self.memory(hidden.transpose(1, 2)).transpose(1, 2) + hidden
        key, value = torch.split(self.pair(frames), WIDTH, dim=-1)
        query = self.query(self.norms[2](tokens)) * SIZE**-0.5
        query, key, value = (split_heads(x) for x in (query, key, value))
        scores = torch.matmul(query, key.transpose(-2, -1))
        return tokens + self.out(weigh_values(scores, value, mask))


@register_family("paraformer", KIND)
def build_paraformer() -> Example:
    """Build a Paraformer."""
    mask = make_padding_mask(30, 6).to(torch.float32)
    return make_plain_example(Paraformer(), torch.randn(2, 30, BANDS), mask)


class ConvolutionModule(nn.Module):
    """A Conformer's convolution: a gate, a depthwise convolution, a norm and Swish."""

    def __init__(self, norm: type[nn.Module] = nn.BatchNorm1d, kernel: int = 15) -> None:
        super().__init__()
        self.wide = nn.Conv1d(WIDTH, 2 * WIDTH, 1)
        self.deep = nn.Conv1d(WIDTH, WIDTH, kernel, groups=WIDTH, padding=kernel // 2)
        self.norm = norm(WIDTH)
        self.narrow = nn.Conv1d(WIDTH, WIDTH, 1)

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Run the module over [batch, time, features]."""
        hidden = fn.glu(self.wide(frames.transpose(1, 2)), dim=1)
        hidden = self.deep(hidden.masked_fill(mask[:, None] == 0, 0.0))
        if isinstance(self.norm, nn.LayerNorm):
            hidden = self.norm(hidden.transpose(1, 2)).transpose(1, 2)
        else:
            hidden = self.norm(hidden)
        hidden = self.narrow(fn.silu(hidden))
        return hidden.masked_fill(mask[:, None] == 0, 0.0).transpose(1, 2)


class ConformerLayer(nn.Module):
    """A Conformer layer: half a feed forward, attention, convolution, half a feed forward."""

    def __init__(self, attend: nn.Module, norm: type[nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.feeds = nn.ModuleList(make_feed_forward(nn.SiLU) for _ in range(2))
        self.attend, self.convolve = attend, ConvolutionModule(norm)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))

    def forward(self, frames: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Run the layer."""
        frames = frames + 0.5 * self.feeds[0](self.norms[0](frames))
        frames = frames + self.attend(self.norms[1](frames), mask, positions)
        frames = frames + self.convolve(self.norms[2](frames), mask)
        frames = frames + 0.5 * self.feeds[1](self.norms[3](frames))
        return self.norms[4](frames)


class Subsampling(nn.Module):
    """Two convolutions that leave one frame of four."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU()
        )
        self.out = nn.Linear(16 * 9, WIDTH)

    def forward(self, frames: Tensor) -> Tensor:
        """Return the frames as [batch, time, features]."""
        maps = self.convolve(frames[:, None])
        batch, channels, time, bands = maps.shape
        return self.out(maps.transpose(1, 2).contiguous().view(batch, time, channels * bands))


class Conformer(nn.Module):
    """A Conformer encoder with a CTC head.

    Args:
        style: ``wenet`` has no shift, ``espnet`` has, ``nemo`` cuts positions from a table.
    """

    def __init__(self, style: str) -> None:
        super().__init__()
        self.style, self.sample = style, Subsampling()
        norm = nn.LayerNorm if style == "wenet" else nn.BatchNorm1d
        self.layers = nn.ModuleList(
            ConformerLayer(RelativeAttention(shift=style != "wenet"), norm) for _ in range(LAYERS)
        )
        self.register_buffer("table", torch.randn(1, 2 * 200 - 1, WIDTH))
        self.norm, self.ctc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, speech: Tensor, lengths: Tensor) -> Tensor:
        """Return the log-probabilities of each frame."""
        frames = self.sample(speech) * math.sqrt(WIDTH)
        time = frames.shape[1]
        mask = torch.arange(speech.shape[1])[None] < lengths[:, None]
        mask = mask[:, 2::2][:, 2::2] if self.style == "wenet" else mask[:, ::4][:, :time]
        if self.style == "wenet":
            positions = self.table[:, :time]
        else:
            positions = self.table[:, 200 - time : 200 + time - 1]
        for layer in self.layers:
            frames = layer(frames, mask, positions)
        return torch.log_softmax(self.ctc(self.norm(frames)), dim=-1)


def _make_lengths_example(encoder: nn.Module) -> Example:
    """Return an example of an encoder that reads frames and how many of them are valid."""
    inputs = (torch.randn(2, 67, BANDS), torch.tensor([67, 50]))
    return make_plain_example(encoder, *inputs, axes=({0: BATCH, 1: TIME}, {0: BATCH}))


@register_family("conformer-wenet", KIND)
def build_conformer_wenet() -> Example:
    """Build a WeNet Conformer."""
    return _make_lengths_example(Conformer("wenet"))


@register_family("conformer-espnet", KIND)
def build_conformer_espnet() -> Example:
    """Build an ESPnet Conformer."""
    return _make_lengths_example(Conformer("espnet"))


class FastConformer(nn.Module):
    """NeMo's FastConformer: eight frames become one by depthwise convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.sample = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU()),
            *(nn.Conv2d(16, 16, 3, 2, 1, groups=16), nn.Conv2d(16, 16, 1), nn.ReLU()),
            *(nn.Conv2d(16, 16, 3, 2, 1, groups=16), nn.Conv2d(16, 16, 1), nn.ReLU()),
        )
        self.first = nn.Linear(16 * 5, WIDTH)
        self.layers = nn.ModuleList(ConformerLayer(RelativeAttention()) for _ in range(LAYERS))
        self.register_buffer("table", torch.randn(1, 2 * 200 - 1, WIDTH))
        self.ctc = nn.Conv1d(WIDTH, VOCABULARY, 1)

    def forward(self, speech: Tensor, lengths: Tensor) -> Tensor:
        """Return the log-probabilities of each frame of [batch, bands, time]."""
        maps = self.sample(speech.transpose(1, 2)[:, None])
        batch, channels, time, bands = maps.shape
        frames = self.first(maps.transpose(1, 2).reshape(batch, time, channels * bands))
        mask = torch.arange(time)[None] < torch.div(lengths + 7, 8, rounding_mode="floor")[:, None]
        positions = self.table[:, 200 - time : 200 + time - 1]
        for layer in self.layers:
            frames = layer(frames, mask, positions)
        return torch.log_softmax(self.ctc(frames.transpose(1, 2)).transpose(1, 2), dim=-1)


@register_family("fastconformer-nemo", KIND)
def build_fastconformer_nemo() -> Example:
    """Build a NeMo FastConformer."""
    inputs = (torch.randn(2, BANDS, 96), torch.tensor([96, 70]))
    return make_plain_example(FastConformer(), *inputs, axes=({0: BATCH, 2: TIME}, {0: BATCH}))


class Zipformer(nn.Module):
    """A Zipformer of two stacks, of which the second runs at half the rate."""

    def __init__(self) -> None:
        super().__init__()
        self.sample = Subsampling()
        self.layers = nn.ModuleList(ZipformerLayer() for _ in range(2))
        self.halve = nn.Parameter(torch.randn(2))
        self.combine = nn.Parameter(torch.rand(WIDTH))
        self.ctc = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, speech: Tensor, lengths: Tensor) -> Tensor:
        """Return the log-probabilities of each frame."""
        frames = self.sample(speech).permute(1, 0, 2)
        mask = torch.arange(frames.shape[0])[None] < ((lengths - 3) // 4)[:, None]
        frames = self.layers[0](frames, make_positions(frames.shape[0]), mask)
        short = self.halve_rate(frames)
        short = self.layers[1](short, make_positions(short.shape[0]), mask[:, ::2])
        wide = short[:, None].expand(-1, 2, -1, -1).reshape(-1, short.shape[1], WIDTH)
        frames = frames + (wide[: frames.shape[0]] - frames) * self.combine
        return torch.log_softmax(self.ctc(frames.permute(1, 0, 2)), dim=-1)

    def halve_rate(self, frames: Tensor) -> Tensor:
        """Return the weighted mean of each two frames."""
        pad = (2 - frames.shape[0] % 2) % 2
        frames = torch.cat([frames, frames[-1:].expand(pad, -1, -1)], dim=0)
        pairs = frames.reshape(-1, 2, frames.shape[1], WIDTH)
        return (pairs * self.halve.softmax(dim=0)[None, :, None, None]).sum(dim=1)


@register_family("zipformer", KIND)
def build_zipformer() -> Example:
    """Build a Zipformer."""
    return _make_lengths_example(Zipformer())


class EmformerLayer(nn.Module):
    """An Emformer layer: a chunk attends to a cached left context, itself and its right context."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.pair = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.out, self.feed = nn.Linear(WIDTH, WIDTH), make_feed_forward(nn.GELU)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, frames: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        """Run the layer over [time, batch, features]; return the caches moved on."""
        time, batch, _ = frames.shape
        hidden = self.norms[0](frames)
        key, value = self.pair(hidden).chunk(2, dim=2)
        key, value = torch.cat([keys, key]), torch.cat([values, value])
        size = WIDTH // HEADS
        heads = [
            x.contiguous().view(-1, batch * HEADS, size).transpose(0, 1)
            for x in (self.query(hidden), key, value)
        ]
        weights = torch.softmax(torch.bmm(heads[0] * size**-0.5, heads[1].transpose(1, 2)), dim=-1)
        mixed = torch.bmm(weights, heads[2]).transpose(0, 1).reshape(time, batch, WIDTH)
        frames = frames + self.out(mixed)
        frames = self.norms[2](frames + self.feed(self.norms[1](frames)))
        return frames, key[-keys.shape[0] :], value[-values.shape[0] :]


class Emformer(nn.Module):
    """A streaming Emformer: one chunk and the caches of all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(BANDS, WIDTH)
        self.layers = nn.ModuleList(EmformerLayer() for _ in range(LAYERS))
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, chunk: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Return the scores of the chunk and the caches moved on."""
        frames, moved = self.first(chunk).transpose(0, 1), list[Tensor]()
        for i, layer in enumerate(self.layers):
            frames, *pair = layer(frames, caches[2 * i], caches[2 * i + 1])
            moved += pair
        return (self.out(frames.transpose(0, 1)), *moved)


@register_family("emformer-step", KIND)
def build_emformer_step() -> Example:
    """Build one step of an Emformer."""
    caches = tuple(torch.randn(16, 2, WIDTH) for _ in range(2 * LAYERS))
    axes = ({0: BATCH, 1: TIME}, *[{1: BATCH}] * len(caches))
    return Example(AdaptedStep(Emformer()), (torch.randn(2, 8, BANDS), *caches), axes)


class QwenAudioEncoder(nn.Module):
    """The audio encoder of Qwen3-ASR: three convolutions, then attention inside windows."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, 2, 1), nn.GELU()),
            *(nn.Conv2d(16, 16, 3, 2, 1), nn.GELU()),
            *(nn.Conv2d(16, 16, 3, 2, 1), nn.GELU()),
        )
        self.first = nn.Linear(16 * 5, WIDTH, bias=False)
        self.attends = nn.ModuleList(SelfAttention() for _ in range(LAYERS))
        self.feeds = nn.ModuleList(make_feed_forward(nn.GELU) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS + 1))
        self.project = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 128))

    def forward(self, mel: Tensor, mask: Tensor) -> Tensor:
        """Return one frame of eight of [batch, bands, time]."""
        maps = self.convolve(mel[:, None])
        batch, channels, bands, time = maps.shape
        frames = self.first(
            maps.permute(0, 3, 1, 2).contiguous().view(batch, time, channels * bands)
        )
        frames, mask = frames + make_sinusoids(time, WIDTH)[None], mask[:, ::8]
        for i, (attend, feed) in enumerate(zip(self.attends, self.feeds, strict=True)):
            frames = frames + attend(self.norms[2 * i](frames), mask)
            frames = frames + feed(self.norms[2 * i + 1](frames))
        return self.project(self.norms[-1](frames))


@register_family("qwen3-asr-encoder", KIND)
def build_qwen3_asr_encoder() -> Example:
    """Build Qwen3-ASR's audio encoder."""
    inputs = (torch.randn(2, BANDS, 96), make_padding_mask(96, 20))
    axes = ({0: BATCH, 2: TIME}, {0: BATCH, 1: TIME})
    return make_plain_example(QwenAudioEncoder(), *inputs, axes=axes)


class Predictor(nn.Module):
    """A transducer's predictor and joiner: two LSTM layers over tokens, then a sum and a Tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.memory = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.out = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, frames: Tensor) -> Tensor:
        """Return the scores of each frame behind each token."""
        hidden, _ = self.memory(self.embed(tokens))
        joined = self.parts[0](frames)[:, :, None] + self.parts[1](hidden)[:, None]
        return self.out(torch.tanh(joined))


@register_family("transducer-joint", KIND)
def build_transducer_joint() -> Example:
    """Build the predictor and joiner of a transducer."""
    axes = ({0: BATCH, 1: "written"}, {0: BATCH, 1: TIME})
    return make_plain_example(Predictor(), make_token_ids(6), torch.randn(2, 20, WIDTH), axes=axes)


class BranchformerLayer(nn.Module):
    """An E-Branchformer layer: attention beside a convolutional gate, then a merge."""

    def __init__(self) -> None:
        super().__init__()
        self.feeds = nn.ModuleList(make_feed_forward(nn.SiLU) for _ in range(2))
        self.attend = RelativeAttention()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.gate_norm = nn.LayerNorm(2 * WIDTH)
        self.gate = nn.Conv1d(2 * WIDTH, 2 * WIDTH, 15, padding=7, groups=2 * WIDTH)
        self.mix = nn.Conv1d(2 * WIDTH, 2 * WIDTH, 3, padding=1, groups=2 * WIDTH)
        self.merge = nn.Linear(2 * WIDTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))

    def forward(self, frames: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Run the layer."""
        frames = frames + 0.5 * self.feeds[0](self.norms[0](frames))
        attended = self.attend(self.norms[1](frames), mask, positions)
        value, gate = fn.gelu(self.wide(self.norms[2](frames))).chunk(2, dim=-1)
        gate = self.gate(self.gate_norm(gate).transpose(1, 2)).transpose(1, 2)
        both = torch.cat([attended, self.narrow(value * gate)], dim=-1)
        both = both + self.mix(both.transpose(1, 2)).transpose(1, 2)
        frames = frames + self.merge(both)
        frames = frames + 0.5 * self.feeds[1](self.norms[3](frames))
        return self.norms[4](frames)


class Branchformer(Conformer):
    """An E-Branchformer encoder with a CTC head (ESPnet, OWSM)."""

    def __init__(self) -> None:
        super().__init__("espnet")
        self.layers = nn.ModuleList(BranchformerLayer() for _ in range(LAYERS))


@register_family("e-branchformer", KIND)
def build_e_branchformer() -> Example:
    """Build an E-Branchformer."""
    return _make_lengths_example(Branchformer())
