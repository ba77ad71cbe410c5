"""The file that says which program trains which model."""

import dataclasses

import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.inputs.workloads import read_workloads
from tests.runtime.live_kit import job

GOOD = """\
commands:
  vgg16: ["{python}", -m, workloads.vgg16, --batch-size, "{batch_size}", "{{x}}", "{job_id}-{num_gpu}"]
emulated: [bert]
"""


def write(tmp_path, text: str):
    path = tmp_path / "programs.yaml"
    path.write_text(text)
    return path


def of_model(model: str):
    return dataclasses.replace(job("j1", 2), model=model)


def test_jobs_get_their_models_command(tmp_path):
    workloads = read_workloads(write(tmp_path, GOOD))
    first, second = workloads.applied([of_model("vgg16"), of_model("bert")])
    assert first.command == ("{python}", "-m", "workloads.vgg16", "--batch-size", "16", "{x}", "j1-2")
    assert second.command == ()


def test_a_model_without_a_command_is_named_with_those_that_have_one(tmp_path):
    workloads = read_workloads(write(tmp_path, GOOD))
    with pytest.raises(InputError) as caught:
        workloads.applied([of_model("vgg19")])
    for part in ("programs.yaml: names no command for model 'vgg19' of job j1", "vgg16", "emulated"):
        assert part in str(caught.value)


BAD = {
    "nothing": ("", ":1:1: is empty; a mapping with the key commands is needed"),
    "a list": ("[a]", ":1:1: a mapping with the key commands is needed"),
    "an unknown key": ("comands: {}\n", ":1:1: unknown key 'comands'"),
    "no command": ("commands: {}\n", "at least one model is needed"),
    "text for a list": ("commands:\n  m: python train.py\n", ":2:6: m: a list of words is needed"),
    "no words": ("commands:\n  m: []\n", ":2:6: m: 0 words; allowed: 1 to 200"),
    "an unknown name": ("commands:\n  m: [a, '{gpus}']\n", ":2:10: m: '{gpus}': allowed in braces: {python}"),
    "an attribute": ("commands:\n  m: [a, '{job_id.x}']\n", "allowed in braces"),
    "an open brace": ("commands:\n  m: [a, '{']\n", "a brace itself is written twice"),
    "both": ("commands:\n  m: [a]\nemulated: [m]\n", ":3:11: emulated: 'm' has a command too"),
    "text for emulated": ("commands:\n  m: [a]\nemulated: m\n", "emulated: a list of models is needed"),
    "commands as a list": ("commands: [a]\n", "commands: a mapping of models"),
}


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_bad_files(tmp_path, text, says):
    with pytest.raises(InputError) as caught:
        read_workloads(write(tmp_path, text))
    assert says in str(caught.value)
