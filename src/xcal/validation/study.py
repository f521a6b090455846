"""What only the authors of a study know, from a file of theirs, and what guidelines ask for that it answers.

The fields of `Study` are the keys of the file. Each says what it asks for, and which items of TRIPOD+AI (Collins and
others, BMJ 2024;385:e078378) and which signalling questions of PROBAST+AI (Moons and others, BMJ 2025;388:e082505) it
answers; the template of a file and both checklists are made from that. Items and questions are in our own words.
"""

import math
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from xcal._checks import fail
from xcal._files import read, write_whole
from xcal.show.page import Checklist, ChecklistItem

if TYPE_CHECKING:
    from xcal.validation.result import AuditResult

# --- The study file.

_Part = TypeVar("_Part")


def _asks(what: str, *answers: str) -> Any:
    """Return a text field: what it asks for, and which items ("5a") and questions ("P1.1") it answers."""
    return field(default="", metadata={"asks": what, "answers": answers})


@dataclass(frozen=True)
class Background:
    """Why the study was done."""

    context: str = _asks(
        "The decision that the model is for, why it is needed, and which other models there are.", "3a"
    )
    target: str = _asks("Who it is meant for, and who would use it, where in their care.", "3b")
    inequalities: str = _asks("Known differences in health between groups of people that matter here.", "3c")
    objectives: str = _asks("What the study set out to do: here, to evaluate a model that exists.", "4")


@dataclass(frozen=True)
class Data:
    """Where the rows come from."""

    source: str = _asks(
        "Where the data come from (trial, cohort, registry, routine records), why, and whom they stand for.",
        "5a",
        "P1.1",
    )
    dates: str = _asks("When the first and the last patient entered, and when follow-up ended.", "5b")
    design: str = _asks("The design: cohort, case-cohort, nested case-control; how rows were sampled.", "5a", "P1.2")
    setting: str = _asks("Care setting, number and place of the centres.", "6a")
    eligibility: str = _asks("Who could take part, and who was left out, with numbers.", "6b", "P1.3")
    treatment: str = _asks("Treatments that patients received, and how they are dealt with.", "6c")
    preparation: str = _asks("How the data were cleaned and prepared, alike for all groups of people.", "7", "P2.2")
    separation: str = _asks(
        "Whether any of these patients took part in making the model, or in choosing it.", "12g", "P4.1", "P4.5"
    )


@dataclass(frozen=True)
class Outcome:
    """What is predicted."""

    definition: str = _asks("The event: its definition, and how and when it was looked for.", "8a", "P3.1")
    alike: str = _asks("Whether it was found in the same way for all patients.", "8a", "P3.2")
    assessors: str = _asks("Who decided, if that takes judgement: their qualification and background.", "8b")
    blinding: str = _asks("Whether who decided knew the predictors, or the predictions.", "8c", "P3.3")
    horizon: str = _asks("The time by which the event is predicted, and why that time.", "8a", "P3.4")


@dataclass(frozen=True)
class Predictors:
    """What the predictions are made from."""

    definition: str = _asks("The predictors, and how and when they were measured, in all patients alike.", "9b", "P2.1")
    assessors: str = _asks("Who measured them, if that takes judgement.", "9c")
    blinding: str = _asks("Whether who measured them knew the outcome.", "9b", "P2.3")
    available: str = _asks("Whether all of them are known when the model is to be used.", "9b", "P2.4")


@dataclass(frozen=True)
class Analysis:
    """What was decided about the analysis."""

    sample_size: str = _asks("How the number of patients came about.", "10", "P4.2")
    missing: str = _asks(
        "How missing predictors were dealt with, and how many rows were left out for that.", "11", "P4.3"
    )
    imbalance: str = _asks(
        "Whether events were over-sampled in making the model, and what was done about it.", "13", "P4.4"
    )
    fairness: str = _asks("Which groups of people matter, and why.", "14")
    thresholds: str = _asks("Risks above which one would act, and why.", "15")


@dataclass(frozen=True)
class Statements:
    """What a journal asks for."""

    ethics: str = _asks("Ethical approval, and consent or its waiver.", "17")
    funding: str = _asks("Who paid, and what part they had.", "18a")
    conflicts: str = _asks("Conflicts of interest.", "18b")
    protocol: str = _asks("Where the protocol can be read, or that there is none.", "18c")
    registration: str = _asks("Register and number, or that the study is not registered.", "18d")
    data_sharing: str = _asks("Where the data can be had.", "18e")
    code_sharing: str = _asks("Where the code of the analysis can be had.", "18f")
    involvement: str = _asks("How patients and the public took part, or that they did not.", "19")


