"""MIMIC-III: how fast the raw files become features, how memory and time grow with them, and the usual way beside it.

Claim: time grows about linearly from 1 to 10 to 100 times the open demo (75 million chart events), within 6 GiB; on the
demo it is at least 20 times as fast as the method of the public benchmark, which loops over patients in Python.

The public benchmark's own code is not run: its documented steps are written here plainly, with pandas, one small CSV
file per patient and one call of a function per statistic. Its statistics are timed on some instances and scaled up.

    python -m benchmarks.mimic                       1 and 10 times the demo, and the demo itself if it is there
    python -m benchmarks.mimic --scales 1 10 100     some 5 GB of disk
"""

import argparse
import csv
import gzip
import json
import math
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import skew

from xcal_paper.mimic3 import generate, prepare
from xcal_paper.mimic3.variable_list import items, variables

TABLES = ("CHARTEVENTS", "LABEVENTS", "OUTPUTEVENTS")
SPANS = [(0, 1), (0, 0.1), (0, 0.25), (0, 0.5), (0.9, 1), (0.75, 1), (0.5, 1)]


def prepare_and_measure(raw: str, out: str, memory: str, test_subjects: str | None, result: Any) -> None:
    """Prepare a folder in a process of its own; gives seconds, counts and the most memory that the process had.

    Seconds are those of the clock and those of the processors. Only the latter mean something on a busy machine.
    """
    start, busy = time.perf_counter(), time.process_time()
    steps: dict[str, float] = {}

    def report(doing: str, done: int, total: int | None) -> None:
        steps[doing] = time.perf_counter() - start

    prepared = prepare(raw, out, memory=memory, test_subjects=test_subjects, report=report)
    seconds = (time.perf_counter() - start, time.process_time() - busy)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result.put((seconds, steps, prepared.counts, peak))


def measured(raw: Path, out: Path, memory: str, test_subjects: Path | None = None) -> tuple[Any, ...]:
    """Call `prepare_and_measure` in a new process."""
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    listed = None if test_subjects is None else str(test_subjects)
    process = context.Process(target=prepare_and_measure, args=(str(raw), str(out), memory, listed, result))
    process.start()
    found = result.get()
    process.join()
    return tuple(found)


def growth(scales: list[float], folder: Path, memory: str) -> None:
    print(f"made-up folders, --memory {memory}, {os.cpu_count()} processors")
    head = f"{'scale':>6}  {'raw rows':>12}  {'instances':>10}  {'seconds':>8}  {'rows/s':>9}  {'CPU s':>8}"
    print(f"{head}  {'rows/CPU s':>10}  {'peak memory':>11}  against the scale before", flush=True)
    before: tuple[int, float, float] | None = None
    for scale in scales:
        raw, out = folder / f"raw-{scale:g}", folder / f"out-{scale:g}"
        shutil.rmtree(out, ignore_errors=True)
        if not raw.is_dir():
            generate(raw, scale)
        (seconds, busy), steps, counts, peak = measured(raw, out, memory)
        rows = counts["events"]["rows"]
        line = f"{scale:>6g}  {rows:>12,}  {counts['features']['rows']:>10,}  {seconds:>8.1f}  {rows / seconds:>9,.0f}"
        line += f"  {busy:>8.1f}  {rows / busy:>10,.0f}  {peak / 2**30:>7.2f} GiB"
        if before is not None:
            ratios = (rows / before[0], seconds / before[1], busy / before[2])
            line += "  rows x {:.1f}, time x {:.1f}, CPU time x {:.1f}".format(*ratios)
        print(line)
        print("        until: " + ", ".join(f"{name} {at:.0f} s" for name, at in steps.items()), flush=True)
        before = (rows, seconds, busy)
        shutil.rmtree(out)


