"""Tokenizers and the tasks made with them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from tests.workloads.kit import DEADLINE_S, ROOT
from workloads.communicator import SingleProcess
from workloads.language import tokens
from workloads.language.models import bert, gpt2
from workloads.language.program import IGNORED, LanguageModelling, MaskedWords, NextWord, Tokens
from workloads.language.text import TextFiles
from workloads.order import DataOrder

LENGTH = 32
MAKERS = {"wordpiece": tokens.wordpiece, "byte_pairs": tokens.byte_pairs}


def modelling(kind: type[LanguageModelling], text: Path, batch_size: int = 4) -> LanguageModelling:
    torch.manual_seed(0)
    model = bert("tiny") if kind is MaskedWords else gpt2("tiny")
    files = TextFiles(text, LENGTH * 5)
    work = kind(model, files, DataOrder(len(files), batch_size, 0), 512, LENGTH, torch.device("cpu"))
    work.start(SingleProcess())
    return work


@pytest.mark.parametrize("kind", MAKERS)
def test_a_tokenizer_is_the_same_in_every_process(kind: str, text: Path) -> None:
    code = (
        "import sys; from workloads.language import tokens\n"
        f"made = tokens.{kind}(open(sys.argv[1], encoding='utf-8').read().splitlines(), 600)\n"
        "sys.stdout.write(made.to_str())"
    )
    command = [sys.executable, "-c", code, str(text)]
    runs = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ours = MAKERS[kind](text.read_text().splitlines(), 600).to_str()
    assert [run.communicate(timeout=DEADLINE_S)[0] == ours for run in runs] == [True, True]


def test_the_numbers_of_special_tokens_are_those_that_the_tasks_use(text: Path) -> None:
    lines = text.read_text().splitlines()
    pieces, pairs = tokens.wordpiece(lines, 512), tokens.byte_pairs(lines, 512)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [pieces.token_to_id(name) for name in names] == [
        tokens.PAD,
        tokens.UNKNOWN,
        tokens.CLASSIFY,
        tokens.SEPARATE,
        tokens.MASK,
    ]
    assert pairs.token_to_id("<|endoftext|>") == tokens.END_OF_TEXT
    assert pieces.encode("[MASK]").ids == [tokens.MASK]
    assert (pieces.get_vocab_size(), pairs.get_vocab_size()) == (512, 512)


def test_known_text_comes_back_and_any_bytes_do_from_byte_pairs(text: Path) -> None:
    lines = text.read_text().splitlines()
    pieces, pairs = tokens.wordpiece(lines, 2000), tokens.byte_pairs(lines, 2000)
    word = lines[0].split()[0]
    assert pieces.decode(pieces.encode(f"{word} {word}").ids) == f"{word} {word}".lower()
    assert len(pieces.encode(word).ids) < len(word)
    for strange in lines[0], "Ünïcödé 漢字 \t\n ☃", "  ":
        assert pairs.decode(pairs.encode(strange).ids) == strange


def test_an_alphabet_larger_than_the_vocabulary_leaves_its_rarest_letters_out() -> None:
    lines = ["aaa bbb " * 50, " ".join(chr(number) for number in range(0x3B1, 0x3B1 + 200))]
    pieces = tokens.wordpiece(lines, 100)
    assert pieces.get_vocab_size() <= 100
    assert pieces.encode("aaa").ids != [tokens.UNKNOWN]


def test_berts_task_asks_for_some_tokens_and_for_no_padding(text: Path) -> None:
    work = modelling(MaskedWords, text, batch_size=64)
    raw = work.read()
    inputs, attention, labels = work.prepare(raw)
    asked = labels != IGNORED
    real = attention.bool()
    assert inputs.shape == attention.shape == labels.shape == (64, LENGTH)
    assert asked.any(dim=1).all()
    assert not (asked & ~real).any()
    assert 0.10 < float(asked.sum() / real.sum()) < 0.25
    assert 0.65 < float((inputs[asked] == tokens.MASK).float().mean()) < 0.92
    assert not (inputs[~asked] == tokens.MASK).any()
    assert (inputs[:, 0] == tokens.CLASSIFY).all()
    assert ((inputs == tokens.SEPARATE) & ~asked).any(dim=1).all()
    assert (inputs[~real] == tokens.PAD).all()
    again = work.prepare(raw)
    assert torch.equal(again.inputs, inputs)
    assert torch.equal(again.labels, labels)


def test_gpts_task_is_the_next_token(text: Path) -> None:
    work = modelling(NextWord, text)
    work._length = 200  # longer than a piece has tokens: padded
    inputs, attention, labels = work.prepare(work.read())
    for row in range(4):
        count = int(attention[row].sum())
        assert 32 < count < 200
        assert labels[row, : count - 1].tolist() == inputs[row, 1:count].tolist()
        assert labels[row, count - 1] == tokens.END_OF_TEXT
        assert (labels[row, count:] == IGNORED).all()
    assert work.tokenizer.decode(inputs[0].tolist()).strip() in " ".join(text.read_text().split("\n"))


@pytest.mark.parametrize("kind", [MaskedWords, NextWord])
@pytest.mark.parametrize("content", [" " * 200, "\x00" * 200, "x" * 200, ""])
def test_a_piece_without_words_still_has_a_loss(kind: type[LanguageModelling], content: str, text: Path) -> None:
    work = modelling(kind, text)
    row = work._task(content, np.random.default_rng(0))
    batch = Tokens(*(torch.from_numpy(part)[None] for part in row))
    assert torch.isfinite(work.loss(batch)), row


def test_a_tokenizer_is_part_of_the_state(text: Path) -> None:
    work, resumed = modelling(MaskedWords, text), modelling(MaskedWords, text)
    other = tokens.wordpiece(["other words than those of the text"] * 9, 200)
    state = work.state_dict()
    assert Tokenizer.from_str(state["tokenizer"]).get_vocab() == work.tokenizer.get_vocab()
    resumed.load_state_dict({**state, "tokenizer": other.to_str()})
    assert resumed.tokenizer.get_vocab() == other.get_vocab()


@pytest.mark.parametrize("kind", [MaskedWords, NextWord])
def test_a_text_is_learnt(kind: type[LanguageModelling], text: Path) -> None:
    work = modelling(kind, text, batch_size=16)
    for group in work.optimizer.param_groups:
        group["lr"] = 3e-3
    losses = []
    for _ in range(40):
        work.optimizer.zero_grad()
        loss = work.loss(work.prepare(work.read()))
        loss.backward()
        work.optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
