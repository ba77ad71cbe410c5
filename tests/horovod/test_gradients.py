"""Gradients are collected in flat buffers during the backward pass and sent only when asked for."""

import pytest

pytestmark = pytest.mark.horovod


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="`installed` has failed already")


@pytest.fixture
def comm(torch):
    """Two ranks, of which the other always has zeros: the mean is the half."""
    from cluster_exp.runtime.trainer.comm.fused import FusedCommunicator

    class WithZeros(FusedCommunicator):
        backend = "zeros"

        def __init__(self):
            super().__init__(0, 2, 0)
            self.sent = []

        def _sum(self, flat):
            self.sent.append((flat.dtype, flat.numel()))

        def _copy_from(self, flat, root):
            if root != self.rank:
                flat.zero_()

        def shutdown(self):
            pass

    return WithZeros()


def exchange_of(parameters, comm):
    from cluster_exp.runtime.trainer.comm.gradients import GradientExchange

    return GradientExchange(parameters, comm)


def model_of(torch):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))


def gradients_of(torch, model, inputs):
    return [gradient.clone() for gradient in torch.autograd.grad(model(inputs).square().sum(), [*model.parameters()])]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_nothing_is_sent_before_the_exchange_and_then_one_buffer(torch, comm, set_to_none):
    model = model_of(torch)
    gradients = exchange_of(model.parameters(), comm)
    for seed in range(3):
        inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        expected = gradients_of(torch, model, inputs)
        comm.sent.clear()
        model.zero_grad(set_to_none=set_to_none)
        model(inputs).square().sum().backward()
        assert comm.sent == []
        collected = [parameter.grad.clone() for parameter in model.parameters()]
        assert all(torch.equal(*pair) for pair in zip(collected, expected, strict=True))
        gradients.exchange()
        assert comm.sent == [(torch.float32, 4 * 3 + 3 + 3 * 2 + 2)]
        assert all(torch.equal(p.grad, e / 2) for p, e in zip(model.parameters(), expected, strict=True))


def test_gradients_of_several_backward_passes_add_up_and_changes_before_the_exchange_count(torch, comm):
    model = model_of(torch)
    gradients = exchange_of(model.parameters(), comm)
    inputs = torch.ones(1, 4)
    expected = gradients_of(torch, model, inputs)
    for _ in range(2):
        model(inputs).square().sum().backward()
    first = next(model.parameters())
    first.grad = first.grad * 3  # replaced by hand: it is collected anew
    gradients.exchange()
    halves = [parameter.grad for parameter in model.parameters()]
    assert torch.equal(halves[0], 3 * expected[0])
    assert all(torch.equal(*pair) for pair in zip(halves[1:], expected[1:], strict=True))


def test_a_parameter_without_gradient_counts_as_zeros_and_types_travel_apart(torch, comm):
    used = torch.nn.Parameter(torch.ones(2, 3))
    unused = torch.nn.Parameter(torch.ones(4))
    double = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))
    frozen = torch.nn.Parameter(torch.ones(6), requires_grad=False)
    gradients = exchange_of([used, frozen, double, unused, used], comm)
    (used.T.sum() + double.sum() + unused.sum()).backward()
    gradients.exchange()
    assert comm.sent == [(torch.float32, 10), (torch.float64, 5)]
    for parameter in (used, unused, double):
        parameter.grad = None
    (used.sum() + double.sum()).backward()
    gradients.exchange()
    assert unused.grad.tolist() == [0.0] * 4
    assert used.grad.tolist() == [[0.5] * 3] * 2
    assert frozen.grad is None


def test_closed_it_collects_no_more(torch, comm):
    parameter = torch.nn.Parameter(torch.ones(2))
    gradients = exchange_of([parameter], comm)
    parameter.sum().backward()
    place = parameter.grad
    gradients.close()
    parameter.grad = None
    (3 * parameter).sum().backward()
    assert place.tolist() == [1.0, 1.0]
    assert parameter.grad.tolist() == [3.0, 3.0]


def test_alone_gradients_stay_where_autograd_put_them(torch):
    from cluster_exp.runtime.trainer.comm import connect

    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    gradients = exchange_of([used, unused], connect("none"))
    used.sum().backward()
    before = used.grad.data_ptr()
    gradients.exchange()
    assert used.grad.data_ptr() == before
    assert used.grad.tolist() == [1.0, 1.0]
    assert unused.grad is None


def test_state_comes_from_the_root(torch, comm):
    from cluster_exp.runtime.trainer.comm.gradients import broadcast_state

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    broadcast_state(model, comm, root=1)
    state = model.state_dict()
    assert len(state) == 7
    assert all(not tensor.any() for tensor in state.values())


@pytest.mark.parametrize("call", ["allreduce", "broadcast"])
def test_sparse_tensors_are_refused(torch, comm, call):
    with pytest.raises(ValueError, match=r"tensor 1 has layout torch\.sparse_coo; allowed: torch\.strided"):
        getattr(comm, call)([torch.ones(2), torch.ones(2).to_sparse()])
    embedding = torch.nn.Embedding(3, 2, sparse=True)
    gradients = exchange_of(embedding.parameters(), comm)
    assert gradients is not None
    with pytest.raises(ValueError, match=r"a gradient has layout torch\.sparse_coo"):
        embedding(torch.tensor([0])).sum().backward()


def test_means_of_whole_numbers_and_roots_that_are_not_there_are_refused(torch, comm):
    with pytest.raises(ValueError, match=r"tensor 1 is of torch\.int64; a mean needs a floating-point type"):
        comm.allreduce([torch.ones(1), torch.ones(1, dtype=torch.int64)])
    with pytest.raises(ValueError, match="no rank 2 to broadcast from; this job has 2"):
        comm.broadcast([torch.ones(1)], root=2)
    assert comm.sent == []
