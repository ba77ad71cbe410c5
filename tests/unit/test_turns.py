"""The arbiter of turns, message by message."""

import pytest

from cluster_exp.protocol.turns import (
    Arbiter,
    Discipline,
    Go,
    Granted,
    JobKey,
    Look,
    Message,
    Process,
    Stop,
    TurnError,
)

STORAGE, CPU, GPU, NETWORK = range(4)
A, B, C = ("a", 1), ("b", 1), ("c", 1)


def process(key: JobKey, rank: int = 0) -> Process:
    return Process(key, rank)


def together(members: dict[JobKey, int], discipline: Discipline = Discipline.LOCKSTEP, batch: int = 5) -> Arbiter:
    """A group whose members have all come and been told to begin with turns."""
    arbiter = Arbiter()
    arbiter.set_group(1, 1, list(members.items()), batch, discipline)
    for key in members:
        arbiter.join(process(key), 1)
    for key in members:
        assert arbiter.ask(process(key)) == [Go(process(key), True, batch)]
    return arbiter


def granted(*keys: JobKey) -> list[Message]:
    return [Granted(process(key)) for key in keys]


def test_a_job_alone_is_told_once_that_it_runs_free():
    arbiter = Arbiter()
    arbiter.set_group(1, 1, [(A, 0)], 5)
    assert arbiter.join(process(A), 1) == []
    assert arbiter.ask(process(A)) == [Go(process(A), False, 5)]
    with pytest.raises(TurnError, match="asks for stage 0 in phase free"):
        arbiter.take(process(A), STORAGE)


def test_a_job_of_no_group_runs_free():
    arbiter = Arbiter()
    arbiter.join(process(A), 1)
    assert arbiter.ask(process(A)) == [Go(process(A), False, 1)]


def test_company_waits_until_the_free_job_reaches_its_boundary():
    arbiter = Arbiter()
    arbiter.set_group(1, 1, [(A, 0)], 5)
    arbiter.join(process(A), 1)
    arbiter.ask(process(A))
    arbiter.set_group(1, 2, [(A, 0), (B, 2)], 7)
    arbiter.join(process(B), 1)
    assert arbiter.ask(process(B)) == [Look(process(A))]
    assert arbiter.ask(process(A)) == [Go(process(A), True, 7), Go(process(B), True, 7)]


def test_when_company_leaves_the_last_one_runs_free_from_its_next_boundary():
    arbiter = together({A: 0, B: 2})
    arbiter.take(process(A), STORAGE)
    assert arbiter.leave(process(B)) == []
    arbiter.give(process(A))
    for stage in (CPU, GPU, NETWORK):
        assert arbiter.take(process(A), stage) == granted(A)
        arbiter.give(process(A))
    assert arbiter.ask(process(A)) == [Go(process(A), False, 5)]


def test_a_slot_begins_when_all_gave_back_and_all_ask():
    arbiter = together({A: 0, B: 2})
    assert arbiter.take(process(A), STORAGE) == granted(A)  # slot 0; b is not under way and not waited for
    assert arbiter.take(process(B), STORAGE) == []
    assert arbiter.give(process(A)) == []
    assert arbiter.take(process(A), CPU) == granted(A)  # slot 1
    arbiter.give(process(A))
    assert arbiter.take(process(A), GPU) == granted(A, B)  # slot 2 is where b's stage is storage
    assert arbiter.give(process(A)) == []
    assert arbiter.take(process(A), NETWORK) == []
    assert arbiter.give(process(B)) == []
    assert arbiter.take(process(B), CPU) == granted(A, B)
    arbiter.give(process(A))
    arbiter.give(process(B))
    assert arbiter.take(process(B), GPU) == []  # a rests between its iterations: the cycle waits
    arbiter.ask(process(A))
    assert arbiter.take(process(A), STORAGE) == granted(A, B)


def test_whoever_crashes_is_not_waited_for():
    arbiter = together({A: 0, B: 1})
    arbiter.take(process(A), STORAGE)
    arbiter.take(process(B), STORAGE)
    arbiter.give(process(A))
    arbiter.take(process(A), CPU)
    assert arbiter.leave(process(A)) == granted(B)


def test_work_conserving_turns_go_round_in_group_order():
    arbiter = together({A: 0, B: 1, C: 2}, Discipline.WORK_CONSERVING)
    assert arbiter.take(process(A), STORAGE) == granted(A)
    assert arbiter.take(process(C), STORAGE) == []
    assert arbiter.take(process(B), STORAGE) == []
    assert arbiter.give(process(A)) == granted(B)
    assert arbiter.take(process(A), CPU) == granted(A)
    assert arbiter.give(process(B)) == granted(C)
    assert arbiter.take(process(B), CPU) == []
    assert arbiter.give(process(A)) == granted(B)


def test_a_short_job_may_do_several_iterations_beside_a_long_one():
    arbiter = together({A: 0, B: 1}, Discipline.WORK_CONSERVING)
    for stage in (STORAGE, CPU):
        arbiter.take(process(B), stage)
        arbiter.give(process(B))
    assert arbiter.take(process(B), GPU) == granted(B)  # and keeps it
    for stage in (STORAGE, CPU):
        assert arbiter.take(process(A), stage) == granted(A)
        arbiter.give(process(A))
    assert arbiter.take(process(A), GPU) == []
    assert arbiter.give(process(B)) == granted(A)


def test_in_lockstep_a_stage_that_is_left_out_passes_in_its_slot_without_a_word():
    arbiter = together({A: 0, B: 1})
    assert arbiter.take(process(A), STORAGE) == granted(A)  # slot 0
    assert arbiter.take(process(B), NETWORK) == []
    arbiter.give(process(A))
    assert arbiter.take(process(A), GPU) == granted(A)  # slot 1 was empty; now slot 2
    assert arbiter.give(process(A)) == []
    assert arbiter.ask(process(A)) == [Go(process(A), True, 5)]  # slot 3: a passes its last stage, b its first
    for stage in (STORAGE, CPU):
        assert arbiter.take(process(A), stage) == granted(A)  # slots 0 and 1: b passes
        assert arbiter.give(process(A)) == []
    assert arbiter.take(process(A), GPU) == granted(A, B)  # slot 2 has b's network


def test_an_iteration_without_any_stage_takes_no_slot():
    arbiter = together({A: 0, B: 1})
    assert arbiter.ask(process(A)) == [Go(process(A), True, 5)]


def test_nobody_waits_for_a_resource_that_it_leaves_out():
    arbiter = together({A: 0, B: 1}, Discipline.WORK_CONSERVING)
    assert arbiter.take(process(A), CPU) == granted(A)
    assert arbiter.take(process(B), GPU) == granted(B)
    assert arbiter.give(process(B)) == []
    assert arbiter.ask(process(B)) == [Go(process(B), True, 5)]


def test_in_lockstep_a_turn_of_two_resources_goes_before_who_else_is_due_and_wants_one_of_them():
    arbiter = together({A: 0, B: 1})
    assert arbiter.take(process(A), STORAGE, CPU) == granted(A)
    assert arbiter.take(process(B), STORAGE) == []
    arbiter.give(process(A))
    assert arbiter.take(process(A), GPU) == granted(A)  # slot 1 is empty
    arbiter.give(process(A))
    assert arbiter.take(process(A), NETWORK) == granted(A, B)
    arbiter.give(process(A))
    arbiter.ask(process(A))
    arbiter.take(process(A), STORAGE, CPU)
    arbiter.give(process(B))
    assert arbiter.take(process(B), CPU) == granted(A)
    assert arbiter.give(process(A)) == granted(B)  # still slot 0
    assert arbiter.take(process(A), GPU) == []
    assert arbiter.give(process(B)) == []
    assert arbiter.take(process(B), GPU) == granted(B)  # slot 1: a did its cpu part before
    arbiter.give(process(B))
    assert arbiter.take(process(B), NETWORK) == granted(A, B)


def test_a_turn_of_two_resources_is_overtaken_once_by_each_other_member():
    arbiter = together({A: 0, B: 1, C: 2}, Discipline.WORK_CONSERVING)
    assert arbiter.take(process(B), STORAGE) == granted(B)
    assert arbiter.take(process(C), CPU) == granted(C)
    assert arbiter.take(process(A), STORAGE, CPU) == []
    arbiter.give(process(B))
    arbiter.ask(process(B))
    assert arbiter.take(process(B), STORAGE) == granted(B)  # a could not have it anyway
    assert arbiter.give(process(C)) == []
    arbiter.ask(process(C))
    assert arbiter.take(process(C), CPU) == granted(C)
    arbiter.give(process(B))
    arbiter.ask(process(B))
    assert arbiter.take(process(B), STORAGE) == []  # free, but a has let b go before
    assert arbiter.give(process(C)) == granted(A)
    assert arbiter.give(process(A)) == granted(B)


def helper(key: JobKey) -> Process:
    return Process(key, 0, 7)


def test_what_prefetches_is_granted_what_its_job_holds_or_what_nobody_wants():
    arbiter = together({A: 0, B: 1}, Discipline.WORK_CONSERVING)
    arbiter.join(helper(A), 1)
    assert arbiter.take(helper(A), CPU) == [Granted(helper(A))]
    assert arbiter.take(process(B), CPU) == []
    assert arbiter.give(helper(A)) == granted(B)
    assert arbiter.take(helper(A), CPU) == []
    assert arbiter.take(process(A), CPU) == []
    assert arbiter.give(process(B)) == [*granted(A), Granted(helper(A))]
    arbiter.ask(process(B))
    assert arbiter.take(process(B), CPU) == []
    assert arbiter.give(process(A)) == []
    assert arbiter.give(helper(A)) == granted(B)


def test_in_lockstep_prefetching_belongs_into_its_jobs_slot():
    arbiter = together({A: 0, B: 1})
    arbiter.join(helper(A), 1)
    assert arbiter.take(helper(A), CPU) == []
    assert arbiter.take(process(A), CPU) == [*granted(A), Granted(helper(A))]
    arbiter.give(process(A))
    assert arbiter.take(process(A), GPU) == []
    assert arbiter.give(helper(A)) == granted(A)


def test_a_job_that_is_gone_holds_what_its_prefetching_holds():
    arbiter = together({A: 0, B: 1}, Discipline.WORK_CONSERVING)
    arbiter.join(helper(A), 1)
    arbiter.take(helper(A), CPU)
    arbiter.leave(process(A))
    assert arbiter.take(process(B), CPU) == []
    assert arbiter.helps(helper(A))
    assert arbiter.leave(helper(A)) == granted(B)


def test_processes_of_a_job_may_leave_out_different_stages():
    arbiter = Arbiter()
    wide = [process(A, rank) for rank in range(2)]
    arbiter.set_group(1, 1, [(A, 0), (B, 1)], 5)
    arbiter.join(process(B), 1)
    for one in wide:
        arbiter.join(one, 2)
    for one in wide:
        arbiter.ask(one)
    assert arbiter.take(wide[0], GPU) == []
    assert arbiter.take(wide[1], CPU) == [Granted(wide[1])]
    assert arbiter.give(wide[1]) == []
    assert arbiter.take(wide[1], NETWORK) == [Granted(wide[0])]
    assert arbiter.give(wide[0]) == []
    assert arbiter.take(wide[0], NETWORK) == [Granted(one) for one in wide]


def test_processes_of_a_job_get_every_answer_together():
    arbiter = Arbiter()
    wide = [process(A, rank) for rank in range(2)]
    arbiter.set_group(1, 1, [(A, 0), (B, 1)], 5)
    arbiter.join(process(B), 1)
    for one in wide:
        arbiter.join(one, 2)
    assert arbiter.ask(wide[0]) == []
    assert arbiter.ask(wide[1]) == [Go(one, True, 5) for one in wide]
    assert arbiter.take(wide[1], STORAGE) == []
    assert arbiter.take(wide[0], STORAGE) == [Granted(one) for one in wide]
    arbiter.give(wide[0])
    assert arbiter.take(wide[0], CPU) == []
    arbiter.give(wide[1])
    assert arbiter.take(wide[1], CPU) == [Granted(one) for one in wide]


def test_a_stop_reaches_all_processes_at_the_same_boundary():
    arbiter = Arbiter()
    wide = [process(A, rank) for rank in range(2)]
    for one in wide:
        arbiter.join(one, 2)
    for one in wide:
        messages = arbiter.ask(one)
    assert messages == [Go(one, False, 1) for one in wide]
    assert arbiter.ask(wide[0]) == []
    assert arbiter.stop(A) == [Look(one) for one in wide]
    assert arbiter.ask(wide[1]) == [Stop(one) for one in wide]


