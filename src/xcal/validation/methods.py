"""A paragraph about the methods that can be pasted into a paper."""

from collections.abc import Iterator, Mapping

import numpy as np

from xcal.calibration.bins import N_BINS
from xcal.metrics.inputs import rounded_time
from xcal.metrics.spec import VALUES
from xcal.show.charts import time_in_words
from xcal.validation.arguments import MIN_EVENTS
from xcal.validation.at_horizon import MANY_EVENTS
from xcal.validation.result import DataSummary, Measurements
from xcal.validation.sample import Sample
from xcal.validation.words import listed, range_in_words, times_in_words

# About what was computed, and nothing else.

REFERENCES = {
    "akritas": "Akritas MG. Pearson-type goodness-of-fit tests: the univariate case. J Am Stat Assoc 1988;83:222-230.",
    "andersen": "Andersen PK, Klein JP, Rosthøj S. Generalised linear models for correlated pseudo-observations, with "
    "applications to multi-state models. Biometrika 2003;90:15-27.",
    "antolini": "Antolini L, Boracchi P, Biganzoli E. A time-dependent discrimination index for survival data. "
    "Stat Med 2005;24:3927-3944.",
    "austin": "Austin PC, Harrell FE, van Klaveren D. Graphical calibration curves and the integrated calibration "
    "index (ICI) for survival models. Stat Med 2020;39:2714-2742.",
    "debray": "Debray TPA, Damen JAAG, Snell KIE, et al. A guide to systematic review and meta-analysis of prediction "
    "model performance. BMJ 2017;356:i6460.",
    "geloven": "van Geloven N, Giardiello D, Bonneville EF, et al. Validation of prediction models in the presence of "
    "competing risks: a guide through modern methods. BMJ 2022;377:e069249.",
    "goldstein": "Goldstein M, Han X, Puli A, Perotte AJ, Ranganath R. X-CAL: explicit calibration for survival "
    "analysis. NeurIPS 2020.",
    "graf": "Graf E, Schmoor C, Sauerbrei W, Schumacher M. Assessment and comparison of prognostic classification "
    "schemes for survival data. Stat Med 1999;18:2529-2545.",
    "haider": "Haider H, Hoehn B, Davis S, Greiner R. Effective ways to build and evaluate individual survival "
    "distributions. J Mach Learn Res 2020;21(85):1-63.",
    "harrell": "Harrell FE, Califf RM, Pryor DB, Lee KL, Rosati RA. Evaluating the yield of medical tests. JAMA "
    "1982;247:2543-2546.",
    "holm": "Holm S. A simple sequentially rejective multiple test procedure. Scand J Stat 1979;6:65-70.",
    "houwelingen": "van Houwelingen HC. Dynamic prediction by landmarking in event history analysis. Scand J Stat "
    "2007;34:70-85.",
    "kattan": "Kattan MW, Gerds TA. The index of prediction accuracy: an intuitive measure useful for evaluating risk "
    "prediction models. Diagn Progn Res 2018;2:7.",
    "louis": "Louis TA. Finding the observed information matrix when using the EM algorithm. J R Stat Soc B "
    "1982;44:226-233.",
    "mclernon": "McLernon DJ, Giardiello D, Van Calster B, et al. Assessing performance and clinical usefulness in "
    "prediction models with survival outcomes: practical guidance for Cox proportional hazards models. Ann Intern Med "
    "2023;176:105-114.",
    "rahimi": "Rahimi A, Recht B. Random features for large-scale kernel machines. NeurIPS 2007.",
    "robins": "Robins JM, Rotnitzky A. Recovery of information and adjustment for dependent censoring using surrogate "
    "markers. In: AIDS Epidemiology: Methodological Issues. Birkhäuser 1992:297-331.",
    "schemper": "Schemper M, Smith TL. A note on quantifying follow-up in studies of failure time. Control Clin Trials "
    "1996;17:343-346.",
    "turnbull": "Turnbull BW. The empirical distribution function with arbitrarily grouped, censored and truncated "
    "data. J R Stat Soc B 1976;38:290-295.",
    "uno": "Uno H, Cai T, Pencina MJ, D'Agostino RB, Wei LJ. On the C-statistics for evaluating overall adequacy of "
    "risk prediction procedures with censored survival data. Stat Med 2011;30:1105-1117.",
    "uno2007": "Uno H, Cai T, Tian L, Wei LJ. Evaluating prediction rules for t-year survivors with censored "
    "regression models. J Am Stat Assoc 2007;102:527-537.",
    "vickers": "Vickers AJ, Cronin AM, Elkin EB, Gonen M. Extensions to decision curve analysis, a novel method for "
    "evaluating diagnostic tests, prediction models and molecular markers. BMC Med Inform Decis Mak 2008;8:53.",
}


