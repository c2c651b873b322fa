"""Text encoders and encoder-decoders, as speech systems use them for text, prosody and search."""

from __future__ import annotations

import torch
import transformers as hf
from torch import Tensor, nn

from .family import (
    BATCH,
    HEADS,
    LAYERS,
    TIME,
    VOCABULARY,
    WIDTH,
    Adapter,
    Example,
    ModelTable,
    make_padding_mask,
    make_plain_example,
    make_text_example,
    make_token_ids,
    register_family,
    register_models,
)

KIND = "text encoders"
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
}
ENCODERS: ModelTable = {
    "bert": ("BertConfig", "BertModel", {}),
    "roberta": ("RobertaConfig", "RobertaModel", {}),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaModel", {}),
    "camembert-ner": ("CamembertConfig", "CamembertForTokenClassification", {}),
    "albert": ("AlbertConfig", "AlbertModel", {"embedding_size": 32}),
    "electra": ("ElectraConfig", "ElectraModel", {"embedding_size": 32}),
    "mpnet": ("MPNetConfig", "MPNetModel", {}),
    "deberta": (
        "DebertaConfig",
        "DebertaModel",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "deberta-v2": (
        "DebertaV2Config",
        "DebertaV2Model",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 32,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
    ),
    "modernbert": ("ModernBertConfig", "ModernBertModel", {"num_hidden_layers": 3}),
    "mobilebert": (
        "MobileBertConfig",
        "MobileBertModel",
        {"embedding_size": 32, "true_hidden_size": 32, "intra_bottleneck_size": 32},
    ),
    "ernie": ("ErnieConfig", "ErnieModel", {}),
    "roformer": ("RoFormerConfig", "RoFormerModel", {"embedding_size": WIDTH}),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel", {"embedding_size": WIDTH}),
    "nomic-bert": ("NomicBertConfig", "NomicBertModel", {}),
    "xlm-roberta-classifier": ("XLMRobertaConfig", "XLMRobertaForSequenceClassification", {}),
    "convbert": ("ConvBertConfig", "ConvBertModel", {"embedding_size": 32}),
    "esm": ("EsmConfig", "EsmModel", {"position_embedding_type": "rotary"}),
    "eurobert": ("EuroBertConfig", "EuroBertModel", {}),
    "ibert": ("IBertConfig", "IBertModel", {}),
}


register_models(KIND, ENCODERS, COMMON, make_text_example)


@register_family("distilbert", KIND)
def build_distilbert() -> Example:
    """Build a DistilBERT."""
    config = hf.DistilBertConfig(
        vocab_size=VOCABULARY, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS, hidden_dim=4 * WIDTH
    )
    return make_text_example(hf.DistilBertModel(config))


@register_family("xlnet", KIND)
def build_xlnet() -> Example:
    """Build an XLNet."""
    config = hf.XLNetConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=4 * WIDTH
    )
    return make_text_example(hf.XLNetModel(config), use_mems=False)


@register_family("funnel", KIND)
def build_funnel() -> Example:
    """Build the encoder of a Funnel transformer."""
    config = hf.FunnelConfig(
        vocab_size=VOCABULARY,
        block_sizes=[1, 1],
        d_model=WIDTH,
        n_head=HEADS,
        d_head=16,
        d_inner=4 * WIDTH,
        num_decoder_layers=1,
    )
    return make_text_example(hf.FunnelBaseModel(config))


@register_family("clip-text", KIND)
def build_clip_text() -> Example:
    """Build CLIP's text encoder, which conditions image and audio diffusion."""
    config = hf.CLIPTextConfig(**COMMON)
    return make_text_example(hf.CLIPTextModel(config), "last_hidden_state")


def _make_t5_config(
    kind: type[hf.PretrainedConfig] = hf.T5Config, **more: object
) -> hf.PretrainedConfig:
    return kind(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=16,
        d_ff=4 * WIDTH,
        num_layers=LAYERS,
        num_heads=HEADS,
        use_cache=False,
        **more,
    )


@register_family("t5-encoder", KIND)
def build_t5_encoder() -> Example:
    """Build T5's encoder, which conditions MusicGen, Parler-TTS and image diffusion."""
    return make_text_example(hf.T5EncoderModel(_make_t5_config()))


