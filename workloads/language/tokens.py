"""Tokenizers, made from the text itself: WordPiece for BERT, byte-level BPE for GPT-2."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers import decoders as decode
from tokenizers import models as model
from tokenizers import normalizers as normalize
from tokenizers import pre_tokenizers as split
from tokenizers import trainers as learn

_WORDPIECE_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNKNOWN, CLASSIFY, SEPARATE, MASK = range(5)  # their numbers
_BYTE_PAIRS_SPECIAL = ["<|endoftext|>"]
END_OF_TEXT = 0  # its number
_LETTERS_SHARE = 4  # at most this part of a vocabulary is letters, and as many letters within words


def wordpiece(lines: Iterable[str], vocabulary: int) -> Tokenizer:
    """BERT's: lower case, words cut into known pieces.

    The trainer numbers letters within words in the order of a hash table, which differs from process to process. They
    are numbered before, as if they were special, and the rarest letters are left out.
    """
    normalizer, splitter = normalize.BertNormalizer(lowercase=True), split.BertPreTokenizer()
    plain = [normalizer.normalize_str(line) for line in lines]
    counts = Counter(letter for line in plain for letter in line if not letter.isspace())
    by_count = sorted(counts, key=lambda letter: (-counts[letter], letter))
    letters = by_count[: vocabulary // _LETTERS_SHARE]
    rare = str.maketrans(dict.fromkeys(by_count[len(letters) :], " "))

    learner = Tokenizer(model.WordPiece(unk_token=_WORDPIECE_SPECIAL[UNKNOWN]))
    learner.pre_tokenizer = splitter
    numbered = [*_WORDPIECE_SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    trainer = learn.WordPieceTrainer(vocab_size=vocabulary, special_tokens=numbered, show_progress=False)
    learner.train_from_iterator((line.translate(rare) for line in plain), trainer)

    tokenizer = Tokenizer(model.WordPiece(learner.get_vocab(), unk_token=_WORDPIECE_SPECIAL[UNKNOWN]))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decode.WordPiece()
    tokenizer.add_special_tokens(_WORDPIECE_SPECIAL)
    return tokenizer


def byte_pairs(lines: Iterable[str], vocabulary: int) -> Tokenizer:
    """GPT-2's: any bytes, joined into ever longer pieces."""
    tokenizer = Tokenizer(model.BPE())
    tokenizer.pre_tokenizer = split.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decode.ByteLevel()
    trainer = learn.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=_BYTE_PAIRS_SPECIAL,
        initial_alphabet=split.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer
