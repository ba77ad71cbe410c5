import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.models import Order
from cluster_exp.domain.policy import Trait, traits_of
from cluster_exp.domain.snapshot import DURATION_COLUMNS
from cluster_exp.policies.muri import Muri
from cluster_exp.policies.options import number
from cluster_exp.policies.registry import ALIASES, make_policy


def muri(spec: str) -> Muri:
    policy = make_policy(spec)
    assert isinstance(policy, Muri)
    return policy


def test_options_choose_a_variant_that_bears_their_name() -> None:
    policy = muri("muri-s:unpack=off:group=2")
    assert (policy.name, policy.unpack, policy.group_size) == ("muri-s:unpack=off:group=2", False, 2)
    assert muri("muri-l:order=worst").turns is Order.WORST


def test_variants_without_matching_say_so() -> None:
    assert traits_of(muri("muri-l")) == {Trait.FILLS, Trait.SHARES}
    assert traits_of(muri("muri-l:grouping=chunks")) == {Trait.FILLS, Trait.SHARES, Trait.UNWEIGHED}
    assert traits_of(make_policy("srsf")) == {Trait.FILLS}


def test_muri_l_reads_nothing_that_tells_a_length() -> None:
    assert not muri("muri-l").reads & DURATION_COLUMNS


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("muri-s:pack=off", ["unknown option 'pack'", "'muri-s'", "group, unpack, order, grouping"]),
        ("muri-s:group=5", ["'5' given for option 'group'", "2, 3, 4"]),
        ("muri-s:unpack", ["'' given for option 'unpack'", "on, off"]),
        ("muri-s:group=2:group=3", ["option 'group'", "twice"]),
        ("muri", ["unknown policy 'muri'", "nearest is 'muri-s'"]),
    ],
)
def test_bad_specs_are_explained(spec: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        make_policy(spec)
    for word in ("--policy: ", *words):
        assert word in str(caught.value)


def test_a_policy_without_options_refuses_all() -> None:
    with pytest.raises(InputError, match="it has none"):
        make_policy("srsf:group=2")


@pytest.mark.parametrize(("text", "good"), [("3", True), ("1", False), ("nan", False), ("x", False)])
def test_numbers_have_a_least_value(text: str, good: bool) -> None:
    option = number(2, "s")
    assert option.allowed == "from 2 s on"
    if good:
        assert option.parse(text) == 3.0
    else:
        with pytest.raises(ValueError):  # noqa: PT011
            option.parse(text)


@pytest.mark.parametrize("alias", ALIASES)
def test_published_names_are_aliases(alias: str) -> None:
    assert make_policy(alias).name == ALIASES[alias]
