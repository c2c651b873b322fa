"""What docs/integrations.md prints, to be run, and models with random weights to run it on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_PAGE = (Path(__file__).parents[2] / "docs/integrations.md").read_text(encoding="utf-8")


def marked(name: str) -> str:
    """The block that is marked with ``<!-- tested: name -->``."""
    (found,) = re.findall(rf"<!-- tested: {name} -->\n```\w+\n(.*?)```", _PAGE, re.DOTALL)
    return str(found)


def run_commands_of(tool: str) -> str:
    """Run the commands of the block that ``tool`` is in, here; return all that they say."""
    (block,) = [x for x in re.findall(r"```sh\n(.*?)```", _PAGE, re.DOTALL) if tool in x]
    told = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "OLIVE_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", block],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **told},
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def llama(folder: Path) -> None:
    """A Llama with a tokenizer, as a folder of transformers."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = LlamaConfig(vocab_size=128, num_hidden_layers=2, intermediate_size=64, **sizes, **ids)
    LlamaForCausalLM(config).save_pretrained(folder)
    vocab = {text: i for i, text in enumerate(["<pad>", "<s>", "</s>", *map(chr, range(32, 127))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    named = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder)
