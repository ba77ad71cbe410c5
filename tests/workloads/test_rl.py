"""Games that can be left and taken up again, and what is learnt from them."""

import random

import numpy as np
import pytest
import torch

from workloads.errors import WorkloadError
from workloads.rl.a2c import ActorCritic, discounted
from workloads.rl.atari import SIDE, STACK, Game
from workloads.rl.dqn import DeepQ
from workloads.rl.games import draws_of, seed_of
from workloads.rl.replay import Replay

CPU = torch.device("cpu")


def play(game: Game, actions: list[int]) -> list[tuple[float, bool, bytes]]:
    return [(*game.step(action), game.frames.tobytes()) for action in actions]


@pytest.mark.parametrize("name", ["Pong", "Breakout", "Qbert", "Seaquest"])
def test_a_game_goes_on_from_its_state_as_if_never_left(name: str) -> None:
    choose = random.Random(5)
    game = Game(name, 1)
    play(game, [choose.randrange(game.num_actions) for _ in range(101)])
    state = game.state_dict()
    state = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    actions = [choose.randrange(game.num_actions) for _ in range(400)]
    other = Game(name, 2)
    other.load_state_dict(state)
    assert play(game, actions) == play(other, actions)


def test_a_game_goes_on_over_the_end_of_its_episodes() -> None:
    game, other = Game("Breakout", 1), Game("Breakout", 9)
    choose = random.Random(1)
    state = game.state_dict()
    actions = [choose.randrange(game.num_actions) for _ in range(600)]
    played = play(game, actions)
    assert sum(ended for _, ended, _ in played) >= 2
    other.load_state_dict(state)
    assert play(other, actions) == played


def test_seeds_make_games_differ_and_repeat() -> None:
    actions = [2, 3] * 20
    one, again, other = (play(Game("Pong", seed), actions) for seed in (1, 1, 2))
    assert one == again != other


def test_an_episode_begins_with_one_frame_and_rewards_are_signs() -> None:
    game = Game("Breakout", 3)
    assert game.frames.shape == (STACK, SIDE, SIDE)
    assert [bool(frame.any()) for frame in game.frames] == [False, False, False, True]
    choose = random.Random(2)
    steps = [game.step(choose.randrange(game.num_actions)) for _ in range(300)]
    assert {step.reward for step in steps} <= {-1.0, 0.0, 1.0}
    assert any(step.reward for step in steps)


def test_a_game_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(WorkloadError, match=r"--game: Pong2 is given; allowed are Adventure, .*Pong.*Zaxxon$"):
        Game("Pong2", 0)


def test_no_two_generators_of_a_job_have_one_seed() -> None:
    seeds = [seed_of(seed, rank, number) for seed in range(3) for rank in range(4) for number in range(16)]
    seeds += [draws_of(seed, rank).initial_seed() for seed in range(3) for rank in range(4)]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("steps", [6, 30, 47])
def test_a_replay_buffer_gives_what_the_agent_saw(steps: int) -> None:
    """Against stacks that were kept whole, with episodes of several lengths, before and after the buffer is full."""
    choose = random.Random(steps)
    buffer = Replay(30)
    kept = {}
    stack = np.zeros((STACK, 1), dtype=np.uint8)
    fresh = True
    for number in range(1, steps + 1):
        stack = np.concatenate(((np.zeros_like(stack) if fresh else stack)[1:], [[number]]))
        fresh = choose.random() < 0.25
        kept[number] = (stack, number % 5, float(number), fresh)
        buffer.add(np.full((SIDE, SIDE), number, np.uint8), number % 5, float(number), fresh)
    batch = buffer.sample(500, torch.Generator().manual_seed(1))
    oldest = max(1, steps - 29)
    drawn = {int(reward) for reward in batch.rewards}
    assert drawn == set(range(oldest + STACK - 1, steps))
    for row, reward in enumerate(batch.rewards):
        stack, action, _, ended = kept[int(reward)]
        assert batch.seen[row, :, 0, 0].tolist() == stack[:, 0].tolist()
        assert (int(batch.actions[row]), bool(batch.ended[row])) == (action, ended)
        if not ended:
            assert batch.seen_next[row, :, 5, 5].tolist() == kept[int(reward) + 1][0][:, 0].tolist()


@pytest.mark.parametrize("steps", [10, 70])
def test_a_replay_buffer_is_resumed_where_it_was(steps: int) -> None:
    one, other = Replay(32), Replay(32)
    for number in range(steps):
        one.add(np.full((SIDE, SIDE), number, np.uint8), number, 0.0, number % 9 == 0)
    other.load_state_dict(one.state_dict())
    for buffer in one, other:
        buffer.add(np.full((SIDE, SIDE), 200, np.uint8), 1, 1.0, False)
    ours, theirs = (buffer.sample(64, torch.Generator().manual_seed(3)) for buffer in (one, other))
    assert all(torch.equal(mine, yours) for mine, yours in zip(ours, theirs, strict=True))


def test_returns_stop_at_the_end_of_an_episode() -> None:
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    ended = torch.tensor([[False, False], [True, False], [False, False]])
    got = discounted(rewards, ended, torch.tensor([10.0, 100.0]))
    want = [[1.0, 0.99 + 0.99**3 * 100], [0.0, 1.0 + 0.99**2 * 100], [2.0 + 9.9, 99.0]]
    assert torch.allclose(got, torch.tensor(want))


def test_the_target_network_follows_now_and_then_only() -> None:
    torch.manual_seed(0)
    work = DeepQ(Game("Pong", 1), Replay(200), 16, 4, "tiny", draws_of(0, 0), CPU)
    same = []
    for _ in range(10):
        work.optimizer.zero_grad()
        work.loss(work.prepare(work.read())).backward()
        work.optimizer.step()
        work.updated()
        saved = work.state_dict()["target"]
        same.append(all(torch.equal(saved[key], value) for key, value in work.model.state_dict().items()))
    assert same == [False, False, False, False, True] * 2
    assert work.state_dict()["played"] == 64 + 9 * 4


def test_actions_that_pay_become_likelier() -> None:
    """A2C on a made-up rollout in which action 2 is rewarded, and no other."""
    torch.manual_seed(0)
    work = ActorCritic([Game("Pong", 1), Game("Pong", 2)], 4, "tiny", draws_of(0, 0), CPU)
    rollout = work.prepare(work.read())
    actions = torch.tensor([[2, 1], [0, 2], [2, 3], [1, 2]])
    rewards, ended = (actions == 2).float(), torch.ones(4, 2, dtype=torch.bool)
    rollout = rollout._replace(actions=actions, rewards=rewards, ended=ended)

    def chance() -> float:
        return float(torch.softmax(work.model(rollout.seen.flatten(0, 1))[:, :-1], dim=1)[:, 2].mean().detach())

    before = chance()
    for _ in range(20):
        work.optimizer.zero_grad()
        work.loss(rollout).backward()
        work.optimizer.step()
    assert chance() > before + 0.1