def beside_the_usual_way(data: Path, folder: Path, memory: str, sample: int) -> None:
    """Prepare the demo both ways."""
    listed = folder / "testset.csv"
    with (data / "demo_expected" / "demo_split.csv").open() as file:
        listed.write_text("".join(f"{row['subject_id']},{row['test']}\n" for row in csv.DictReader(file)))
    (seconds, busy), _, counts, _ = measured(data / "demo", folder / "demo", memory, listed)
    usual = UsualWay(data / "demo", folder / "usual", sample)
    times = usual.run(json.loads((data / "benchmark_resources" / "channel_info.json").read_text()))
    whole, usual_busy = (sum(column) for column in zip(*times.values(), strict=True))
    rows = counts["features"]["rows"]
    assert usual.n_instances == rows, "both ways must give the same instances"
    print(f"the open demo, {rows:,} instances: xcal {seconds:.1f} s ({busy:.1f} s of CPU), all features written")
    print(f"the public benchmark's steps, written plainly with pandas: {whole:.0f} s ({usual_busy:.0f} s of CPU)")
    print(f"  {whole / seconds:.0f} times as long, {usual_busy / busy:.0f} times as much CPU; seconds (of CPU):")
    print("  " + ", ".join(f"{name} {clock:.1f} ({cpu:.1f})" for name, (clock, cpu) in times.items()))
    print(f"  (features of {min(sample, rows)} instances, scaled up to {rows:,})")
    until_instances = sum(cpu for name, (_, cpu) in times.items() if name != "features")
    print(f"  without features, their CPU against all of ours: {until_instances / busy:.1f}", flush=True)


