"""The penalty of rows that entered late, of events between two times and of events with causes, by one formula."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, special

from tests.calibration.test_partly_seen import drawn
from tests.processes import together
from xcal import XCALLoss, d_calibration, xcal_penalty
from xcal.calibration import cause_calibration
from xcal.calibration.membership import SoftBins
from xcal.calibration.penalties import Seen, mean_square, part_penalty, residuals
from xcal.distributions import family

KINDS = ("entry", "intervals", "both", "causes", "causes and entry", "curves")
EDGES = torch.linspace(0, 1, 6, dtype=torch.float64)


def rows_of(kind, n=60, seed=3, models=()):
    """F, event and what is known beside of random rows, ready for `part_penalty`; all that has a gradient."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(*models, n, generator=generator, dtype=torch.float64)
    event = torch.rand(n, generator=generator) < 0.6
    shares = torch.rand(2, *models, n, generator=generator, dtype=torch.float64)
    early = u * shares[0]
    early[..., ::4] = 0.0
    lower = torch.where(event, early + (u - early) * shares[1], u)
    lower[..., ::5] = u[..., ::5]
    logits = torch.randn(*models, n, 2, 7, generator=generator, dtype=torch.float64)
    steps = torch.softmax(2 * logits.flatten(-2), dim=-1).view(logits.shape)
    cause = torch.where(event, 1 + (torch.arange(n) % 3 == 0).long(), 0)
    known = {
        "entry": Seen(early),
        "intervals": Seen(None, lower),
        "both": Seen(early, lower),
        "causes": Seen(None, None, cause, steps),
        "causes and entry": Seen(early, None, cause, steps),
        "curves": Seen(early, None, cause, steps, beyond=True),
    }
    return u, event, known[kind]


def slowly(u, event, part, row, edges, temperature):
    """P(cell | observed) - P(cell | entry) of one row by loops, its memberships by quadrature."""
    width = temperature / (len(edges) - 1)
    causes = 1 if part.steps is None else part.steps.shape[-2]
    steps = np.ones((1, 1)) if part.steps is None else part.steps[row].numpy()
    level = np.append(0.0, np.cumsum(steps.sum(0)))
    curve = [np.append(0.0, np.cumsum(own)) for own in steps]

    def law(start):
        """Mass of each cell given that the level has come to `start`."""
        found = np.zeros((causes, len(edges) - 1))
        for k in range(causes):
            ends = np.interp(np.maximum(edges, start), level, curve[k])
            found[k] = np.diff(ends) / (1 - start)
        return found

    at = float(u[row])
    if not event[row]:
        seen = law(at)
    else:
        low = at if part.lower is None else float(part.lower[row])

        def above(edge):
            def soft(w):
                return special.expit((w - edge) / width)

            return soft(at) if low == at else integrate.quad(soft, low, at, points=[edge])[0] / (at - low)

        mass = -np.diff([1.0, *(above(edge) for edge in edges[1:-1]), 0.0])
        seen = np.zeros((causes, mass.size))
        seen[0 if part.cause is None else int(part.cause[row]) - 1] = mass
    found = seen - law(0.0 if part.entry is None else float(part.entry[row]))
    return np.append(found[:-1].ravel(), found[-1].sum()) if part.beyond else found.ravel()