def test_one_process_can_take_its_whole_job_out():
    arbiter = Arbiter()
    wide = [process(A, rank) for rank in range(2)]
    for one in wide:
        arbiter.join(one, 2)
    assert arbiter.ask(wide[0], leave=True) == []
    assert arbiter.ask(wide[1]) == [Stop(one) for one in wide]


def test_a_job_that_lost_a_process_ends_its_iteration_and_leaves():
    arbiter = Arbiter()
    wide = [process(A, rank) for rank in range(2)]
    arbiter.set_group(1, 1, [(A, 0), (B, 1)], 5)
    arbiter.join(process(B), 1)
    for one in wide:
        arbiter.join(one, 2)
    for one in wide:
        arbiter.ask(one)
    for one in wide:
        arbiter.take(one, STORAGE)
    arbiter.leave(wide[1])
    arbiter.give(wide[0])
    for stage in (CPU, GPU, NETWORK):
        assert arbiter.take(wide[0], stage) == [Granted(wide[0])]
        arbiter.give(wide[0])
    assert arbiter.ask(wide[0]) == [Stop(wide[0])]
    with pytest.raises(TurnError, match="is or was there already"):
        arbiter.join(wide[1], 2)


def test_a_member_taken_out_keeps_its_turns_to_the_end_of_its_iteration():
    arbiter = together({A: 0, B: 1})
    arbiter.take(process(A), STORAGE)
    assert arbiter.set_group(1, 2, [(B, 1), (C, 0)], 5) == []
    arbiter.join(process(C), 1)
    assert arbiter.ask(process(C)) == [Go(process(C), True, 5)]
    assert arbiter.take(process(B), STORAGE) == []
    assert arbiter.take(process(C), STORAGE) == []  # a still holds it, and the order of turns changes only after it
    arbiter.give(process(A))
    for stage in (CPU, GPU, NETWORK):
        assert arbiter.take(process(A), stage) == granted(A)
        arbiter.give(process(A))
    messages = arbiter.ask(process(A))
    assert Go(process(A), False, 1) in messages
    assert granted(B)[0] in messages


def test_a_member_that_moves_takes_the_new_groups_turns_from_its_boundary():
    arbiter = together({A: 0, B: 1})
    arbiter.take(process(A), STORAGE)
    arbiter.set_group(2, 2, [(C, 0), (A, 3)], 9)
    arbiter.join(process(C), 1)
    assert arbiter.ask(process(C)) == [Go(process(C), False, 9)]
    arbiter.give(process(A))
    for stage in (CPU, GPU, NETWORK):
        assert arbiter.take(process(A), stage) == granted(A)
        arbiter.give(process(A))
    assert arbiter.ask(process(A)) == [Look(process(C))]
    assert arbiter.ask(process(C)) == [Go(process(C), True, 9), Go(process(A), True, 9)]


def under_way() -> Arbiter:
    """Members at offsets 0 and 2 in the slot in which a holds gpu and b holds storage."""
    arbiter = together({A: 0, B: 2})
    arbiter.take(process(A), STORAGE)
    arbiter.take(process(B), STORAGE)
    for stage in (CPU, GPU):
        arbiter.give(process(A))
        messages = arbiter.take(process(A), stage)
    assert messages == granted(A, B)
    return arbiter


def go_on(arbiter: Arbiter, stage_of_a: int, stage_of_b: int) -> list[Message]:
    """Both give back what they hold and ask for the next."""
    arbiter.give(process(A))
    arbiter.give(process(B))
    for key, stage in ((A, stage_of_a), (B, stage_of_b)):
        if stage == STORAGE:
            arbiter.ask(process(key))
    arbiter.take(process(A), stage_of_a)
    return arbiter.take(process(B), stage_of_b)


def test_a_rotated_order_changes_nothing_for_those_under_way():
    arbiter = under_way()
    arbiter.set_group(1, 2, [(A, 1), (B, 3)], 5)
    assert go_on(arbiter, NETWORK, CPU) == granted(A, B)
    assert go_on(arbiter, STORAGE, GPU) == granted(A, B)


