"""Whether the probabilities of a set can be read as risks: `calibration` in the results and the JSON of `score`.

`line_slope` and `line_intercept` are those of logit P(y) = intercept + slope logit(p), ideally 1 and 0; `line_in_the_large` is the intercept
at slope 1; `line_observed_over_expected` is sum y / sum p; `brier_reliability` - `brier_resolution` + `brier_uncertainty` +
`brier_within_bin` = Brier over 10 bins (Murphy 1973); `null_ece_…` is the mean and 95 % band of the ECE of a perfectly calibrated model
with these probabilities. In the JSON, the ends of an interval are numbers of their own, with `_low` and `_high` behind the name.
"""

from __future__ import annotations

from dataclasses import dataclass

from retinabench.core.results import Document, JsonObject, json_content, vars_of
from retinabench.metrics.calibration.binned import Murphy, Of, murphy_of
from retinabench.metrics.calibration.debiased import calibration_error_interval, calibration_error_of
from retinabench.metrics.calibration.null_bands import null_bands_of
from retinabench.metrics.calibration.recalibration import calibration_line_of, line_intervals_of
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.sorted_images import Weighted

NULL_DRAWS = 200
LINE = ("intercept", "slope", "in_the_large", "observed_over_expected")


@dataclass(frozen=True)
class SetCalibration(Document):
    """Whether the probabilities of a set can be read as risks.

    Args:
        line_intercept: Of logit P(y) = intercept + slope logit(p); 0 is right where the slope is 1.
        line_slope: Of that line; 1 is right, below 1 the probabilities are too extreme.
        line_in_the_large: The intercept with the slope held at 1.
        line_observed_over_expected: Referable images over the sum of the probabilities; 1 is right.
        brier: The parts of the Brier score over 10 bins (Murphy 1973).
        null_ece_top_label: Mean and 95 % band of the ECE of a perfectly calibrated model with these probabilities, of
            the predicted class.
        calibration_error_top_label: The debiased calibration error of the predicted class.
        null_ece_positive_class: As `null_ece_top_label`, of the referable class.
        calibration_error_positive_class: As `calibration_error_top_label`, of the referable class.
    """

    line_intercept: Interval
    line_slope: Interval
    line_in_the_large: Interval
    line_observed_over_expected: Interval
    brier: Murphy
    null_ece_top_label: Interval
    calibration_error_top_label: Interval
    null_ece_positive_class: Interval
    calibration_error_positive_class: Interval

    def to_dict(self) -> JsonObject:
        """Return the JSON content, which has no objects inside."""
        fields = {name: one for name, one in vars_of(self).items() if isinstance(one, Interval)}
        lines = {name: one for name, one in fields.items() if name.startswith("line_")}
        content = {name: one.value for name, one in lines.items()}
        for name, one in lines.items():
            content |= _ends(name, one)
        content |= {f"brier_{part}": value for part, value in vars(self.brier).items() if part != "brier"}
        for name, one in fields.items():
            if name not in lines:
                middle = f"{name}_mean" if name.startswith("null_") else name
                content |= {middle: one.value, **_ends(name, one)}
        found: JsonObject = json_content(content)
        return found


def set_calibration(w: Weighted, seed: int, level: float) -> SetCalibration:
    """Return the calibration line, the parts of the Brier score, and calibration errors with those of a calibrated model.

    Args:
        w: The weighted images.
        seed: Seed of the calibrated model's outcomes.
        level: Level of the intervals; the bands of the calibrated model have .95.

    Returns:
        The values with their intervals; NaN where undefined.
    """
    line, ends = calibration_line_of(w), line_intervals_of(w, level)
    slope = {f"line_{name}": Interval(getattr(line, name), *ends[name]) for name in LINE}
    bands = null_bands_of(w, replicates=NULL_DRAWS, seed=seed)

    def error(of: Of) -> Interval:
        return Interval(calibration_error_of(w, of), *calibration_error_interval(w, level, of=of))

    return SetCalibration(
        **slope,
        brier=murphy_of(w),
        null_ece_top_label=Interval(*bands["top_label"]),
        calibration_error_top_label=error("top_label"),
        null_ece_positive_class=Interval(*bands["positive_class"]),
        calibration_error_positive_class=error("positive_class"),
    )


def _ends(name: str, one: Interval) -> dict[str, float]:
    return {f"{name}_low": one.low, f"{name}_high": one.high}
