"""Decoders of language models, as speech recognition and synthesis put them behind audio."""

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
    Example,
    ModelTable,
    make_padding_mask,
    make_text_example,
    make_token_ids,
    register_family,
    register_models,
)

KIND = "language models"
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 3 * WIDTH,
    "max_position_embeddings": 128,
    "pad_token_id": 1,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": WIDTH // HEADS}
DECODERS: ModelTable = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"num_key_value_heads": 2}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", GROUPED),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", GROUPED),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", GROUPED),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", GROUPED),
    "phi": ("PhiConfig", "PhiForCausalLM", {}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {"num_key_value_heads": 2}),
    "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "smollm3": ("SmolLM3Config", "SmolLM3ForCausalLM", {"num_key_value_heads": 2}),
    "granite": ("GraniteConfig", "GraniteForCausalLM", {"num_key_value_heads": 2}),
    "olmo2": ("Olmo2Config", "Olmo2ForCausalLM", {"num_key_value_heads": 2}),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", {"num_key_value_heads": 2}),
    "glm4": ("Glm4Config", "Glm4ForCausalLM", GROUPED),
}


def make_decoder_example(model: nn.Module, *, mask: bool = True) -> Example:
    """Return an example of a decoder without caches."""
    return make_text_example(model, "logits", mask=mask, use_cache=False)


register_models(KIND, DECODERS, COMMON, make_decoder_example)


def _make_gpt2() -> nn.Module:
    config = hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=128
    )
    return hf.GPT2LMHeadModel(config)


@register_family("gpt2", KIND)
def build_gpt2() -> Example:
    """Build a GPT-2."""
    return make_decoder_example(_make_gpt2())


@register_family("opt", KIND)
def build_opt() -> Example:
    """Build an OPT."""
    config = hf.OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        word_embed_proj_dim=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        ffn_dim=4 * WIDTH,
        max_position_embeddings=128,
    )
    return make_decoder_example(hf.OPTForCausalLM(config))


@register_family("bloom", KIND)
def build_bloom() -> Example:
    """Build a BLOOM, whose attention has ALiBi."""
    config = hf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS, pad_token_id=1
    )
    return make_decoder_example(hf.BloomForCausalLM(config))


@register_family("mamba", KIND)
def build_mamba() -> Example:
    """Build a Mamba, a state-space model."""
    config = hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS)
    return make_decoder_example(hf.MambaForCausalLM(config), mask=False)


class Step(nn.Module):
    """One step of a decoder: new ids and the caches of all layers in, logits and caches out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Return the logits and the caches, longer by the new ids."""
        pairs = list(zip(caches[::2], caches[1::2], strict=True))
        past = hf.DynamicCache(pairs)
        output = self.model(
            input_ids=ids, attention_mask=mask, past_key_values=past, use_cache=True
        )
        present = output.past_key_values
        flat = [x for layer in present.layers for x in (layer.keys, layer.values)]
        return (output.logits, *flat)


def make_step_example(model: nn.Module, heads: int, size: int, past: int = 5) -> Example:
    """Return an example of one step of a decoder with caches, as optimum exports it."""
    caches = tuple(torch.randn(2, heads, past, size) for _ in range(2 * LAYERS))
    inputs = (make_token_ids(3), make_padding_mask(3 + past, 0), *caches)
    axes = ({0: BATCH, 1: TIME}, {0: BATCH, 1: "total"}, *[{0: BATCH, 2: "past"}] * len(caches))
    return Example(Step(model), inputs, tuple(axes))


@register_family("llama-step", KIND)
def build_llama_step() -> Example:
    """Build one step of a Llama with caches."""
    config = hf.LlamaConfig(**COMMON, num_key_value_heads=2)
    return make_step_example(hf.LlamaForCausalLM(config), 2, WIDTH // HEADS)


@register_family("qwen3-step", KIND)
def build_qwen3_step() -> Example:
    """Build one step of a Qwen3 with caches."""
    return make_step_example(
        hf.Qwen3ForCausalLM(hf.Qwen3Config(**COMMON | GROUPED)), 2, WIDTH // HEADS
    )


@register_family("gpt2-step", KIND)
def build_gpt2_step() -> Example:
    """Build one step of a GPT-2 with caches."""
    return make_step_example(_make_gpt2(), HEADS, WIDTH // HEADS)
