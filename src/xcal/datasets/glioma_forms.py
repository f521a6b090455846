"""The glioma table from the forms that were filled in for each patient.

The paper used Firehose's "Clinical Pick Tier 1" file, a choice of fields from the merged clinical forms (one at
baseline, up to eight at follow-ups). The merged forms are what can still be fetched; this module picks the fields.
"""

from collections.abc import Mapping

from xcal.datasets.rda import read_string_frame

_FORMS = (
    "patient",
    "patient.follow_ups.follow_up",
    *(f"patient.follow_ups.follow_up-{i}" for i in range(2, 9)),
)
_DAYS_A_YEAR = 365.25

_BASELINE = {
    "bcr_patient_barcode": "patient.bcr_patient_barcode",
    "tumor_tissue_site": "patient.tumor_tissue_site",
    "gender": "patient.gender",
    "date_of_initial_pathologic_diagnosis": "patient.year_of_initial_pathologic_diagnosis",
    "histological_type": "patient.histological_type",
    "race": "patient.race_list.race",
    "ethnicity": "patient.ethnicity",
}

_FORM_FIELDS = (
    "vital_status",
    "days_to_death",
    "days_to_last_followup",
    "radiation_therapy",
    "karnofsky_performance_score",
    "year_of_form_completion",
    "month_of_form_completion",
    "day_of_form_completion",
)


def pick_fields(name: str, content: bytes) -> list[dict[str, str]]:
    """Read the merged forms and pick one value per field and patient, sorted by barcode; a missing one is empty."""
    columns = read_string_frame(name, content)
    wanted = [*_BASELINE.values(), "patient.days_to_birth"]
    wanted += [f"{form}.{field}" for form in _FORMS for field in _FORM_FIELDS if f"{form}.{field}" in columns]
    count = len(columns["patient.bcr_patient_barcode"])
    rows = ({key: columns[key][i] for key in wanted} for i in range(count))
    return sorted((_pick(row) for row in rows), key=lambda record: record["bcr_patient_barcode"])


def _pick(row: Mapping[str, str]) -> dict[str, str]:
    record = {field: row[column] for field, column in _BASELINE.items()}
    status = _values(row, "vital_status")
    # No patient is dead on one form and alive on a later one, so any "dead" is final.
    dead = "dead" in status
    record["vital_status"] = "1" if dead else "0" if "alive" in status else ""
    if dead:
        record["time"] = next(iter(_values(row, "days_to_death")), "")
    else:
        record["time"] = max(_values(row, "days_to_last_followup"), key=int, default="")
    born = row["patient.days_to_birth"]
    record["years_to_birth"] = str(int(-float(born) // _DAYS_A_YEAR)) if born else ""
    for field in ("radiation_therapy", "karnofsky_performance_score"):
        record[field] = _latest(row, field)
    return record


def _values(row: Mapping[str, str], field: str) -> list[str]:
    """List the field's values on the forms that have one, in the order of the forms."""
    return [value for form in _FORMS if (value := row.get(f"{form}.{field}", ""))]


def _latest(row: Mapping[str, str], field: str) -> str:
    """Return the field on the most recently completed form that has it; of two forms of one day, the later form."""
    dated = []
    for i, form in enumerate(_FORMS):
        if value := row.get(f"{form}.{field}", ""):
            parts = [row.get(f"{form}.{part}_of_form_completion", "") for part in ("year", "month", "day")]
            dated.append(([int(part) if part else 0 for part in parts], i, value))
    return max(dated)[2] if dated else ""
