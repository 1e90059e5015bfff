import retinabench as rb
from retinabench.metrics.guarantees.goals import ReferralCases

GRADES = [0, 2, 3, 0, 4, 0]


def cases(per="image", grade=GRADES):
    return ReferralCases.of(
        rb.Predictions(
            list("abcdef"), [0, 1, 1, 0, 1, 0], [0.2, 0.3, 0.9, 0.8, 0.4, 0.1],
            patient_id=["p", "p", "p", "q", "q", "r"], uncertainty=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], grade=grade,
        ),
        per=per,
    )  # fmt: skip
