import math
from pathlib import Path

import pytest

from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.profile import ProfileKey, StageProfile
from cluster_exp.inputs.profiles import ProfileTable, default_profiles, read_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace

HEAD = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,"
    "iteration_time,resource_time_0,resource_time_1,resource_time_2\n"
)
ROW = "0,1,0,100,bert,4,18000,178,0.5,160,0\n"
BARE = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\n"
CLUSTER = ClusterSpec((NodeSpec("a", 4), NodeSpec("b", 4)))
TYPED = ClusterSpec((NodeSpec("a", 4, gpu_type="v100"), NodeSpec("b", 2, gpu_type="a100")))


def read(tmp_path: Path, text: str | bytes, cluster=CLUSTER, **options):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_trace(path, default_profiles(), cluster, **options)


BAD = [
    # text, place, words of the message
    ("", "1:1", "is empty"),
    ("\n\n", "1:1", "is empty"),
    (HEAD, "2:1", "the trace has no jobs"),
    (HEAD + "\n\n", "2:1", "the trace has no jobs"),
    (HEAD.replace("iterations,", "") + ROW, "1:11", "iterations is missing; did you mean iteration_time?"),
    (HEAD.replace("model_name", "model") + ROW, "1:12", "column model_name is missing; did you mean model?"),
    ("\n\n" + HEAD.replace("duration", "x"), "3:12", "column duration is missing"),
    (HEAD.replace("num_gpu", "job_id") + ROW, "1:12", "column num_gpu is missing"),
    (HEAD.replace("\n", ",job_id\n"), "1:12", "column job_id stands twice, first in field 1"),
    (HEAD.replace("resource_time_1", "x") + ROW, "1:12", "column resource_time_1 is missing"),
    (HEAD.replace("\n", ",gpu_time\n"), "1:12", "resource_time_0 and gpu_time exclude each other"),
    (HEAD + "0,one,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: 'one' is not a number"),
    (HEAD + "0,1.5,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: '1.5' is not whole"),
    (HEAD + "0,0,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: '0' is out of range; allowed: a whole"),
    (HEAD + "0,-2,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: '-2' is out of range"),
    (HEAD + "0,,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: an empty field is not a number"),
    (HEAD + "0,nan,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: 'nan' is out of range"),
    (HEAD + "0,٣,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "num_gpu: '٣' is not a number"),
    (HEAD + "0,9,0,100,bert,4,18000,178,0.5,160,0\n", "2:2", "9 GPUs where the cluster has 8; allowed: 1 to 8"),
    (HEAD + ROW + "\n1,1,-5,100,bert,4,18000,178,0.5,160,0\n", "4:3", "submit_time: '-5' is out of range"),
    (HEAD + "0,1,0,-1,bert,4,18000,178,0.5,160,0\n", "2:4", "iterations: '-1' is out of range"),
    (HEAD + "0,1,0,1e30,bert,4,18000,178,0.5,160,0\n", "2:4", "iterations: '1e30' is out of range"),
    (HEAD + f"0,1,0,{'9' * 5000},bert,4,18000,178,0.5,160,0\n", "2:4", "is out of range"),
    (HEAD + "0,1,0,1_000,bert,4,18000,178,0.5,160,0\n", "2:4", "iterations: '1_000' is not a number"),
    (HEAD + "0,1,0,100,,4,18000,178,0.5,160,0\n", "2:5", "model_name: is empty"),
    (HEAD + '0,1,0,100,"a\nb",4,18000,178,0.5,160,0\n', "2:5", "printable"),
    (HEAD + "0,1,0,100,bert,0,18000,178,0.5,160,0\n", "2:6", "batch_size: '0' is out of range"),
    (HEAD + "0,1,0,100,bert,4,0,178,0.5,160,0\n", "2:7", "duration: '0' is out of range; allowed: a num"),
    (HEAD + "0,1,0,100,bert,4,-1,178,0.5,160,0\n", "2:7", "duration: '-1' is out of range"),
    (HEAD + "0,1,0,100,bert,4,NaN,178,0.5,160,0\n", "2:7", "duration: 'NaN' is out of range"),
    (HEAD + "0,1,0,100,bert,4,inf,178,0.5,160,0\n", "2:7", "duration: 'inf' is out of range"),
    (HEAD + "0,1,0,100,bert,4,1e300,178,0.5,160,0\n", "2:7", "duration: '1e300' is out of range"),
    (HEAD + "0,1,0,100,bert,4,18000,0,0.5,160,0\n", "2:8", "iteration_time: '0' is out of range"),
    (HEAD + "0,1,0,100,bert,4,18000,178,x,160,0\n", "2:9", "resource_time_0: 'x' is not a number"),
    (HEAD + "0,1,0,100,bert,4,18000,178,0.5,,0\n", "2:10", "resource_time_1: an empty field is not a number"),
    (HEAD + "0,1,0,100,bert,4,18000,178,0.5,160,-1\n", "2:11", "resource_time_2: '-1' is out of range"),
    (HEAD + "0,1,0,100,bert,4,18000,178,0,0,0\n", "2:9", "all stage times are 0"),
    (HEAD + "0,1,0,100,berd,4,18000,178,,,\n", "2:5", "of such a model; did you mean bert? known: a2c"),
    (HEAD + "0,1,0,100,bert,5,18000,178,,,\n", "2:6", "of bert with that batch size; known: 4"),
    (HEAD + "0,3,0,100,bert,4,18000,178,,,\n", "2:2", "of bert/4 on so many GPUs; known: 1, 2, 4"),
    (BARE + "0,1,0,100,zzz,4,18000\n", "2:5", "'zzz': no stage times of such a model; known: a2c, bert"),
    (HEAD + ROW + ROW, "3:1", "job_id: '0' is the id of line 2 too"),
    (HEAD + ",1,0,100,bert,4,18000,178,0.5,160,0\n", "2:1", "job_id: ''; allowed: letters"),
    (HEAD + "a/b,1,0,100,bert,4,18000,178,0.5,160,0\n", "2:1", "job_id: 'a/b'; allowed"),
    (HEAD + "0,1,0\n", "2:4", "3 fields where the header has 11"),
    (HEAD + ROW.replace("\n", ",7\n"), "2:12", "12 fields where the header has 11"),
    (HEAD + ROW + '1,"1,0,100\n', "3:1", "is not CSV"),
    (HEAD + ROW + "1,1,0,\0", "3:7", "NUL byte"),
    (HEAD.encode() + b"0,1,0,100,b\xff", "2:12", "byte 0xff is not UTF-8"),
    (b"\xef\xbb\xbfjob\xff", "1:7", "byte 0xff is not UTF-8"),
    (HEAD.replace("\n", ",priority\n") + ROW.replace("\n", ",high\n"), "2:12", "priority: 'high' is not a number"),
    (HEAD.replace("\n", ",gpu_fraction\n") + ROW.replace("\n", ",1.5\n"), "2:12", "gpu_fraction: '1.5' is out"),
    (HEAD.replace("\n", ",gpu_memory_mib\n") + ROW.replace("\n", ",0\n"), "2:12", "gpu_memory_mib: '0' is out"),
]


@pytest.mark.parametrize(("text", "place", "words"), BAD)
def test_a_bad_trace_is_refused_with_its_place(tmp_path, text, place, words):
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert caught.value.where == f"{tmp_path / 't.csv'}:{place}"
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert len(message) < 500


def test_files_that_cannot_be_read_are_named(tmp_path):
    for path, words in ((tmp_path / "none.csv", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(InputError, match=words) as caught:
            read_trace(path, default_profiles())
        assert caught.value.where == str(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_trace("a\0b", default_profiles())


def test_a_trace_becomes_jobs_in_seconds(tmp_path):
    trace = read(tmp_path, HEAD + "x-1,2,91000,2138875,gpt2,4,926133000,464,0.7,416,40\n")
    (job,) = trace.jobs
    assert job.job_id == "x-1"
    assert (job.num_gpu, job.submit_s, job.iterations, job.duration_s) == (2, 91.0, 2138875, 926133.0)
    assert job.profile == StageProfile(0.464, 0.0, 0.0007, 0.416, 0.04)
    assert (job.model, job.batch_size, job.queue, job.user, job.priority) == ("gpt2", 4, "default", "", 0)
    assert job.gpu_fraction == 1.0
    assert math.isnan(job.gpu_memory_mib)
    assert trace.warnings == ()
    assert trace.path == tmp_path / "t.csv"


def test_four_stage_columns_are_taken_as_they_are(tmp_path):
    head = BARE.replace("\n", ",iteration_time,network_time,gpu_time,cpu_time,storage_time\n")
    (job,) = read(tmp_path, head + "0,1,0,1,new,4,18000,100,40,30,20,10\n").jobs
    assert job.profile == StageProfile(0.1, 0.01, 0.02, 0.03, 0.04)


def test_missing_times_come_from_the_profile_table(tmp_path):
    known = default_profiles().find(ProfileKey("bert", 4, 2))
    assert known == StageProfile(0.195, 0.0, 0.0005, 0.163, 0.018)
    assert read(tmp_path, BARE + "0,2,0,1,bert,4,18000\n").jobs[0].profile == known
    assert read(tmp_path, HEAD + "0,2,0,1,bert,4,18000,,,,\n").jobs[0].profile == known
    own_iteration = read(tmp_path, HEAD + "0,2,0,1,bert,4,18000,250,,,\n").jobs[0].profile
    assert own_iteration == StageProfile(0.25, *known.stages)
    own_stages = read(tmp_path, HEAD + "0,2,0,1,bert,4,18000,,1,2,3\n").jobs[0].profile
    assert own_stages == StageProfile(0.195, 0.0, 0.001, 0.002, 0.003)


def test_jobs_are_sorted_stably_and_form_does_not_matter(tmp_path):
    rows = ["a,1,5000,1,bert,4,1000", "b,1,0,0,bert,4,1000", "c,1.0,5000,1e2,bert,4,1000"]
    rows.append("d,1,0,1,bert,4,1000")
    plain = read(tmp_path, BARE + "\n".join(rows) + "\n").jobs
    assert [job.job_id for job in plain] == ["b", "d", "a", "c"]
    assert [job.iterations for job in plain] == [0, 1, 1, 100]
    odd = "\ufeff\r\n" + BARE.strip() + "\r\n\r\n" + "\r\n  \r\n".join(rows)
    assert repr(read(tmp_path, odd).jobs) == repr(plain)  # NaN is not equal to itself


def test_columns_are_found_by_name(tmp_path):
    head = "duration,batch_size,model_name,iterations,submit_time,num_gpu,job_id,"
    head += "interval,user,queue,gpu_memory_mib\n"
    trace = read(tmp_path, head + "1000,4,bert,7,0,2,j,anything,ann,prod,1024\n")
    (job,) = trace.jobs
    assert (job.job_id, job.num_gpu, job.iterations, job.user, job.queue) == ("j", 2, 7, "ann", "prod")
    assert job.gpu_memory_mib == 1024.0
    assert trace.warnings == ()


def test_unknown_columns_pass_with_one_warning(tmp_path):
    trace = read(tmp_path, BARE.replace("\n", ",colour,\n") + "0,1,0,1,bert,4,1000,red,\n")
    assert len(trace.jobs) == 1
    (warning,) = trace.warnings
    assert "t.csv:1: columns that are not known are ignored: colour, (unnamed)" in warning


def test_jobs_that_do_not_fit_are_left_out_on_request(tmp_path):
    text = BARE + "0,16,0,1,bert,4,1000\n1,8,0,1,bert,4,1000\n2,32,0,1,bert,4,1000\n"
    trace = read(tmp_path, text, drop_unfit=True)
    assert [job.job_id for job in trace.jobs] == ["1"]
    assert trace.dropped == 2
    assert "2 jobs left out" in trace.warnings[0]
    assert len(read(tmp_path, text, cluster=None).jobs) == 3
    with pytest.raises(InputError, match="all 1 jobs are too large"):
        read(tmp_path, BARE + "0,16,0,1,bert,4,1000\n", drop_unfit=True)


def test_a_type_of_gpu_must_exist_where_types_are_stated(tmp_path):
    head = BARE.replace("\n", ",gpu_type\n")
    text = head + "0,2,0,1,bert,4,1000,a100\n"
    assert read(tmp_path, text, cluster=TYPED).jobs[0].gpu_type == "a100"
    assert read(tmp_path, text, cluster=CLUSTER).jobs[0].gpu_type == "a100"
    with pytest.raises(InputError, match="cluster has 2 of type a100") as caught:
        read(tmp_path, head + "0,4,0,1,bert,4,1000,a100\n", cluster=TYPED)
    assert caught.value.where.endswith("t.csv:2:2")
    with pytest.raises(InputError, match="no 'b100'; did you mean") as caught:
        read(tmp_path, head + "0,1,0,1,bert,4,1000,b100\n", cluster=TYPED)
    assert caught.value.where.endswith("t.csv:2:8")


def test_equal_profiles_are_one_object(tmp_path):
    first, second = read(tmp_path, HEAD + ROW + ROW.replace("0,1", "1,1", 1)).jobs
    assert first.profile is second.profile


def test_the_shipped_profile_table():
    profiles = default_profiles()
    assert len(profiles) == 48
    assert profiles.models == ("a2c", "bert", "dqn", "gpt2", "resnet18", "shufflenet_v2_x1_0", "vgg16", "vgg19")
    assert profiles.find(ProfileKey("resnet18", 128, 32)) == StageProfile(1.059, 0.0, 0.712, 0.111, 0.093)
    assert {key.num_gpu for key in profiles} == {1, 2, 4, 8, 16, 32}
    assert profiles.find(ProfileKey("resnet18", 64, 32)) is None


def test_a_profile_falls_back_to_less_specific_keys():
    plain, typed, spread = (StageProfile(seconds, 0.0, 0.1, 0.1, 0.1) for seconds in (1.0, 2.0, 3.0))
    profiles = ProfileTable({ProfileKey("m", 1, 4): plain})
    assert profiles.find(ProfileKey("m", 1, 4, "v100", 2)) is plain
    profiles.add(ProfileKey("m", 1, 4, "v100"), typed)
    assert profiles.find(ProfileKey("m", 1, 4, "v100", 2)) is typed
    profiles.add(ProfileKey("m", 1, 4, "v100", 2), spread)
    assert profiles.find(ProfileKey("m", 1, 4, "v100", 2)) is spread
    assert profiles.find(ProfileKey("m", 1, 8)) is None


PROFILE_HEAD = "model_name,batch_size,num_gpu,iteration_time,resource_time_0,resource_time_1,resource_time_2\n"
BAD_PROFILES = [
    (PROFILE_HEAD, "2:1", "has no rows"),
    ("model_name,batch_size,num_gpu,iteration_time\nm,1,1,5\n", "1:5", "column resource_time_0 is missing"),
    (PROFILE_HEAD.replace("\n", ",gpu_typ\n"), "1:8", "unknown column 'gpu_typ'; did you mean gpu_type?"),
    (PROFILE_HEAD + ",1,1,5,1,1,1\n", "2:1", "model_name: is empty"),
    (PROFILE_HEAD + "m,1,1,5,,,\n", "2:5", "stage times are needed"),
    (PROFILE_HEAD + "m,1,1,,1,1,1\n", "2:4", "iteration_time: an empty field"),
    (PROFILE_HEAD + "m,1,1,5,1,1,1\nm,1,1,6,1,1,1\n", "3:1", "line 2 has the same model"),
]


@pytest.mark.parametrize(("text", "place", "words"), BAD_PROFILES)
def test_a_bad_profile_table_is_refused_with_its_place(tmp_path, text, place, words):
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_profiles(path)
    assert caught.value.where == f"{path}:{place}"
    assert words in str(caught.value)


def test_start_overheads_step_up_to_the_next_known_gpu_count():
    costs = default_restart_costs()
    assert [costs.start_s("a2c", num_gpu) for num_gpu in (1, 2, 3, 4, 5, 8, 64)] == [38, 39, 39, 39, 46, 46, 46]
    assert costs.start_s("shufflenet_v2_x1_0", 32) == 8
    assert costs.start_s("unheard-of", 4) == 10