@pytest.mark.parametrize("kind", KINDS)
def test_residuals_of_single_rows_by_hand(kind):
    u, event, part = rows_of(kind)
    found = residuals(u, event, part, EDGES, SoftBins(temperature=0.4))
    wanted = [slowly(u, event, part, row, EDGES.numpy(), 0.4) for row in range(len(u))]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(found.sum(-1), 0.0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", ["bound", "unbiased"])
def test_gradients_are_those_of_differences(kind, estimator):
    u, event, part = rows_of(kind, n=12, models=(2,))
    if part.entry is not None:  # at zero there is a slope on one side alone
        part = replace(part, entry=torch.clamp(part.entry, min=0.01 * u))
    spec = SoftBins(estimator=estimator)
    weights = torch.linspace(0.5, 2.0, 12, dtype=torch.float64)
    names = [name for name in ("entry", "lower", "steps") if getattr(part, name) is not None]

    def value(cdf, *others):
        own = {name: getattr(part, name) for name in ("cause", "beyond")}
        return part_penalty(cdf, event, Seen(**own, **dict(zip(names, others, strict=True))), EDGES, spec, weights)

    leaves = [one.clone().requires_grad_() for one in (u, *(getattr(part, name) for name in names))]
    assert torch.autograd.gradcheck(value, leaves, eps=1e-7, atol=1e-5)


class TestTheSameAsPlain:
    """What is known in full has the penalty of today."""

    @pytest.mark.parametrize("estimator", ["bound", "unbiased"])
    def test_entry_at_zero_and_known_times(self, estimator):
        u, event, _ = rows_of("entry", models=(3,))
        weights = torch.rand(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        options = {"estimator": estimator, "weights": weights}
        plain = xcal_penalty(u, event, **options)
        for given in ({"cdf_entry": torch.zeros_like(u)}, {"cdf_lower": u}):
            torch.testing.assert_close(xcal_penalty(u, event, **options, **given), plain, rtol=1e-11, atol=0)

    def test_one_cause(self):
        """Incidences of one cause whose end is certain; also by the steps of a law."""
        generator = torch.Generator().manual_seed(2)
        masses = torch.softmax(torch.randn(50, 1, 6, generator=generator, dtype=torch.float64), dim=-1)
        times, time = torch.arange(1.0, 7.0, dtype=torch.float64), 6 * torch.rand(50, generator=generator)
        event = torch.rand(50, generator=generator) < 0.5
        known = np.column_stack([np.zeros(50), masses[:, 0].cumsum(-1)])
        u = torch.tensor([np.interp(t, np.arange(7), own) for t, own in zip(time, known, strict=True)])
        found = XCALLoss()(masses.cumsum(-1), event.long(), times=times, time=time)
        torch.testing.assert_close(found, XCALLoss()(u, event), rtol=1e-6, atol=1e-9)
        steps = part_penalty(u, event, Seen(None, None, event.long(), masses), XCALLoss().edges, SoftBins())
        torch.testing.assert_close(steps, XCALLoss()(u, event), rtol=1e-11, atol=0)


class TestExactly:
    """Sharp cells are those of the exact measures, which epochs are chosen by."""

    @pytest.mark.parametrize("kind", ["entry", "intervals", "both"])
    def test_d_calibration(self, kind):
        u, event, part = rows_of(kind)
        given = {
            name: None if one is None else one.numpy()
            for name, one in (("cdf_entry", part.entry), ("cdf_lower", part.lower))
        }
        wanted = d_calibration(u, event, n_bins=5, p_value=None, **given)
        found = mean_square(residuals(u, event, part, EDGES, SoftBins(), exact=True), None, SoftBins())
        assert found.item() == pytest.approx(wanted.value, rel=1e-9)
        # Nothing softer than a sliver of a bin.
        sharp = xcal_penalty(u, event, n_bins=5, temperature=1e-4, **given)
        assert sharp.item() == pytest.approx(wanted.value, rel=1e-3)

    def test_cause_calibration(self):
        generator = torch.Generator().manual_seed(4)
        curves = torch.rand(80, 2, 9, generator=generator, dtype=torch.float64).cumsum(-1) / 14
        time = 11 * torch.rand(80, generator=generator, dtype=torch.float64)
        cause = torch.randint(0, 3, (80,), generator=generator)
        times = torch.arange(1.0, 10.0, dtype=torch.float64)
        wanted = cause_calibration(curves, times, time=time, cause=cause, n_bins=5, draws=99)
        found = xcal_penalty(curves, cause, times=times, time=time, n_bins=5, temperature=1e-5)
        assert found.item() == pytest.approx(wanted.value, rel=1e-6)


@pytest.mark.parametrize("name", ["categorical", "mtlr", "weibull"])
def test_laws_of_causes_and_their_curves_have_one_penalty(name):
    """A family's own steps, and its incidences read off a fine grid."""
    edges = torch.linspace(0.0, 6.0, 7, dtype=torch.float64)
    made = family(name, causes=2, edges=edges if name != "weibull" else None)
    raw = torch.randn(40, made.n_outputs, generator=torch.Generator().manual_seed(5), dtype=torch.float64) / 2
    dist = made.distribution(raw)
    generator = torch.Generator().manual_seed(6)
    time, cause = 4 * torch.rand(40, generator=generator, dtype=torch.float64), torch.arange(40) % 3
    part = Seen(None, None, cause, dist.incidence_steps())
    found = part_penalty(dist.cdf(time), cause > 0, part, EDGES, SoftBins())
    times = edges[1:] if name != "weibull" else torch.logspace(-6, 5, 400, dtype=torch.float64)
    curves = dist.cumulative_incidence(times.unsqueeze(-1)).permute(1, 2, 0)
    wanted = xcal_penalty(curves, cause, times=times, time=time, edges=EDGES)
    # The twelve points of a continuous law divide what a bin has among the causes a little unlike its integrals.
    torch.testing.assert_close(found, wanted, rtol=1e-9 if name != "weibull" else 0.02, atol=1e-9)


@pytest.mark.parametrize("kind", ["entry", "intervals"])
def test_the_truth_is_not_pushed(kind):
    """The penalty of the truth is noise, and its slope in a common factor of all hazards too; ignored rows push it."""
    rng = np.random.default_rng(8)
    many = {"late": 0.7 if kind == "entry" else 0.0, "width": 0.7 if kind == "intervals" else 0.0}
    cdf, entry, event, lower = drawn(20_000, rng, **many)
    known = {"cdf_entry": entry} if kind == "entry" else {"cdf_lower": lower}
    n = len(cdf)

    def penalty(factor, **given):
        faster = [1 - (1 - torch.from_numpy(one)) ** factor for one in (cdf, *given.values())]
        return xcal_penalty(faster[0], event, **dict(zip(given, faster[1:], strict=True)), estimator="unbiased").item()

    assert abs(penalty(1.0, **known)) < 5 / n
    assert penalty(1.0) > 20 / n
    assert min((penalty(factor, **known), factor) for factor in np.linspace(0.8, 1.25, 10))[1] == pytest.approx(1.0)


def local(rank, size):
    """Value and gradient of the rows of a process, of all rows where it is alone."""
    found = []
    for kind in ("entry", "intervals", "both", "curves"):
        for cut in (20, 60):
            mine = slice(0, 60) if size == 1 else slice(0, cut) if rank == 0 else slice(cut, 60)
            u, event, part = rows_of(kind, models=(2,))
            weights = torch.linspace(1.0, 3.0, 60, dtype=torch.float64)[mine]
            options = {"weights": weights, "estimator": "unbiased" if kind == "both" else "bound"}
            options["process_group"] = "world"
            if kind == "curves":
                leaf = part.steps[..., mine, :, :].clone().requires_grad_()
                rows = {"times": torch.arange(1.0, 8.0), "time": torch.linspace(0.1, 8.0, 60)[mine]}
                value = xcal_penalty(0.9 * leaf.cumsum(-1), part.cause[mine], **rows, **options)
            else:
                leaf = u[..., mine].clone().requires_grad_()
                early = {f"cdf_{name}": getattr(part, name) for name in ("entry", "lower")}
                rows = {name: one[..., mine] for name, one in early.items() if one is not None}
                value = xcal_penalty(leaf, event[mine], **rows, **options)
            value.sum().backward()
            found.append((-3 if kind == "curves" else -1, value.detach(), leaf.grad / size))
    return found


@pytest.mark.ci
def test_rows_of_several_processes():
    """Value and gradient are those of one process with all rows; one of them may have none."""
    one, other = together(2, local)
    (alone,) = together(1, local)
    for (dim, value, gradient), (_, there, rest), (_, wanted, whole) in zip(one, other, alone, strict=True):
        assert torch.equal(value, there)
        torch.testing.assert_close(value, wanted, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(torch.cat([gradient, rest], dim=dim), whole, rtol=1e-9, atol=1e-12)


CURVES = torch.tensor([[[0.1, 0.3], [0.2, 0.4]]] * 3)
TIMES = {"times": torch.tensor([1.0, 2.0]), "time": torch.tensor([0.5, 1.5, 2.5])}


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"time": None}, "time: expected the observed time of each row, beside times, got None"),
            ({"event": torch.tensor([0, 1, 3])}, "event: expected causes from 0 to 2, got 3 at row 2"),
            ({"event": torch.tensor([True, False, True])}, "event: expected whole numbers: 0 for a censored row"),
            ({"times": torch.tensor([2.0, 1.0])}, "times: expected strictly increasing times.* at row 1"),
            ({"times": torch.tensor([1.0])}, r"cdf: expected shape \(..., n, causes, 1\).* got shape \(3, 2, 2\)"),
            ({"cdf": 2 * CURVES}, "cdf: expected incidences that add up to at most 1 over the causes, got 1.4"),
            ({"cdf": CURVES.flip(-1)}, "cdf: expected incidences that never fall in time.* at row 0"),
            ({"cdf": -CURVES}, "cdf: expected incidences of 0 or more, got -0.4.* at row 0"),
            ({"entry": torch.tensor([0.0, 1.5, 0.0])}, "entry: expected times before the time of the row.* at row 1"),
            ({"groups": torch.tensor([0, 1, 1])}, "groups: expected None for rows that are seen in part"),
            ({"membership": "product"}, "membership, censored: expected membership='partition' and censored='exact'"),
            ({"cdf_entry": torch.zeros(3)}, "cdf_entry: expected None beside times: entry has the times of entry"),
        ],
    )
    def test_causes(self, given, message):
        rows = {"cdf": CURVES, "event": torch.tensor([0, 1, 2]), **TIMES, **given}
        with pytest.raises(ValueError, match=message):
            xcal_penalty(**rows)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"cdf_entry": torch.tensor([0.1, 0.6])}, "cdf_entry: expected F at an earlier time.* at row 1"),
            ({"cdf_lower": torch.tensor([0.1])}, r"cdf_lower: expected floating-point numbers of shape \(2,\)"),
            ({"time": torch.ones(2)}, "time: expected None without times"),
            ({"cdf_entry": torch.zeros(2), "features": torch.ones(2, 1)}, "features: expected None for rows that are"),
        ],
    )
    def test_early(self, given, message):
        with pytest.raises(ValueError, match=message):
            xcal_penalty(torch.tensor([0.3, 0.5]), torch.tensor([True, False]), **given)