@dataclass(frozen=True)
class Discussion:
    """What follows."""

    interpretation: str = _asks("What the results mean, beside those of earlier studies, fairness included.", "25")
    limitations: str = _asks("Limitations, and what they do to the results.", "26")
    next_steps: str = _asks("What is to be done before the model is used.", "27c")


@dataclass(frozen=True)
class Study:
    """What the authors say of their study; see `new_study` for a file to fill in."""

    title: str = _asks("Title: that a prediction model is evaluated, in whom, for which outcome.", "1")
    background: Background = field(default_factory=Background)
    data: Data = field(default_factory=Data)
    outcome: Outcome = field(default_factory=Outcome)
    predictors: Predictors = field(default_factory=Predictors)
    analysis: Analysis = field(default_factory=Analysis)
    statements: Statements = field(default_factory=Statements)
    discussion: Discussion = field(default_factory=Discussion)

    def told(self, part: str) -> tuple[tuple[str, str], ...]:
        """Return the names and texts of a part that are there."""
        own = getattr(self, part)
        return tuple(
            (one.name.replace("_", " ").capitalize(), getattr(own, one.name))
            for one in fields(own)
            if getattr(own, one.name)
        )


def read_study(study: Any) -> Study | None:
    """Return the study from a TOML file, a table of its keys, or what was read before; None for none."""
    if study is None or isinstance(study, Study):
        return study
    if isinstance(study, Mapping):
        return without_blanks(read(Study, study, "study"))
    if not isinstance(study, str | Path):
        fail("study", "a TOML file, or a table of its keys", type(study).__name__)
    path = Path(study)
    if not path.is_file():
        fail("study", "a TOML file (xcal audit --new-study writes one to fill in)", repr(str(study)))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fail(f"study, {path}", "TOML in UTF-8", f"text that is none ({error})")
    return without_blanks(read(Study, content, str(path)))


def without_blanks(study: _Part) -> _Part:
    """Return the texts without blanks around them, and with single ones between words."""
    new: dict[str, Any] = {}
    for one in fields(study):  # type: ignore[arg-type]  # a dataclass
        value = getattr(study, one.name)
        new[one.name] = " ".join(value.split()) if isinstance(value, str) else without_blanks(value)
    return type(study)(**new)


def new_study(path: str | Path) -> Path:
    """Write a study file to fill in, with what each key asks for; a file that is there is not touched."""
    target = Path(path)
    if target.exists():
        fail("path", "a file that is not there yet", repr(str(path)))
    write_whole(target, template().encode("utf-8"))
    return target


def template() -> str:
    """Return the text of an empty study file."""
    lines = ["# What only you know about the study. Fill in what you can, in full sentences; leave the rest empty."]
    lines += ['# Longer texts stand between three quotes: """ ... """. Numbers are items of TRIPOD+AI.', ""]
    lines += _keys(Study)
    for part in fields(Study):
        if isinstance(part.default_factory, type):
            lines += [f"[{part.name}]", *_keys(part.default_factory)]
    return "\n".join(lines).rstrip() + "\n"


def _keys(kind: type) -> Iterator[str]:
    for one in fields(kind):
        if "asks" in one.metadata:
            items = ", ".join(answer for answer in one.metadata["answers"] if not answer.startswith("P"))
            yield from textwrap.wrap(
                f"{one.metadata['asks']} ({items})", 98, initial_indent="# ", subsequent_indent="# "
            )
            yield f'{one.name} = ""'
            yield ""


# --- What the audit itself answers: True, in part (None) or not (False), and where.

_Answer = tuple[bool | None, str]


def _training(one: "AuditResult") -> _Answer:
    if one.table_one is not None and any(line.training is not None for line in one.table_one.lines):
        return True, "Data: both sets of rows side by side, with standardised differences."
    if one.data.compared_with_training:
        return (
            None,
            "Data: outcomes were compared. The training rows have columns, too (training=, in xcal audit --training).",
        )
    return False, "Give the training rows (training=, in xcal audit --training)."


def _measures(one: "AuditResult") -> _Answer:
    full = bool(one.measured.calibration) and bool(one.measured.decision)
    return True if full else None, "Methods; one section for each question."


