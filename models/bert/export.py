"""Export a small BERT with random weights, as transformers 5 and torch's dynamo exporter write it.

    pip install torch==2.13.0 transformers==5.23.0 onnx onnxscript
    python models/bert/export.py new.onnx

Run with these versions, it gave the operators of model.onnx, each as often; weights differ.
"""

from __future__ import annotations

import sys

import torch
from torch.export import Dim
from transformers import BertConfig, BertModel

CONFIG = BertConfig(
    vocab_size=90,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=64,
    attn_implementation="sdpa",
)


class Bert(torch.nn.Module):
    """The model with a tensor for its output."""

    def __init__(self):
        super().__init__()
        self.m = BertModel(CONFIG, add_pooling_layer=False)

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.m(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state


def export(path: str) -> None:
    torch.manual_seed(0)
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    ids = torch.randint(3, 90, (2, 9))
    both = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    torch.onnx.export(
        Bert().eval(),
        (ids, mask, torch.zeros_like(ids)),
        path,
        input_names=["input_ids", "attention_mask", "token_type_ids"],
        output_names=["output"],
        opset_version=18,
        dynamo=True,
        dynamic_shapes=(both, both, both),
        external_data=False,
    )


if __name__ == "__main__":
    export(sys.argv[1])