class UsualWay:
    """Loops over tables row by row, patients one by one and instances one by one, with files between the steps."""

    def __init__(self, raw: Path, folder: Path, sample: int) -> None:
        self.raw, self.folder, self.sample = raw, folder, sample
        self.variable = {item.item_id: item.variable for item in items()}
        self.rule = {item.item_id: item.rule for item in items()}
        self.instances: list[tuple[Path, float]] = []
        self.n_instances = 0

    def run(self, info: dict[str, Any]) -> dict[str, tuple[float, float]]:
        """Do all steps; returns the seconds of each, by the clock and of the processor."""
        times = {
            name: timed(step)
            for name, step in {
                "one folder per patient": self.break_up,
                "events checked": self.check_events,
                "time series": self.write_series,
                "instances": self.list_instances,
            }.items()
        }
        self.n_instances = len(self.instances)
        chosen = np.random.default_rng(0).permutation(len(self.instances))[: self.sample]

        def features() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # equal values have no skewness
                for row in chosen:
                    self.features(*self.instances[row], info)

        clock, busy = timed(features)
        larger = len(self.instances) / len(chosen)
        return times | {"features": (clock * larger, busy * larger)}

    def table(self, name: str) -> pd.DataFrame:
        """Read a raw table."""
        found = pd.read_csv(self.raw / f"{name}.csv.gz")
        return found.rename(columns=str.upper)

    def break_up(self) -> None:
        """Choose the stays; copy the events of their patients into one file each."""
        stays = self.table("ICUSTAYS")
        same = (stays.FIRST_WARDID == stays.LAST_WARDID) & (stays.FIRST_CAREUNIT == stays.LAST_CAREUNIT)
        stays = (
            stays[same]
            .merge(self.table("ADMISSIONS")[["SUBJECT_ID", "HADM_ID"]])
            .merge(self.table("PATIENTS")[["SUBJECT_ID", "DOB"]])
        )
        stays = stays[stays.groupby("HADM_ID").ICUSTAY_ID.transform("count") == 1]
        for column in ("INTIME", "OUTTIME", "DOB"):
            stays[column] = pd.to_datetime(stays[column]).astype("datetime64[s]")
        age = [
            (begin.to_pydatetime() - birth.to_pydatetime()).days / 365
            for begin, birth in zip(stays.INTIME, stays.DOB, strict=True)
        ]
        stays = stays[[years < 0 or years >= 18 for years in age]]
        for subject in stays.SUBJECT_ID.unique():
            (self.folder / str(subject)).mkdir(parents=True)
            own = stays[subject == stays.SUBJECT_ID].sort_values(["INTIME", "OUTTIME"])
            own.to_csv(self.folder / str(subject) / "stays.csv", index=False)
        kept = {str(subject) for subject in stays.SUBJECT_ID}
        names = ["SUBJECT_ID", "HADM_ID", "ICUSTAY_ID", "CHARTTIME", "ITEMID", "VALUE", "VALUEUOM"]
        for table in TABLES:
            with gzip.open(self.raw / f"{table}.csv.gz", "rt", newline="") as file:
                reader = csv.DictReader(file)
                reader.fieldnames = [name.upper() for name in reader.fieldnames or []]
                waiting: list[dict[str, str]] = []
                for row in reader:
                    if row["SUBJECT_ID"] not in kept:
                        continue
                    if waiting and waiting[0]["SUBJECT_ID"] != row["SUBJECT_ID"]:
                        self.append(waiting, names)
                        waiting = []
                    waiting.append({name: row.get(name, "") for name in names})
                if waiting:
                    self.append(waiting, names)

    def append(self, rows: list[dict[str, str]], names: list[str]) -> None:
        """Add rows to the file of their patient."""
        path = self.folder / rows[0]["SUBJECT_ID"] / "events.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, names)
            if new:
                writer.writeheader()
            writer.writerows(rows)

    def check_events(self) -> None:
        """Keep the events of chosen admissions, with the right stay."""
        for folder in self.folder.iterdir():
            stays = pd.read_csv(folder / "stays.csv", dtype={"HADM_ID": str, "ICUSTAY_ID": str})
            events = pd.read_csv(folder / "events.csv", dtype=str, keep_default_na=False, na_values=[""])
            events = events.dropna(subset=["HADM_ID"])
            events = events.merge(stays[["HADM_ID", "ICUSTAY_ID"]], on="HADM_ID", suffixes=("", "_OF_STAY"))
            events["ICUSTAY_ID"] = events.ICUSTAY_ID.fillna(events.ICUSTAY_ID_OF_STAY)
            events = events[events.ICUSTAY_ID == events.ICUSTAY_ID_OF_STAY].drop(columns="ICUSTAY_ID_OF_STAY")
            events.to_csv(folder / "events.csv", index=False)

    def write_series(self) -> None:
        """Clean, one column per variable, one file per stay."""
        for folder in self.folder.iterdir():
            stays = pd.read_csv(folder / "stays.csv", parse_dates=["INTIME", "OUTTIME"])
            events = pd.read_csv(folder / "events.csv", keep_default_na=False, na_values=[""], dtype={"VALUE": str})
            events = events[events.VALUE.notna() & events.ITEMID.isin(self.variable)]
            events["CHARTTIME"] = pd.to_datetime(events.CHARTTIME)
            events["VARIABLE"] = events.ITEMID.map(self.variable)
            events["VALUE"] = [
                clean(self.rule[item], value, str(unit).lower())
                for item, value, unit in zip(events.ITEMID, events.VALUE, events.VALUEUOM, strict=True)
            ]
            events = events[events.VALUE.notna()]
            if events.empty:
                continue
            named = events[["CHARTTIME", "ICUSTAY_ID"]].drop_duplicates().set_index("CHARTTIME")
            order = events.VALUE.map(lambda value: (isinstance(value, str), value))
            events = events.assign(ORDER=order).sort_values(["CHARTTIME", "VARIABLE", "ORDER"])
            events = events.drop_duplicates(["CHARTTIME", "VARIABLE"], keep="last")
            series = events.pivot(index="CHARTTIME", columns="VARIABLE", values="VALUE")
            series = series.reindex(columns=list(variables())).join(named).sort_index().reset_index()
            for number, stay in enumerate(stays.itertuples(), start=1):
                between = (series.CHARTTIME >= stay.INTIME) & (series.CHARTTIME <= stay.OUTTIME)
                episode = series[(series.ICUSTAY_ID == stay.ICUSTAY_ID) | between]
                if episode.empty:
                    continue
                hours = (episode.CHARTTIME - stay.INTIME).map(lambda passed: passed.total_seconds() / 60 / 60)
                episode = episode.drop(columns=["CHARTTIME", "ICUSTAY_ID"]).assign(Hours=hours).set_index("Hours")
                episode.to_csv(folder / f"episode{number}_timeseries.csv")
                (folder / f"episode{number}.csv").write_text(f"LOS\n{stay.LOS}\n")

    def list_instances(self) -> None:
        """Cut the files to the stay; list hours."""
        for path in sorted(self.folder.glob("*/*_timeseries.csv")):
            label = pd.read_csv(path.with_name(path.name.replace("_timeseries", "")))
            length = 24 * label.LOS.iloc[0]
            lines = path.read_text().splitlines(keepends=True)
            times = [float(line.split(",")[0]) for line in lines[1:]]
            inside = [-1e-6 < moment < length + 1e-6 for moment in times]
            if not any(inside):
                continue
            path.write_text(lines[0] + "".join(line for line, use in zip(lines[1:], inside, strict=True) if use))
            first = times[inside.index(True)]
            hours = np.arange(0.0, length + 1e-6)
            self.instances += [(path, hour) for hour in hours if hour > 4 and hour > first]

    def features(self, path: Path, until: float, info: dict[str, Any]) -> np.ndarray[Any, Any]:
        """714 statistics of one instance, from its file."""
        with path.open(newline="") as file:
            reader = csv.reader(file)
            names = next(reader)[1:]
            rows = [row for row in reader if float(row[0]) <= until + 1e-6]
        found = []
        for place, name in enumerate(names, start=1):
            known = info[name].get("values")
            series = [
                (float(row[0]), float(known[row[place]] if known else row[place])) for row in rows if row[place] != ""
            ]
            for start, stop in SPANS:
                if not series:
                    found += [math.nan] * 6
                    continue
                first, span = series[0][0], series[-1][0] - series[0][0]
                low, high = first + start * span - 1e-6, first + stop * span + 1e-6
                part = [value for moment, value in series if low < moment < high]
                found += [min(part), max(part), np.mean(part), np.std(part), skew(part), len(part)]
        return np.array(found, np.float32)


