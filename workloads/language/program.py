"""The workload of the language models, and their options."""

import argparse
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from workloads.command import Program, positive
from workloads.communicator import Communicator
from workloads.errors import WorkloadError
from workloads.language import tokens
from workloads.language.models import LONGEST, VOCABULARY, bert, gpt2
from workloads.language.text import BYTES_PER_TOKEN, TextFiles, decoded
from workloads.order import DataOrder, Sample
from workloads.workload import Place, Workload

IGNORED = -100  # a label that counts in no loss
_TOKENIZER_BYTES = 4 * 1024 * 1024  # of the text's beginning, from which the tokenizer is made
_LEARNING_RATE = 1e-4
_CLIP_NORM = 1.0
_MASKED = 0.15  # share of the tokens that BERT has to fill in (Devlin et al., 2019, section 3.1)
_HIDDEN, _SWAPPED = 0.8, 0.1  # shares of those that read [MASK], and that read some other token


class Piece(NamedTuple):
    """A piece of text as it lies on disk, and which visit to it this is."""

    sample: Sample
    content: bytes


class Tokens(NamedTuple):
    """Tokenised pieces, each (batch, length)."""

    inputs: torch.Tensor
    attention: torch.Tensor  # 1 where there is a token, 0 where there is padding
    labels: torch.Tensor


class LanguageModelling(Workload[list[Piece], Tokens]):
    """Learns a text with a tokenizer that was made from its beginning and is part of the state."""

    clip_norm = _CLIP_NORM

    def __init__(
        self,
        model: torch.nn.Module,
        text: TextFiles,
        order: DataOrder,
        vocabulary: int,
        length: int,
        device: torch.device,
    ) -> None:
        """`length` is in tokens; the model has `vocabulary` of them."""
        self.model = model.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=_LEARNING_RATE)
        self._text = text
        self._order = order
        self._vocabulary = vocabulary
        self._length = length
        self._device = device
        self._tokenizer: Tokenizer | None = None

    def start(self, comm: Communicator) -> None:
        """Ranks take rank 0's weights and its tokenizer."""
        super().start(comm)
        made = ""
        if comm.rank == 0:
            made = self._make_tokenizer(self._text.head(_TOKENIZER_BYTES), self._vocabulary).to_str()
        self._tokenizer = Tokenizer.from_str(comm.broadcast(made))

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; RuntimeError before `start` and `load_state_dict`."""
        if self._tokenizer is None:
            raise RuntimeError("neither started nor resumed")
        return self._tokenizer

    def read(self) -> list[Piece]:
        """The pieces of the next batch."""
        return [Piece(sample, self._text.read(sample.number)) for sample in self._order.take()]

    def prepare(self, raw: list[Piece]) -> Tokens:
        """Tokenises them and sets the task."""
        rows = [self._task(decoded(piece.content), self._order.generator(piece.sample)) for piece in raw]
        inputs, attention, labels = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
        return Tokens(inputs, attention, labels)

    def loss(self, batch: Tokens) -> torch.Tensor:
        """Cross entropy, a mean over the tokens that are asked for."""
        inputs, attention, labels = (part.to(self._device) for part in batch)
        logits = self.model(input_ids=inputs, attention_mask=attention).logits
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)

    def state_dict(self) -> dict[str, Any]:
        """The position in the data, and the tokenizer."""
        return {"order": self._order.state_dict(), "tokenizer": self.tokenizer.to_str()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a saved position. Raises WorkloadError when the text is another."""
        self._order.load_state_dict(state["order"])
        self._tokenizer = Tokenizer.from_str(state["tokenizer"])

    def _padded(self, ids: list[int], padding: int) -> npt.NDArray[np.int64]:
        row = np.full(self._length, padding, dtype=np.int64)
        row[: len(ids)] = ids
        return row

    @abstractmethod
    def _make_tokenizer(self, lines: list[str], vocabulary: int) -> Tokenizer:
        """The model's kind of tokenizer."""

    @abstractmethod
    def _task(self, text: str, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], ...]:
        """Inputs, attention and labels of one piece, each of the full length."""


class MaskedWords(LanguageModelling):
    """BERT's task: some tokens are hidden or swapped, and have to be told."""

    def _make_tokenizer(self, lines: list[str], vocabulary: int) -> Tokenizer:
        return tokens.wordpiece(lines, vocabulary)

    def _task(self, text: str, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], ...]:
        words = self.tokenizer.encode(text).ids[: self._length - 2] or [tokens.UNKNOWN]
        row = self._padded([tokens.CLASSIFY, *words, tokens.SEPARATE], tokens.PAD)
        asked = np.zeros(self._length, dtype=bool)
        asked[1 : len(words) + 1] = rng.random(len(words)) < _MASKED
        asked[1 + int(rng.integers(len(words)))] = True  # a piece without a question would have no loss
        fate = rng.random(self._length)
        inputs = row.copy()
        inputs[asked & (fate < _HIDDEN)] = tokens.MASK
        swapped = asked & (fate >= _HIDDEN) & (fate < _HIDDEN + _SWAPPED)
        inputs[swapped] = rng.integers(self.tokenizer.get_vocab_size(), size=int(swapped.sum()))
        attention = (np.arange(self._length) < len(words) + 2).astype(np.int64)
        return inputs, attention, np.where(asked, row, IGNORED)


class NextWord(LanguageModelling):
    """GPT-2's task: what comes next."""

    def _make_tokenizer(self, lines: list[str], vocabulary: int) -> Tokenizer:
        return tokens.byte_pairs(lines, vocabulary)

    def _task(self, text: str, rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], ...]:
        words = self.tokenizer.encode(text).ids[: self._length] or [tokens.END_OF_TEXT]
        ids = [*words, tokens.END_OF_TEXT]
        inputs = self._padded(ids[:-1], tokens.END_OF_TEXT)
        attention = (np.arange(self._length) < len(ids) - 1).astype(np.int64)
        return inputs, attention, self._padded(ids[1:], IGNORED)


def language_program(name: str, about: str) -> Program:
    """The script of a language model."""
    task, model = (MaskedWords, bert) if name == "bert" else (NextWord, gpt2)
    longest, vocabularies = LONGEST[name], VOCABULARY[name]

    def build(args: argparse.Namespace, place: Place) -> LanguageModelling:
        length = args.sequence_length or longest[args.size]
        if not 4 <= length <= longest[args.size]:
            raise WorkloadError(
                f"{length} is given, 4 to {longest[args.size]} are allowed with --size {args.size}",
                where="--sequence-length",
            )
        text = TextFiles(args.data, length * BYTES_PER_TOKEN)
        order = DataOrder(len(text), args.batch_size, args.seed, place.rank, place.world)
        return task(model(args.size), text, order, vocabularies[args.size], length, place.device)

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--data", required=True, metavar="PATH", help="a text file, such as WikiText's, or a folder of .txt files"
        )
        lengths = ", ".join(f"{size} {number}" for size, number in longest.items())
        parser.add_argument(
            "--sequence-length", type=positive, metavar="N", help=f"tokens of a sample (default and most: {lengths})"
        )

    return Program(name, about, {"full": 4, "small": 4, "tiny": 4}, add_options, build)
