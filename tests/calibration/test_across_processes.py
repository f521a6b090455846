"""The penalty of rows on several processes is that of one process with all rows: value, gradient, training."""

import contextlib
import copy
import re
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.processes import together
from xcal import XCALLoss, mean_across_processes, xcal_penalty
from xcal.distributions import family
from xcal.objectives import nll

N = 41
# Every way of the penalty. "rows" are what goes with the call.
MODES = {
    "default": {},
    "paper": {"membership": "product", "censored": "soft"},
    "unbiased": {"estimator": "unbiased"},
    "paper unbiased": {"membership": "product", "censored": "soft", "estimator": "unbiased"},
    "product exact": {"membership": "product", "gamma": 3e3},
    "partition soft": {"censored": "soft", "temperature": 0.3},
    "other edges": {"edges": (0.0, 0.1, 0.35, 0.8, 1.0)},
    "cold": {"temperature": 0.05, "n_bins": 7},
}
ROWS = ("plain", "weights", "groups", "weighted groups", "features", "weighted features")
CASES = [(mode, rows) for mode in MODES for rows in ROWS]
# Rows of each process: the last one has fewer, one has a single row, one has none.
CUTS = {2: [(30, 11), (41, 0), (1, 40)], 4: [(11, 10, 10, 10), (20, 0, 1, 20)]}
STEPS = 20
# Values and gradients are compared in every case, training in these: every mode, and every kind of rows.
TRAINED = {
    2: [(mode, "plain") for mode in MODES] + [("default", kind) for kind in ROWS[1:]] + [("unbiased", ROWS[-1])],
    4: [("default", "weights"), ("paper", "plain"), ("unbiased", "weighted groups"), ("unbiased", "features")],
}


def rows_of(kind, generator=None):
    """Keyword arguments of a call for all N rows."""
    generator = generator or torch.Generator().manual_seed(5)
    weights = 1e6 * torch.rand(N, generator=generator, dtype=torch.float64)
    weights[::7] = 0.0
    groups = torch.randint(0, 4, (N,), generator=generator)
    groups[groups == 2] = 1  # a group that nobody belongs to
    features = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    found = {}
    if "weight" in kind:
        found["weights"] = weights
    if "groups" in kind:
        found |= {"groups": groups, "n_groups": 4}
    if "features" in kind:
        found["features"] = features
    return found


def cdf_and_event(shape=(N,)):
    generator = torch.Generator().manual_seed(7)
    cdf = torch.rand(*shape, generator=generator, dtype=torch.float64)
    cdf[..., 3], cdf[..., 5] = 1.0, 0.0
    return cdf, torch.rand(N, generator=generator) < 0.6


def share(values, sizes, rank):
    """Rows of one process; numbers that are not rows stay."""
    start = sum(sizes[:rank])
    return {
        name: value[start : start + sizes[rank]] if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def local_penalties(rank, size, shape):
    found = []
    cdf, event = cdf_and_event(shape)
    for sizes in CUTS[size]:
        start = sum(sizes[:rank])
        mine = slice(start, start + sizes[rank])
        for mode, rows in CASES:
            u = cdf[..., mine].clone().requires_grad_()
            loss = XCALLoss(**MODES[mode], process_group="world")
            value = loss(u, event[mine], **share(rows_of(rows), sizes, rank))
            value.sum().backward()
            found.append((value.detach(), u.grad / size))
    return found


@pytest.mark.parametrize(("size", "shape"), [(2, (N,)), (2, (2, 3, N)), (4, (N,))])
@pytest.mark.ci
def test_value_and_gradient_are_those_of_one_process_with_all_rows(size, shape):
    answers = together(size, local_penalties, shape)
    cdf, event = cdf_and_event(shape)
    cases = [case for _ in CUTS[size] for case in CASES]
    assert len(answers[0]) == len(cases) == len(CUTS[size]) * len(MODES) * len(ROWS)
    for number, (mode, rows) in enumerate(cases):
        u = cdf.clone().requires_grad_()
        expected = xcal_penalty(u, event, **MODES[mode], **rows_of(rows))
        expected.sum().backward()
        for value, _ in (answer[number] for answer in answers):
            torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-12, msg=f"{mode}, {rows}")
            assert torch.equal(value, answers[0][number][0])  # the same bits on every process: the same numbers went in
        gradient = torch.cat([answer[number][1] for answer in answers], dim=-1)
        torch.testing.assert_close(gradient, u.grad, rtol=1e-9, atol=1e-12, msg=f"{mode}, {rows}")


