from cluster_exp.runtime.security.names import file_part


def test_short_names_stay_and_slashes_do_not():
    assert file_part("job-1", 150) == "job-1"
    assert file_part("../../etc/passwd", 150) == "..%2F..%2Fetc%2Fpasswd"


def test_long_names_that_begin_alike_do_not_share_a_file():
    names = ["x" * 200, "x" * 201, "x" * 133 + "+" + "0" * 100, "\u00e9" * 256]
    parts = [file_part(name, 150) for name in names]
    assert len(set(parts)) == len(names)
    assert all(len(part) == 150 and "/" not in part for part in parts)