@register_family("flan-t5-encoder", KIND)
def build_flan_t5_encoder() -> Example:
    """Build a T5 1.1 encoder, with gated feed-forwards."""
    return make_text_example(hf.T5EncoderModel(_make_t5_config(feed_forward_proj="gated-gelu")))


@register_family("umt5-encoder", KIND)
def build_umt5_encoder() -> Example:
    """Build UMT5's encoder, whose layers have a bias table each."""
    return make_text_example(hf.UMT5EncoderModel(_make_t5_config(hf.UMT5Config)))


def make_encoder_decoder_example(model: nn.Module) -> Example:
    """Return an example that reads a sentence, its mask, and the tokens written so far."""
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    inputs = (make_token_ids(), make_padding_mask(), make_token_ids(7))
    axes = ({0: BATCH, 1: TIME}, {0: BATCH, 1: TIME}, {0: BATCH, 1: "written"})
    return Example(Adapter(model, names, use_cache=False), inputs, axes)


@register_family("t5", KIND)
def build_t5() -> Example:
    """Build a whole T5, as grapheme-to-phoneme models use it (ByT5)."""
    return make_encoder_decoder_example(hf.T5ForConditionalGeneration(_make_t5_config()))


SEQ2SEQ = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 4 * WIDTH,
    "decoder_ffn_dim": 4 * WIDTH,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
    "eos_token_id": 2,
}


@register_family("bart", KIND)
def build_bart() -> Example:
    """Build a BART."""
    return make_encoder_decoder_example(hf.BartForConditionalGeneration(hf.BartConfig(**SEQ2SEQ)))


@register_family("marian", KIND)
def build_marian() -> Example:
    """Build a Marian translator."""
    config = hf.MarianConfig(**SEQ2SEQ, decoder_start_token_id=1)
    return make_encoder_decoder_example(hf.MarianMTModel(config))


@register_family("nllb", KIND)
def build_nllb() -> Example:
    """Build an M2M-100, of which NLLB is one."""
    return make_encoder_decoder_example(
        hf.M2M100ForConditionalGeneration(hf.M2M100Config(**SEQ2SEQ))
    )


@register_family("pegasus", KIND)
def build_pegasus() -> Example:
    """Build a Pegasus."""
    return make_encoder_decoder_example(
        hf.PegasusForConditionalGeneration(hf.PegasusConfig(**SEQ2SEQ))
    )


class Punctuator(nn.Module):
    """Restore punctuation as CT-Transformer does: torch's own encoder over word ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 6)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the scores of each mark behind each word."""
        return self.head(self.encoder(self.embed(ids), src_key_padding_mask=mask == 0))


@register_family("torch-encoder", KIND)
def build_torch_encoder() -> Example:
    """Build torch's own TransformerEncoder with an embedding and a head."""
    return make_plain_example(Punctuator(), make_token_ids(), make_padding_mask())


class PhonemeWriter(nn.Module):
    """Turn letters into phonemes with torch's own nn.Transformer, as DeepPhonemizer does."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("position", torch.randn(1, 128, WIDTH))
        self.transformer = nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, 4 * WIDTH, batch_first=True, norm_first=False
        )
        self.head = nn.Linear(WIDTH, 50)

    def forward(self, letters: Tensor, phonemes: Tensor) -> Tensor:
        """Return the scores of the next phoneme."""
        source = self.embed(letters) + self.position[:, : letters.shape[1]]
        target = self.embed(phonemes) + self.position[:, : phonemes.shape[1]]
        length = phonemes.shape[1]
        causal = torch.full((length, length), float("-inf")).triu(1)
        return self.head(self.transformer(source, target, tgt_mask=causal, tgt_is_causal=True))


@register_family("torch-transformer", KIND)
def build_torch_transformer() -> Example:
    """Build torch's own encoder-decoder over letters and phonemes."""
    axes = ({0: BATCH, 1: TIME}, {0: BATCH, 1: "written"})
    return make_plain_example(PhonemeWriter(), make_token_ids(), make_token_ids(7), axes=axes)