def parts_of_a_loss(rank, size):
    """Mean and penalty with their gradients in the rows, by one all-reduce and by two."""
    found = []
    cdf, event = cdf_and_event((2, N))
    values = torch.exp(3 * cdf.flip(-1))
    for sizes in CUTS[size]:
        start = sum(sizes[:rank])
        mine = slice(start, start + sizes[rank])
        for mode, kind in CASES:
            loss, extra = XCALLoss(**MODES[mode], process_group="world"), share(rows_of(kind), sizes, rank)
            u, v, other_u, other_v = (x[..., mine].clone().requires_grad_() for x in (cdf, values, cdf, values))
            both = loss.with_mean(v, u, event[mine], **extra)
            (both.mean + 10 * both.penalty).sum().backward()
            mean = mean_across_processes(other_v, extra.get("weights"))
            penalty = loss(other_u, event[mine], **extra)
            (mean + 10 * penalty).sum().backward()
            one = (both.mean.detach(), both.penalty.detach(), v.grad, u.grad)
            two = (mean.detach(), penalty.detach(), other_v.grad, other_u.grad)
            found.append((f"{sizes}, {mode}, {kind}", one, two))
    return found


@pytest.mark.ci
def test_mean_and_penalty_by_one_all_reduce_are_those_by_two():
    for answer in together(2, parts_of_a_loss):
        assert len(answer) == len(CUTS[2]) * len(CASES)
        for name, one, two in answer:
            for here, there in zip(one, two, strict=True):
                torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-15, msg=name)


