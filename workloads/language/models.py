"""BERT and GPT-2 from configurations of the transformers library; weights are drawn, not downloaded."""

from torch import nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

LONGEST = {
    "bert": {"full": 512, "small": 128, "tiny": 32},
    "gpt2": {"full": 1024, "small": 128, "tiny": 32},
}  # tokens of a sample
VOCABULARY = {
    "bert": {"full": 30522, "small": 8192, "tiny": 512},
    "gpt2": {"full": 50257, "small": 8192, "tiny": 512},
}  # tokens that a model knows
_WIDTH = {"full": 768, "small": 256, "tiny": 32}
_LAYERS = {"full": 12, "small": 4, "tiny": 2}
_HEADS = {"full": 12, "small": 4, "tiny": 2}


def bert(size: str) -> nn.Module:
    """BERT; the full size is bert-base-uncased's (Devlin et al., 2019)."""
    config = BertConfig(
        vocab_size=VOCABULARY["bert"][size],
        hidden_size=_WIDTH[size],
        num_hidden_layers=_LAYERS[size],
        num_attention_heads=_HEADS[size],
        intermediate_size=4 * _WIDTH[size],
        max_position_embeddings=LONGEST["bert"][size],
    )
    return BertForMaskedLM(config)


def gpt2(size: str) -> nn.Module:
    """GPT-2; the full size is the smallest of the published ones (Radford et al., 2019, table 2)."""
    config = GPT2Config(
        vocab_size=VOCABULARY["gpt2"][size],
        n_positions=LONGEST["gpt2"][size],
        n_embd=_WIDTH[size],
        n_layer=_LAYERS[size],
        n_head=_HEADS[size],
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)
