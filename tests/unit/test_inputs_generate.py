import dataclasses
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.generate import GeneratorConfig, generate_trace, write_trace
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.shipped import SHIPPED_TRACES, write_shipped
from cluster_exp.inputs.traces import read_trace

ROOT = Path(__file__).parents[2]
CONFIG = GeneratorConfig(num_jobs=2_000, seed=5, cluster_gpus=64, load=0.8)


def test_the_shipped_traces_are_what_the_generator_writes(tmp_path):
    write_shipped(tmp_path)
    for name in SHIPPED_TRACES:
        assert (tmp_path / name).read_bytes() == (ROOT / "trace_data" / name).read_bytes(), name
    assert {path.name for path in (ROOT / "trace_data").glob("*.csv")} == set(SHIPPED_TRACES)


@pytest.mark.parametrize(
    ("name", "cluster", "num_jobs"),
    [("demo.csv", "n2g4.csv", 60), ("small.csv", "n2g4.csv", 12), ("philly_1000.csv", "n8g8.csv", 1_000)],
)
def test_the_shipped_traces_fit_their_clusters(name, cluster, num_jobs):
    spec = read_cluster(ROOT / "cluster_spec" / cluster)
    trace = read_trace(ROOT / "trace_data" / name, default_profiles(), spec)
    assert len(trace.jobs) == num_jobs
    assert trace.warnings == ()


def test_the_demo_trace_is_contended_and_has_a_job_for_both_nodes():
    jobs = read_trace(ROOT / "trace_data" / "demo.csv", default_profiles()).jobs
    work_s = sum(job.num_gpu * job.iterations * job.profile.iteration_s for job in jobs)
    assert 4.5 < work_s / 8 / jobs[-1].submit_s < 5.5
    assert {job.num_gpu for job in jobs} == {1, 2, 4, 8}
    assert all(300 <= job.duration_s <= 6_000 for job in jobs)


def test_a_seed_gives_the_same_jobs_and_another_seed_others():
    jobs = generate_trace(CONFIG)
    assert repr(jobs) == repr(generate_trace(CONFIG, rng=np.random.Generator(np.random.PCG64(5))))
    assert repr(jobs) != repr(generate_trace(dataclasses.replace(CONFIG, seed=6)))


def test_load_and_shapes_are_those_asked_for():
    jobs = generate_trace(CONFIG)
    assert len(jobs) == CONFIG.num_jobs
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    assert jobs[0].submit_s == 0
    offered = sum(job.num_gpu * job.duration_s for job in jobs) / 64 / jobs[-1].submit_s
    assert offered == pytest.approx(0.8, rel=1e-4)
    sizes = Counter(job.num_gpu for job in jobs)
    assert sizes[1] / len(jobs) == pytest.approx(0.7, abs=0.04)
    assert set(sizes) == {1, 2, 4, 8, 16, 32}
    models = Counter(job.model for job in jobs)
    assert len(models) == 8
    assert all(count / len(jobs) == pytest.approx(1 / 8, abs=0.03) for count in models.values())
    durations = np.array([job.duration_s for job in jobs])
    assert np.median(durations) == pytest.approx(1_800, rel=0.15)
    assert durations.mean() > 2 * np.median(durations)
    assert all(job.iterations == math.floor(job.duration_s / job.profile.iteration_s) for job in jobs)


def test_arrivals_come_in_bursts_and_swing_over_the_day():
    config = GeneratorConfig(num_jobs=6_000, seed=2, cluster_gpus=64, load=0.9, max_duration_s=86_400)
    submit_s = np.array([job.submit_s for job in generate_trace(config)])
    gaps = np.diff(submit_s)
    assert gaps.std() > 1.3 * gaps.mean()  # 1 for a Poisson process
    hours = submit_s % 86_400 / 3_600
    days = math.floor(submit_s[-1] / 86_400)
    assert days >= 3
    whole = hours[submit_s < days * 86_400]
    assert np.sum((whole > 6) & (whole < 18)) > 1.5 * np.sum((whole < 6) | (whole > 18))


def test_jobs_never_exceed_the_cluster():
    jobs = generate_trace(dataclasses.replace(CONFIG, cluster_gpus=6))
    assert max(job.num_gpu for job in jobs) == 4


def test_one_job_arrives_at_once():
    (job,) = generate_trace(dataclasses.replace(CONFIG, num_jobs=1))
    assert job.submit_s == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_jobs", 0),
        ("seed", -1),
        ("cluster_gpus", 0),
        ("load", 0.0),
        ("load", math.nan),
        ("median_duration_s", -1.0),
        ("duration_sigma", math.inf),
        ("min_duration_s", 1e12),
        ("burst_size", 0.5),
        ("day_swing", 1.5),
        ("gpu_weights", {128: 1.0}),
        ("gpu_weights", {1: -1.0, 2: 1.0}),
    ],
)
def test_a_bad_parameter_is_named(field, value):
    with pytest.raises(InputError, match="allowed:") as caught:
        dataclasses.replace(CONFIG, **{field: value})
    assert caught.value.where == field


def test_a_gpu_count_without_profiles_is_refused():
    with pytest.raises(InputError, match="on so many GPUs; known: 1, 2, 4, 8, 16, 32") as caught:
        generate_trace(dataclasses.replace(CONFIG, gpu_weights={3: 1.0}))
    assert caught.value.where == "gpu_weights"


def test_a_written_trace_reads_back(tmp_path):
    plain = generate_trace(dataclasses.replace(CONFIG, num_jobs=50))
    write_trace(tmp_path / "plain.csv", plain)
    assert repr(read_trace(tmp_path / "plain.csv", default_profiles()).jobs) == repr(plain)
    rich = JobSpec(
        job_id="r",
        num_gpu=2,
        submit_s=0.125,
        iterations=0,
        duration_s=1.5,
        model="new model",
        batch_size=3,
        profile=StageProfile(0.1, 0.02, 0.03, 0.04, 0.05),
        user='a "b", c',
        queue="q",
        priority=1,
        gpu_type="v100",
        gpu_fraction=0.25,
        gpu_memory_mib=1024.0,
    )
    bare = dataclasses.replace(rich, job_id="s", user="", gpu_memory_mib=math.nan, gpu_type="")
    write_trace(tmp_path / "rich.csv", (rich, bare))
    trace = read_trace(tmp_path / "rich.csv", default_profiles())
    assert repr(trace.jobs) == repr((rich, bare))
    assert trace.warnings == ()