def _sites(one: "AuditResult") -> _Answer:
    if one.sites:
        return True, "Sites: each of them, how much they differ, what a new one may show."
    told = "Name the site (sites=, --site)." + (" Groups: calibration within each." if one.groups else "")
    return None if one.groups else False, told


def _fairness(one: "AuditResult") -> _Answer:
    if one.groups:
        return None, "Groups: calibration within each."
    if one.measured.for_whom is not None:
        return None, "For whom: calibration given the covariates; name the groups that matter (groups=, --by)."
    return False, "No groups were given: name them (groups=, --by)."


def _performance(one: "AuditResult") -> _Answer:
    intervals, groups = any(not math.isnan(value.lower) for value in one.values), bool(one.groups)
    told = "All numbers" + ("" if intervals else ", without intervals") + ("." if groups else "; no groups were given.")
    return True if intervals and groups else None if intervals or groups else False, told


def _followed(one: "AuditResult") -> _Answer:
    if math.isnan(one.data.median_follow_up):
        return None, "Data: rows and events; the median is not reached."
    return True, "Data: rows, events, follow-up."


def _described(one: "AuditResult") -> _Answer:
    if one.table_one is None or not one.table_one.lines:
        return False, "Give the columns of the rows (X, or columns in the file)."
    return True, "Data: Table 1, with missing values."


def _missing(one: "AuditResult") -> _Answer:
    found = one.table_one is not None and bool(one.table_one.lines)
    return None if found else False, "Data: how many values are missing." if found else "Say how they were dealt with."


def _updates(one: "AuditResult") -> _Answer:
    found = bool(one.measured.updates)
    return (
        found,
        "Updates: before and after, cross-fitted." if found else "No update could be fitted; All numbers says why.",
    )


def _precision(one: "AuditResult") -> _Answer:
    return None, "Sample size: how precise the values are, and how many events would be enough."


def _reading(one: "AuditResult") -> _Answer:
    return True if one.reading else None, "Methods: how predictions were read."


def _always(answer: bool | None, where: str) -> Callable[["AuditResult"], _Answer]:
    return lambda _: (answer, where)


_HORIZONS = _always(None, "Horizons: the times by which risks are judged.")
_CENSORING = _always(None, "Methods: how censored rows count; whether censoring depends on covariates.")
_NOT_REFITTED = _always(True, "Not applicable: the model is given, and nothing of it was fitted again.")

# --- The checklists: number, what it asks for, and what the audit answers.

_Asked = tuple[str, str, Callable[["AuditResult"], _Answer] | None]