def timed(step: Callable[[], None]) -> tuple[float, float]:
    """Seconds of a step, by the clock and of the processor."""
    start, busy = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - start, time.process_time() - busy


def clean(rule: str, value: str, unit: str) -> str | float | None:
    """One value by its rule."""
    if rule == "text":
        return value
    if rule == "capillary_refill":
        return {"Normal <3 secs": 0.0, "Brisk": 0.0, "Abnormal >3 secs": 1.0, "Delayed": 1.0}.get(value)
    if rule in {"systolic", "diastolic"} and "/" in value:
        return float(value.split("/")[rule == "diastolic"])
    if rule in {"number", "saturation"} and not value.replace(".", "", 1).isdigit():
        return None
    number = float(value)
    if rule == "saturation" and number <= 1:
        return number * 100
    if rule == "oxygen_fraction" and "torr" not in unit:
        return number / 100
    if rule == "temperature" and number >= 79:
        return (number - 32) * 5 / 9
    ounces = rule == "weight_ounces" or (rule.startswith("weight") and "oz" in unit)
    if ounces:
        number /= 16
    if ounces or rule == "weight_pounds" or (rule.startswith("weight") and "lb" in unit):
        return number * 0.453592
    if rule == "height_inches" or (rule == "height" and "in" in unit):
        return float(np.round(number * 2.54))
    return number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", type=float, nargs="*", default=[1, 10])
    parser.add_argument("--memory", default="4GB", help="what `prepare` is to keep to")
    parser.add_argument("--folder", type=Path, help="keep made-up folders here, and use those that are there")
    parser.add_argument("--sample", type=int, default=200, help="instances to time the usual features on; 0: none")
    options, _ = parser.parse_known_args()
    data = Path(os.environ.get("XCAL_DATA") or Path(__file__).parents[2] / "shared" / "data") / "mimic3"
    with tempfile.TemporaryDirectory() as temporary:
        if options.sample == 0:
            print("the usual way is left out (--sample 0)")
        elif (data / "demo").is_dir():
            beside_the_usual_way(data, Path(temporary), options.memory, options.sample)
        else:
            print(f"no demo in {data}: set XCAL_DATA to a folder that has mimic3/demo")
        growth(options.scales, options.folder or Path(temporary), options.memory)


if __name__ == "__main__":
    main()