@pytest.mark.parametrize("kind", ROWS)
def test_mean_and_penalty_on_one_process(kind):
    cdf, event = cdf_and_event()
    extra = rows_of(kind)
    u, values = cdf.clone().requires_grad_(), torch.linspace(1, 5, N, dtype=torch.float64, requires_grad=True)
    both = XCALLoss().with_mean(values, u, event, **extra)
    assert torch.equal(both.penalty, XCALLoss()(u, event, **extra))
    weights = extra.get("weights", torch.ones(N, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(both.mean, values)
    torch.testing.assert_close(gradient, weights / weights.sum())
    torch.testing.assert_close(both.mean, (gradient * values).sum())


def test_values_beside_the_penalty_have_its_shape():
    cdf, event = cdf_and_event()
    for values in (cdf[1:], cdf.unsqueeze(-1), torch.ones(N, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"^values: expected floating-point numbers of shape \(41,\), as cdf"):
            XCALLoss().with_mean(values, cdf, event)


class Model(nn.Module):
    """A small log-normal model, and the two parts of its loss for each row."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x, time, event):
        distribution = family("lognormal").distribution(self.net(x))
        return nll(distribution, time, event), distribution.cdf(time)


def made_model():
    torch.manual_seed(3)
    return Model().double()


def survival_rows():
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    happens = torch.exp(x[:, 0] + torch.randn(N, generator=generator, dtype=torch.float64))
    censors = torch.exp(torch.randn(N, generator=generator, dtype=torch.float64) + 0.5)
    return {"x": x, "time": torch.minimum(happens, censors), "event": happens <= censors}


def batches(size):
    """Rows of every step, and how many of them each process has: ragged, and sometimes none."""
    generator = torch.Generator().manual_seed(13)
    for step in range(STEPS):
        batch = torch.randperm(N, generator=generator)[: 20 + step % 5]
        cuts = torch.randint(0, len(batch) + 1, (size - 1,), generator=generator).sort().values.tolist()
        if step % 6 == 5:
            cuts = [len(batch)] * (size - 1)  # the last process has none
        edges = [0, *cuts, len(batch)]
        yield batch, [high - low for low, high in pairwise(edges)]


def ddp_parameters(rank, size):
    """Parameters after the steps, for every case."""
    found = []
    for mode, kind in TRAINED[size]:
        model = DistributedDataParallel(made_model())
        penalty = XCALLoss(**MODES[mode], process_group="world")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for batch, sizes in batches(size):
            mine = batch[sum(sizes[:rank]) :][: sizes[rank]]
            rows = {name: values[mine] for name, values in survival_rows().items()}
            extra = {n: v[mine] if isinstance(v, torch.Tensor) else v for n, v in rows_of(kind).items()}
            objective, cdf = model(**rows)
            mean = mean_across_processes(objective, extra.get("weights"))
            loss = mean + 10.0 * penalty(cdf, rows["event"], **extra)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found.append((loss.detach(), [p.detach() for p in model.parameters()]))
    return found


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.ci
def test_training_takes_the_steps_of_one_process(size):
    answers = together(size, ddp_parameters)
    for number, (mode, kind) in enumerate(TRAINED[size]):
        model, penalty = made_model(), XCALLoss(**MODES[mode])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        start = [p.detach().clone() for p in model.parameters()]
        for batch, _ in batches(size):
            rows = {name: values[batch] for name, values in survival_rows().items()}
            extra = {n: v[batch] if isinstance(v, torch.Tensor) else v for n, v in rows_of(kind).items()}
            objective, cdf = model(**rows)
            weights = extra.get("weights", torch.ones(len(batch), dtype=torch.float64))
            loss = (objective * weights).sum() / weights.sum() + 10.0 * penalty(cdf, rows["event"], **extra)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for value, parameters in (answer[number] for answer in answers):
            torch.testing.assert_close(value, loss.detach(), rtol=1e-9, atol=1e-12)
            for here, there in zip(model.parameters(), parameters, strict=True):
                torch.testing.assert_close(there, here.detach(), rtol=1e-9, atol=1e-9, msg=f"{mode}, {kind}")
        moved = max(float((p.detach() - q).abs().max()) for p, q in zip(model.parameters(), start, strict=True))
        assert moved > 0.05


def in_pieces(rank, size):
    """Gradients of one step whose rows come in micro-batches of 4, all but the last without synchronisation."""
    model, penalty = DistributedDataParallel(made_model()), XCALLoss(process_group="world")
    sizes = (30, 11)
    rows = share(survival_rows(), sizes, rank)
    with torch.no_grad():
        cdf = torch.cat([model(**piece)[1] for piece in pieces_of(rows)])
    found = penalty.slopes(cdf, rows["event"])
    n_all = mean_across_processes(torch.tensor([float(sizes[rank])])) * size
    pieces = list(zip(pieces_of(rows), found.slopes.split(4), strict=True))
    for number, (piece, slopes) in enumerate(pieces):
        last = number + 1 == len(pieces)
        with contextlib.nullcontext() if last else model.no_sync():
            objective, cdf = model(**piece)
            (objective.sum() * size / n_all + 10.0 * (slopes * cdf).sum()).backward()
    return found.value, [p.grad for p in model.parameters()]


def pieces_of(rows):
    for start in range(0, len(rows["time"]), 4):
        yield {name: values[start : start + 4] for name, values in rows.items()}


@pytest.mark.ci
def test_micro_batches_add_up_to_the_gradient_of_the_whole_batch():
    model, rows = made_model(), survival_rows()
    objective, cdf = model(**rows)
    penalty = XCALLoss()(cdf, rows["event"])
    (objective.mean() + 10.0 * penalty).backward()
    for value, gradients in together(2, in_pieces):
        assert float(value) == pytest.approx(float(penalty.detach()), rel=1e-9)
        for here, there in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(there, here.grad, rtol=1e-9, atol=1e-12)


def half_precision(rank, size):
    model, penalty = DistributedDataParallel(made_model().float()), XCALLoss(process_group="world")
    rows = {k: v.float() if v.is_floating_point() else v for k, v in share(survival_rows(), (30, 11), rank).items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective, cdf = model(**rows)
        loss = mean_across_processes(objective) + penalty(cdf.bfloat16(), rows["event"])
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters()]


@pytest.mark.ci
def test_under_autocast_sums_keep_their_precision():
    """Penalty and mean are float32 whatever F is; bfloat16 layers see the same rows in the same order."""
    model = made_model().float()
    rows = {k: v.float() if v.is_floating_point() else v for k, v in survival_rows().items()}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        objective, cdf = model(**rows)
        loss = objective.mean() + XCALLoss()(cdf.bfloat16(), rows["event"])
    loss.backward()
    for value, gradients in together(2, half_precision):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, loss.detach(), rtol=1e-5, atol=1e-6)
        for here, there in zip(model.parameters(), gradients, strict=True):
            # Products of bfloat16 numbers, 8 bits each, are added up in another order.
            torch.testing.assert_close(there, here.grad, rtol=2e-2, atol=2e-2)


def refusals(rank, size):
    """Messages of what each process refuses; the sums of processes must still fit together afterwards."""
    u, event = torch.rand(6), torch.ones(6)
    leaf, loss = u.clone().requires_grad_(), XCALLoss(10, process_group="world")
    calls = {
        "bins": lambda: XCALLoss(10 + rank, process_group="world")(u, event),
        "settings": lambda: XCALLoss(10, estimator=("bound", "unbiased")[rank], process_group="world")(u, event),
        "edges": lambda: XCALLoss(edges=(0, 0.5 + rank / 10, 1), process_group="world")(u, event),
        "models": lambda: loss(u.expand(1 + rank, 6), event),
        "one mean": lambda: loss(u, event) if rank else loss.with_mean(u, u, event),
        "groups": lambda: loss(u, event, groups=torch.zeros(6, dtype=torch.long)),
        "no rows": lambda: loss(u[:0], event[:0]),
        "no weight": lambda: loss(u, event, weights=torch.zeros(6)),
        "no values": lambda: mean_across_processes(u[:0]),
        "no rows with a mean": lambda: loss.with_mean(u[:0], u[:0], event[:0]),
        "vmap": lambda: torch.func.vmap(lambda v: xcal_penalty(v, event, process_group="world"))(u.expand(2, 6)),
        "second": lambda: torch.autograd.grad(loss(leaf, event), leaf, create_graph=True),
        "kind": lambda: XCALLoss(10, process_group=3)(u, event),
        "list": lambda: mean_across_processes([1.0, 2.0]),
    }
    told = {}
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r".") as error:
            call()
        told[name] = str(error.value)
    told["after"] = float(XCALLoss(10, process_group=dist.group.WORLD)(u, event))
    return told


@pytest.mark.ci
def test_what_cannot_be_summed_is_refused_on_every_process_in_one_sentence():
    first, second = together(2, refusals)
    assert first["bins"] == second["bins"] == "n_bins: expected the same number on every process, got 10, 11"
    assert first["settings"].startswith("settings of the penalty: expected the same number on every process")
    assert first["edges"].startswith("edges: expected the same number on every process")
    assert first["models"] == "cdf (number of models): expected the same number on every process, got 1, 2"
    assert (
        first["groups"]
        == "n_groups: expected a number, as every process sees only the labels of its own rows, got None"
    )
    assert first["one mean"] == "calls of with_mean: expected the same number on every process, got 1, 0"
    for name in ("no rows", "no weight", "no values", "no rows with a mean"):
        assert first[name] == "process_group: expected at least one row of positive weight on some process, got none"
    assert "inside torch.compile and torch.func" in first["vmap"]
    assert first["second"].startswith("process_group: expected None for a second derivative")
    assert first["kind"] == 'process_group: expected a group of torch.distributed, "world" or None, got int'
    assert first["list"] == "values: expected a tensor, one value for each row of this process, got list"
    assert first["after"] == second["after"]


def changes(rank, size):
    """What each process is told if the second changes something that they had agreed on, and then changes it back."""
    u, event = torch.rand(6, generator=torch.Generator().manual_seed(rank)), torch.ones(6)
    first, fewer, more = (XCALLoss(n, process_group="world") for n in (20, 10, 300))
    told = []

    def refused(call):
        with pytest.raises(ValueError, match="expected the same number on every process") as error:
            call()
        told.append(str(error.value))

    before = float(first(u, event))
    refused(lambda: (fewer if rank == 1 else first)(u, event))  # new, and shorter
    refused(lambda: (more if rank == 1 else first)(u, event))  # new, and longer
    fewer(u, event)  # a change of all together
    more(u, event)
    refused(lambda: (fewer if rank == 1 else first)(u, event))  # both known
    refused(lambda: first.with_mean(u, u, event) if rank == 0 else first(u, event))
    return told, before, float(first(u, event))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.ci
def test_a_process_that_changes_alone_is_an_error_on_all_of_them(size):
    answers = together(size, changes)
    told = answers[0][0]
    assert all(other[0] == told for other in answers)
    assert told[0].startswith("n_bins: expected the same number on every process, got 20, 10")
    assert told[1].startswith("n_bins: expected the same number on every process, got 20, 300")
    assert told[2] == told[0]
    assert told[3].startswith("calls of with_mean: expected the same number on every process, got 1, 0")
    for _, before, after in answers:
        assert before == answers[0][1]
        assert after == pytest.approx(before, rel=1e-12)  # a longer message may be added up in another order


def test_a_process_on_its_own_is_told_to_initialise():
    expected = "process_group: expected processes that know of each other: call torch.distributed.init_process_group"
    for call in (
        lambda: XCALLoss(process_group="world")(torch.rand(5), torch.ones(5)),
        lambda: mean_across_processes(torch.rand(5)),
    ):
        with pytest.raises(ValueError, match=re.escape(expected)):
            call()
    with pytest.raises(ValueError, match="process_group: expected a group"):
        XCALLoss(process_group="all")


def test_the_module_can_be_copied_and_shows_its_group():
    loss = copy.deepcopy(XCALLoss(10, process_group="world"))
    assert repr(loss).endswith("process_group='world')")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_nccl_sums_on_a_gpu():
    """One process: the same value and gradient as without a group, by the kernels and by the blocks."""
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    try:
        cdf, event = cdf_and_event()
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
            for mode, rows in CASES:
                extra = {n: v.cuda() if isinstance(v, torch.Tensor) else v for n, v in rows_of(rows).items()}
                one, other = (cdf.to("cuda", dtype).requires_grad_() for _ in range(2))
                here = xcal_penalty(one, event.cuda(), **MODES[mode], **extra)
                there = xcal_penalty(other, event.cuda(), **MODES[mode], **extra, process_group="world")
                here.backward()
                there.backward()
                torch.testing.assert_close(there, here, rtol=tolerance, atol=tolerance)
                torch.testing.assert_close(other.grad, one.grad, rtol=tolerance, atol=tolerance)
    finally:
        dist.destroy_process_group()