class _Cited:
    """Numbers references in the order in which they are cited."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def __call__(self, *keys: str) -> str:
        for key in keys:
            if key not in self.keys:
                self.keys.append(key)
        return " [" + ", ".join(str(self.keys.index(key) + 1) for key in keys) + "]"

    def listing(self) -> str:
        return "\n".join(f"[{place}] {REFERENCES[key]}" for place, key in enumerate(self.keys, 1))


def write_methods(
    sample: Sample,
    measured: Measurements,
    data: DataSummary,
    level: float,
    n_bootstrap: int,
    resampled_rows: int | None,
    time_unit: str,
    causes: Mapping[str, Measurements],
) -> str:
    """Write one paragraph, an empty line, and its references; of all events also what was done for each of `causes`."""
    cite = _Cited()
    names = {value.metric for value in measured.values}
    sentences = [
        *_rows(sample, data, time_unit, cite),
        *_discrimination(names, cite),
        *_calibration(names, measured, sample, cite),
        *_over_time(names, sample),
        *_overall(names, measured, sample, time_unit, cite),
        *_causes(causes, names, cite),
        *_weights(sample, names),
        *_groups(sample, names, cite),
        *_landmarks(sample, time_unit, cite),
        *_intervals(level, n_bootstrap, resampled_rows, names, sample),
    ]
    return f"{' '.join(sentences)}\n\n{cite.listing()}"


def _rows(sample: Sample, data: DataSummary, unit: str, cite: _Cited) -> Iterator[str]:
    from xcal import __version__

    found = sample.predictions
    source = "" if found.library == "none" else f" ({found.library})"
    events = "1 event" if data.n_events == 1 else f"{data.n_events:,} events"
    yield (
        f"The predictions of {found.model}{source} were validated on {data.n:,} rows with {events}, following "
        f"published guidance{cite('mclernon')}, with xcal {__version__}."
    )
    if np.isfinite(data.median_follow_up):
        follow_up = time_in_words(rounded_time(data.median_follow_up), unit)
        yield f"Median follow-up was {follow_up} by reverse Kaplan-Meier{cite('schemper')}."
    if sample.horizons.size:
        yield f"Risks were assessed at {times_in_words(list(sample.horizons), unit)}."
    yield from found.reading
    if sample.cause:
        yield (
            f"The event is {sample.cause}; other causes compete{cite('geloven')}: rows with another event first never "
            "have this one."
        )


def _discrimination(names: set[str], cite: _Cited) -> Iterator[str]:
    parts = {
        "harrell": lambda: f"Harrell's concordance{cite('harrell')}",
        "uno": lambda: f"Uno's concordance with inverse probability of censoring weights{cite('uno')}",
        "antolini": lambda: f"Antolini's time-dependent concordance{cite('antolini')}",
        "concordance": lambda: f"the concordance under competing risks by each horizon{cite('geloven')}",
        "auc": lambda: f"the cumulative/dynamic area under the ROC curve at each horizon{cite('uno2007')}",
    }
    told = [tell() for name, tell in parts.items() if name in names]
    if told:
        yield f"Discrimination was measured by {listed(told)}."


def _calibration(names: set[str], measured: Measurements, sample: Sample, cite: _Cited) -> Iterator[str]:
    corrected = measured.censoring is not None and measured.censoring.corrected
    late, between = sample.rows.entry is not None, sample.rows.lower is not None
    if late:
        yield (
            "Rows came under observation at times of entry (left truncation): everything is given that a row has come "
            "so far, and risk sets hold the rows that had entered."
        )
    if sample.rows.stretches is not None:
        yield (
            "Covariates change from row to row of a person: the predicted hazard was summed along the rows, of which "
            "the sum of a right model is exponential."
        )
    if between:
        yield (
            "Events are known to lie between two times: each has its part of every bin of F, and the probability of "
            "the interval as its likelihood."
        )
    if between and "oe" in names:
        yield (
            "The outcome by a horizon was replaced by its probability given what was known of the row, by the "
            "predicted curves after recalibration to these rows, the distance from the predicted risk divided by the "
            f"share of the information that was left{cite('louis')}. The curve over time is "
            f"Turnbull's{cite('turnbull')}."
        )
    elif late and not corrected and "oe" in names:
        yield (
            "The outcome by a horizon, of rows that had entered before it, was replaced by doubly robust pseudo-values "
            f"from the predicted curves and the censoring of the rows at risk{cite('robins')}."
        )
    elif corrected:
        yield (
            "As censoring depended on covariates, the outcome by a horizon was replaced by doubly robust "
            f"pseudo-values, from the predicted curves and a Cox model of the censoring{cite('robins')}."
        )
    elif "oe" in names:
        of = " of the cumulative incidence" if sample.cause else ""
        yield f"Jackknife pseudo-values{of} stand for the outcome by a horizon, observed or not{cite('andersen')}."
    if "oe" in names:
        how = "the mean of the pseudo-values" if corrected or late or between else _curve(sample)
        yield f"Mean calibration is the ratio of the observed ({how}) to the mean predicted risk (O/E)."
    if "slope" in names:
        yield (
            "Calibration slope and intercept at each horizon come from regressions of the pseudo-values on the "
            "predicted risk with a complementary log-log link, the intercept with the slope held at "
            f"1{cite('geloven')}."
        )
    if "ici" in names:
        yield (
            "Calibration curves are local linear regressions of the pseudo-values on the predicted risk, without a "
            "model of hazards, summarised by the integrated calibration index (ICI), E50, E90 and Emax"
            f"{cite('austin')}; beside each stands the mean value of a perfect model on as many rows."
        )
    if "oe_p" in names:
        law = _law(sample, has_cdf="d_calibration" in names)
        yield (
            "Calibration at horizons was tested with what is known of a row less what was predicted of it, summed over "
            f"all rows and over neighbours in risk, compared with {law}; p-values are corrected for the number of "
            "tests."
        )
    if measured.seen:
        yield (
            "As times are in whole units and it is not known how long censored rows were observed in their last one, "
            "intervals of O/E, slope and ICI hold both extremes and tests give the larger p-value."
        )
    if "d_calibration" in names:
        others = {"d_calibration_km": "redistributed as by Kaplan-Meier"}
        others["d_calibration_ipcw"] = "replaced by weights of inverse probability"
        also = [words for name, words in others.items() if name in names]
        versions = f" (in other versions {listed(also)})" if also else ""
        yield (
            f"D-calibration{cite('haider')} is the sum of squared differences between the observed and the expected "
            f"share of predicted probabilities in {N_BINS} bins{cite('goldstein')}, censored rows being spread evenly "
            f"over what lies above them{versions}; its floor is the mean value of a perfect model in a sample of this "
            "size."
        )
    if "d_calibration_p" in names and sample.rows.clusters is not None:
        yield (
            f"Its test{cite('akritas')} is compared with draws in which whole clusters of rows change their sign, and "
            "its floor is that of sums over clusters."
        )
    elif "d_calibration_p" in names and sample.rows.weights is not None:
        yield f"Its test allows for censoring{cite('akritas')}, with the covariance of weighted rows."
    elif "d_calibration_p" in names and between:
        yield "Its test compares the sum of squares with the law that follows from the covariance of the rows."
    elif "d_calibration_p" in names:
        yield f"Its test allows for censoring{cite('akritas')}; where rows were few, its p-value is simulated."
    if measured.for_whom is not None:
        columns = len(measured.for_whom.columns)
        search = "; the subgroup that is most off was searched on one half of the rows and tested on the other"
        if sample.rows.weights is not None:  # no subgroup is searched
            search = ""
        yield (
            f"Calibration given {'one covariate' if columns == 1 else f'{columns} covariates'} was tested with random "
            f"Fourier features{cite('rahimi')} of the covariates, which are multiplied by each row's residual of "
            f"D-calibration, and random signs of the rows{search}."
        )


def _over_time(names: set[str], sample: Sample) -> Iterator[str]:
    if "km_calibration" in names:
        what = "incidence" if sample.cause else "survival curve"
        yield f"Over time, the mean predicted {what} was compared with the {_curve(sample)} curve."


def _curve(sample: Sample) -> str:
    return "Kaplan-Meier" if sample.rows.outcome.competing is None else "Aalen-Johansen"


def _law(sample: Sample, *, has_cdf: bool) -> str:
    """Return what the tests at horizons were compared with: draws need whole curves, and rows that are independent."""
    if np.count_nonzero(sample.rows.event) >= MANY_EVENTS:
        return "the normal law of such sums"
    if sample.rows.clusters is not None:
        return "random signs of whole clusters"
    unknown = sample.rows.weights is not None or sample.rows.lower is not None
    if unknown or sample.rows.survival is None or not has_cdf:
        return "random signs of the rows"
    return "draws from the model's own curves"


def _overall(names: set[str], measured: Measurements, sample: Sample, unit: str, cite: _Cited) -> Iterator[str]:
    parts = {
        "brier": lambda: f"the Brier score{cite('graf')}",
        "ipa": lambda: (
            "the index of prediction accuracy (IPA, one less the ratio to the Brier score of the "
            f"{_curve(sample)} curve){cite('kattan')}"
        ),
        "ibs": lambda: f"the integrated Brier score{cite('graf')}{_range(measured, unit)}",
        "nll": lambda: "the negative log-likelihood",
    }
    told = [tell() for name, tell in parts.items() if name in names]
    if told:
        yield f"Overall performance was measured by {listed(told)}."
    if measured.decision:
        yield f"Usefulness was assessed by net benefit under censoring{cite('vickers')}."


def _causes(causes: Mapping[str, Measurements], names: set[str], cite: _Cited) -> Iterator[str]:
    """Tell what was done for each cause, beside all events."""
    if not causes:
        return
    yield (
        f"All this is of the first event, whatever its cause; {listed(list(causes))} were then judged one by one with "
        f"the others as competing risks{cite('geloven')}: rows with another event first never have this one."
    )
    of_each = {value.metric for one in causes.values() for value in one.values}
    corrected = [name for name, one in causes.items() if one.censoring is not None and one.censoring.corrected]
    if "oe" in of_each and len(corrected) < len(causes):
        yield (
            "O/E of a cause is the ratio of the Aalen-Johansen estimate to the mean predicted incidence; its slope and "
            "calibration curve come from jackknife pseudo-values (pseudo-observations) of the cumulative incidence"
            f"{cite('andersen')}."
        )
    if "oe" in of_each and corrected:
        of = "" if len(corrected) == len(causes) else f" of {listed(corrected)}"
        yield (
            f"As censoring depended on covariates, the outcome{of} was replaced by doubly robust pseudo-values "
            f"(pseudo-observations) of the cumulative incidence{cite('robins')}, of which O/E has the mean."
        )
    if "km_calibration" in of_each:
        yield "Over time, mean predicted incidences were compared with Aalen-Johansen curves."
    if "cause_calibration" in names:
        yield (
            f"D-calibration by cause{cite('haider')} is the sum of squared differences between the observed and the "
            f"expected share of the cells of {N_BINS} bins of the all-cause F and the causes, censored rows being "
            "spread over what the model expects of them later. Its test compares the events of each cell with the "
            "number that the model expects while rows were observed, against Poisson draws."
        )


def _range(measured: Measurements, unit: str) -> str:
    return "" if measured.ibs_range is None else f" (averaged from {range_in_words(measured.ibs_range, unit)})"


def _weights(sample: Sample, names: set[str]) -> Iterator[str]:
    if sample.rows.weights is not None:
        yield (
            "All values are weighted by the rows' sampling weights; pseudo-values are those of the infinitesimal "
            "jackknife, and errors, floors and tests are design-based, from the squares of weight times residual of "
            f"each row (effectively {sample.rows.weights.sum():,.0f} rows)."
        )
    if sample.rows.censoring is not None and names & {"uno", "auc", "brier"}:
        yield "Weights for censoring come from the Kaplan-Meier curve of the censoring in the training rows."


def _groups(sample: Sample, names: set[str], cite: _Cited) -> Iterator[str]:
    if not sample.groups:
        return
    corrected = (
        f", with p-values corrected by Holm's method{cite('holm')}" if "d_calibration_p_corrected" in names else ""
    )
    yield f"Calibration was assessed within groups by {listed(list(sample.groups))}{corrected}."
    if "oe_sites" in names:
        yield (
            f"Values by {sample.site} were summarised by random effects{cite('debray')}: restricted maximum "
            "likelihood, intervals of Hartung, Knapp, Sidik and Jonkman, and a prediction interval for a new one. "
            + (
                f"Those with fewer than {MIN_EVENTS} events were put together, and not averaged."
                if sample.small_sites
                else ""
            )
        ).strip()


def _landmarks(sample: Sample, unit: str, cite: _Cited) -> Iterator[str]:
    if sample.landmarks:
        at = times_in_words([one.at for one in sample.landmarks], unit)
        yield (
            f"Those who had come to a landmark ({at}) without the event were assessed again{cite('houwelingen')}, with "
            "risks from there on: curves divided by their value at the landmark, from which horizons count."
        )


def _intervals(
    level: float, n_bootstrap: int, resampled_rows: int | None, names: set[str], sample: Sample
) -> Iterator[str]:
    together = sample.rows.clusters
    analytic = [value.analytic for value in VALUES.values() if value.analytic and value.metric in names]
    by_formula = f"; those of {listed(analytic)} are analytic" if analytic else ""
    if n_bootstrap:
        what = "the rows" if resampled_rows is None else f"a random part of {resampled_rows:,} rows"
        if together is not None:
            what += f", in which whole clusters were drawn ({together.count:,} in all),"
        if sample.rows.weights is not None:
            what += " with their weights"
        yield (
            f"Intervals ({100 * level:g} %) are from {n_bootstrap:,} bootstrap resamples of {what} without refitting "
            f"the model{by_formula}."
        )
        if resampled_rows is not None:
            yield "What the resamples differ by was scaled to all rows by the square root of the numbers of rows."
    elif analytic:
        yield f"Intervals ({100 * level:g} %) are analytic, for {listed(analytic)} only."