TRIPOD: tuple[_Asked, ...] = (
    ("1", "A title that names the evaluation, the people and the outcome", None),
    ("2", "A structured abstract", None),
    ("3a", "The medical context, and models that exist", None),
    ("3b", "Whom the model is for, and who would use it", None),
    ("3c", "Known inequalities between groups of people", None),
    ("4", "The objectives", None),
    ("5a", "Where the data come from, and whom they stand for", None),
    ("5b", "Dates of entry and of the end of follow-up", None),
    ("6a", "The setting, and the centres", None),
    ("6b", "Who could take part", None),
    ("6c", "Treatments, and how they are dealt with", None),
    ("7", "How data were prepared, alike for all groups", None),
    ("8a", "The outcome, the time over which it is predicted, and why", _HORIZONS),
    ("8b", "Who judged the outcome", None),
    ("8c", "Whether who judged it knew the predictors", None),
    ("9b", "The predictors, and how they were measured", None),
    ("9c", "Who measured predictors that take judgement", None),
    ("10", "Whether there are enough rows and events", _precision),
    ("11", "Missing values", _missing),
    ("12d", "How differences between centres were looked at", _sites),
    ("12e", "Every measure and picture of performance", _measures),
    ("12f", "Any update of the model", _updates),
    ("12g", "How the predictions were obtained", _reading),
    ("13", "Class imbalance, and recalibration after it", None),
    ("14", "What was done to see whether the model is fair", _fairness),
    (
        "15",
        "What the model gives out, and how thresholds were chosen",
        _always(None, "Risks, and usefulness over thresholds."),
    ),
    ("16", "How these rows differ from those the model was trained on", _training),
    ("17", "Ethical approval and consent", None),
    ("18a", "Funding", None),
    ("18b", "Conflicts of interest", None),
    ("18c", "The protocol", None),
    ("18d", "Registration", None),
    ("18e", "Where the data can be had", None),
    ("18f", "Where the code can be had", None),
    ("19", "How patients and the public took part", None),
    ("20a", "How many took part, how many had the event, for how long they were followed", _followed),
    ("20b", "What they were like, with missing values", _described),
    ("20c", "How predictors and outcome differ from the training rows", _training),
    ("21", "Rows and events behind each analysis", _always(True, "Data, and the groups.")),
    ("23a", "Performance with intervals, for important groups too", _performance),
    ("23b", "Whether performance differs between sites or other clusters", _sites),
    ("24", "Results of any update of the model", _updates),
    ("25", "What the results mean, fairness included", None),
    ("26", "Limitations", None),
    ("27c", "What is to be done next", None),
)
PROBAST: tuple[_Asked, ...] = (
    ("1.1", "Were the sources of the data right for this?", None),
    ("1.2", "Was the design of the study right?", None),
    ("1.3", "Do those who were included stand for those the model is for?", _described),
    ("2.1", "Were predictors defined and measured alike for all?", None),
    ("2.2", "Were they prepared alike for all?", None),
    ("2.3", "Were they measured without knowledge of the outcome?", None),
    ("2.4", "Are they all known when the model is to be used?", None),
    ("3.1", "Was the outcome defined and found in the right way?", None),
    ("3.2", "In the same way for all?", None),
    ("3.3", "Without knowledge of the predictors?", None),
    ("3.4", "Was the time between predictors and outcome right?", _HORIZONS),
    ("4.1", "Was more than apparent performance evaluated?", _always(None, "Rows apart from the training; say so.")),
    ("4.2", "Were there enough rows?", _precision),
    ("4.3", "Were missing values and censoring dealt with in the right way?", _CENSORING),
    ("4.4", "After a correction for class imbalance: were these rows not corrected?", None),
    ("4.5", "After a split: did nothing leak from training to test?", None),
    ("4.6", "With resampling: were all steps of the development repeated?", _NOT_REFITTED),
    ("4.7", "Were calibration, discrimination and usefulness evaluated in the right way?", _measures),
)


def tripod(result: "AuditResult") -> Checklist:
    """Return the items of TRIPOD+AI for an evaluation, and who answers each."""
    caption = "Items of TRIPOD+AI (BMJ 2024;385:e078378) that concern the evaluation of a model"
    return Checklist(caption, tuple(_items(TRIPOD, result, "")))


def probast(result: "AuditResult") -> Checklist:
    """Return the signalling questions of PROBAST+AI for an evaluation, and who has an answer to each."""
    caption = (
        "Signalling questions of PROBAST+AI (BMJ 2025;388:e082505) for an evaluation: where to look for the answer"
    )
    return Checklist(caption, tuple(_items(PROBAST, result, "P")))


def _items(asked: tuple[_Asked, ...], result: "AuditResult", prefix: str) -> Iterator[ChecklistItem]:
    told = _told(result.study)
    for number, asks, by_audit in asked:
        answer, where = (False, "") if by_audit is None else by_audit(result)
        keys = told.get(f"{prefix}{number}", {})
        given = [name for name, text in keys.items() if text]
        if given:
            where = f"{where} Study file: {', '.join(given)}.".strip()
        lacking = [name for name, text in keys.items() if not text]
        if lacking and answer is not True:
            where = f"{where} To write: {', '.join(lacking)}.".strip()
        by_study = bool(given)
        state = (
            "audit"
            if answer
            else "audit and study file"
            if answer is None and by_study
            else ("in part" if answer is None else "study file" if by_study else "open")
        )
        yield ChecklistItem(number, asks, state, where or "For you to write.")  # type: ignore[arg-type]  # its words


def _told(study: Study | None) -> dict[str, dict[str, str]]:
    """Return for each item the keys of the study file that answer it, with their texts."""
    found: dict[str, dict[str, str]] = {}
    known = study or Study()
    for part in fields(Study):
        own = getattr(known, part.name)
        for name, one in (
            ((part.name, part),) if isinstance(own, str) else ((f"{part.name}.{f.name}", f) for f in fields(own))
        ):
            text = own if isinstance(own, str) else getattr(own, one.name)
            for answer in one.metadata["answers"]:
                found.setdefault(answer, {})[name] = text
    return found
