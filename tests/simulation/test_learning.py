"""A scheduler that learns who slows whom, in a simulated cluster that is not as it believed."""

from cluster_exp.core.recorder import Session
from cluster_exp.domain.actions import RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.inputs.generate import GeneratorConfig, generate_trace
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.simulate import SimulationOptions, make_cost, make_scheduler, simulate
from tests.runtime.live_kit import Memory

CLUSTER = ClusterSpec(tuple(NodeSpec(f"n{i}", 4) for i in range(2)))
TRUTH = "drawn:5"


def jobs():
    config = GeneratorConfig(num_jobs=150, seed=3, cluster_gpus=CLUSTER.num_gpu, load=2.0)
    return generate_trace(config, default_profiles())


def run(policy: str, **options) -> Memory:
    memory = Memory()
    rules = SimulationOptions(**options)
    simulate(make_policy(policy), jobs(), CLUSTER, rules, lambda job: 5.0, memory)
    return memory


def average_jct_s(memory: Memory) -> float:
    ends = [action.record for action in memory.of(RecordEnd)]
    return sum(end.end_s - end.submit_s for end in ends) / len(ends)


def test_learning_comes_close_to_knowing_and_beats_the_prior():
    knows = average_jct_s(run("weave-s", contention=TRUTH))
    prior = average_jct_s(run("weave-s", contention="muri22", true_contention=TRUTH))
    learns = average_jct_s(run("weave-s", contention="learned", true_contention=TRUTH))
    assert learns < prior
    assert learns < 1.05 * knows


def test_what_was_learnt_follows_from_the_events_alone():
    memory = run("weave-s", contention="learned", true_contention=TRUTH)
    options = SimulationOptions(contention="learned")
    policy = make_policy("weave-s")
    again = make_scheduler(policy, options, make_cost(policy, options, lambda job: 5.0))
    recorded = Memory()
    session = Session(again, recorded)
    for event, _ in memory.entries:
        session.handle(event)
    assert recorded.entries == memory.entries
    assert again.snapshot().speed.group  # the last model that was learnt


def test_where_the_prior_is_true_learning_changes_little():
    prior = average_jct_s(run("weave-s", contention="muri22"))
    learns = average_jct_s(run("weave-s", contention="learned"))
    assert learns < 1.03 * prior