def test_another_order_begins_when_all_iterations_have_run_out():
    arbiter = under_way()
    arbiter.set_group(1, 2, [(A, 0), (B, 1)], 5)
    assert go_on(arbiter, NETWORK, CPU) == granted(A, B)
    assert go_on(arbiter, STORAGE, GPU) == granted(B)  # a begins no iteration in the old order
    arbiter.give(process(B))
    assert arbiter.take(process(B), NETWORK) == granted(B)
    assert arbiter.give(process(B)) == granted(A)  # the new order; b joins when a's stage is network
    arbiter.ask(process(B))
    assert arbiter.take(process(B), STORAGE) == []
    for stage in (CPU, GPU):
        arbiter.give(process(A))
        assert arbiter.take(process(A), stage) == granted(A)
    arbiter.give(process(A))
    assert arbiter.take(process(A), NETWORK) == granted(A, B)


def test_an_older_version_of_a_group_changes_nothing():
    arbiter = Arbiter()
    arbiter.set_group(1, 5, [(A, 0)], 5)
    arbiter.set_group(1, 4, [(A, 0), (B, 1)], 9)
    arbiter.join(process(A), 1)
    arbiter.join(process(B), 1)
    assert arbiter.ask(process(A)) == [Go(process(A), False, 5)]
    assert not arbiter.knows(B)


def test_a_new_batch_counts_from_the_next_boundary():
    arbiter = together({A: 0, B: 1}, batch=3)
    assert arbiter.set_group(1, 2, [(A, 0), (B, 1)], 8) == []
    for stage in range(4):
        arbiter.take(process(A), stage)
        arbiter.give(process(A))
    assert arbiter.ask(process(A)) == [Go(process(A), True, 8)]


def test_two_groups_do_not_wait_for_each_other():
    arbiter = Arbiter()
    others = [("x", 1), ("y", 1)]
    arbiter.set_group(1, 1, [(A, 0), (B, 1)], 5)
    arbiter.set_group(2, 2, [(key, i) for i, key in enumerate(others)], 5)
    for key in (A, B, *others):
        arbiter.join(process(key), 1)
    for key in (A, B, *others):
        arbiter.ask(process(key))
    assert arbiter.take(process(A), STORAGE) == granted(A)
    assert arbiter.take(process(others[0]), STORAGE) == granted(others[0])


def test_nothing_is_left_of_a_job_that_is_forgotten():
    arbiter = together({A: 0, B: 1})
    arbiter.stop(A)
    arbiter.take(process(A), STORAGE)
    arbiter.forget(A)
    arbiter.forget(B)
    assert not arbiter.knows(A)
    arbiter.join(process(A), 1)  # as if it came anew: no stop is remembered
    assert arbiter.ask(process(A)) == [Go(process(A), False, 1)]


@pytest.mark.parametrize(
    ("misdeed", "why"),
    [
        (lambda a: a.join(process(A), 1), "is or was there already"),
        (lambda a: a.join(process(A, 1), 2), "rank 1 of 2 does not go with a job of 1 processes"),
        (lambda a: a.join(process(C, 3), 2), "rank 3 of 2 does not go with"),
        (lambda a: a.give(process(A)), "does not hold"),
        (lambda a: (a.take(process(A), GPU), a.give(process(A)), a.take(process(A), CPU)), "asks for stage 1"),
        (lambda a: a.ask(process(C)), "rank 0 of job c is not there"),
        (lambda a: a.join(helper(C), 1), "rank 0 of job c is not there"),
        (lambda a: (a.join(helper(A), 1), a.join(helper(A), 1)), "helper 7 of job a is there already"),
        (lambda a: (a.join(helper(A), 1), a.ask(helper(A))), "asks at a boundary"),
        (lambda a: (a.join(helper(A), 1), a.take(helper(A), CPU), a.take(helper(A), CPU)), "asks twice"),
        (lambda a: (a.join(helper(A), 1), a.give(helper(A))), "does not hold"),
        (lambda a: (a.take(process(A), STORAGE), a.take(process(A), CPU)), "asks for stage 1"),
        (lambda a: (a.take(process(A), STORAGE), a.ask(process(A))), "while it holds or wants a turn"),
    ],
)
def test_what_a_process_may_not_do_is_refused(misdeed, why):
    arbiter = together({A: 0, B: 1})
    with pytest.raises(TurnError, match=why):
        misdeed(arbiter)
