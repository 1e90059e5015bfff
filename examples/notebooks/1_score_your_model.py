# %% [markdown]
# # Score your model in five minutes
#
# You have a PyTorch classifier and a data loader. This page scores it, compares it with Monte Carlo dropout and with an
# ensemble, and asks the question that screening depends on: *are the images that it gets wrong those of which it is unsure?*
# The images are drawn retinas of 28 x 28 pixels that come with the package; the second half of the test images was taken by
# another camera. Your own model needs the cell "Score" only.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

import retinabench as rb
from retinabench.fidelity.targets.data import load, standardised
from retinabench.fidelity.targets.target import TARGETS

data = load(TARGETS.find("fundus"))
train_images, test_images = (torch.from_numpy(images) for images in standardised(data))
train_label = torch.from_numpy(data.train.targets >= 2).long()  # grades 2 to 4 are referable

figure, axes = plt.subplots(1, 5, figsize=(7, 1.7), layout="constrained")
for axis, grade in zip(axes, range(5), strict=True):
    axis.imshow(data.train.inputs[np.flatnonzero(data.train.targets == grade)[0]])
    axis.set_title(f"grade {grade}", fontsize=10)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## A network, trained as you would
#
# Nothing here is particular to `retinabench`: any module that returns one or two logits will do.


# %%
def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 2),
    )  # fmt: skip


def trained(seed: int, epochs: int = 12) -> nn.Module:
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(train_images)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train_images[rows]), train_label[rows]).backward()
            optimizer.step()
    return model


models = [trained(seed) for seed in range(3)]

# %% [markdown]
# ## Score
#
# A batch is `(images, labels)`; what else is known of the images goes into a dictionary beside them. `domain` says which were
# taken by the other camera. Name `patient_id` where patients have several images: intervals then resample patients.

# %%
chosen = [k for k, group in enumerate(data.test.groups) if group in ("in_domain", "shifted")]
test = [
    {
        "image": test_images[k],
        "label": int(data.test.targets[k] >= 2),
        "image_id": f"image-{k}",
        "domain": str(data.test.groups[k]),
    }
    for k in chosen
]
loader = DataLoader(test, batch_size=100)  # type: ignore[arg-type]

scores = rb.evaluate_torch(models[0], loader, bootstrap=200)
for domain in ("in_domain", "shifted"):
    auroc = scores[domain].auroc
    print(f"AUROC, {domain}: {auroc.value:.3f} ({auroc.low:.3f} to {auroc.high:.3f})")
scores.plot()
plt.show()

# %% [markdown]
# `scores` shows itself as a table in a notebook; `scores.to_dataframe()` is that table for pandas.
#
# ## Does another uncertainty help?
#
# `samples=20` makes 20 passes with the dropout layers on, and a list of models is an ensemble. All three see the same images.

# %%
predictions = {
    "one network": rb.predict_torch(models[0], loader),
    "MC dropout": rb.predict_torch(models[0], loader, samples=20),
    "ensemble of 3": rb.predict_torch(models, loader),
}

figure, panels = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
for panel, domain in zip(panels, ("in_domain", "shifted"), strict=True):
    for name, found in predictions.items():
        part = found.select(domain=domain)
        assert part is not None
        curve = rb.referral_curve(part.label, part.prob, -abs(part.prob - 0.5), "accuracy")
        curve.plot(panel, label=f"{name}, area {curve.area:.3f}")
    panel.set_title(domain.replace("_", "-"))
    panel.legend(frameon=False, fontsize=8, loc="lower right")
plt.show()

# %% [markdown]
# Each curve starts at the accuracy without referral and rises as the most uncertain images go to an expert. A curve that
# stayed flat would say that the uncertainty knows nothing of the errors. The areas differ by little; is any difference more than
# chance? The comparison is paired: both models are scored on the same resampled images.

# %%
comparison = rb.compare(predictions["ensemble of 3"], predictions["one network"], bootstrap=200)
for domain in comparison:
    for score in ("auroc", "referral_accuracy_area"):
        one = comparison[domain][score]
        print(
            f"{domain:10} {score:24} {one.a:.3f} - {one.b:.3f} = {one.difference:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
        )
comparison.plot()
plt.show()

# %% [markdown]
# ## What the numbers say

# %%
inside, outside = scores["in_domain"], scores["shifted"]
print(f"The AUROC falls from {inside.auroc.value:.2f} to {outside.auroc.value:.2f} with the other camera.")
print(
    f"Among the half of which the model is most sure, {inside.referral['accuracy']['0.5']:.0%} are right in domain, "
    f"{outside.referral['accuracy']['0.5']:.0%} with the other camera; of all images {inside.accuracy.value:.0%} and "
    f"{outside.accuracy.value:.0%}."
)
clear = [
    f"{score}, {domain}"
    for domain in comparison
    for score, one in comparison[domain].scores.items()
    if one.better == "a"
]
print("Shown to be better with three networks:", ", ".join(clear) or "nothing, on so few images")

# %% [markdown]
# `rb.write_predictions(predictions["MC dropout"], "dropout.parquet")` writes a file that every command reads, and
# `rb.report(predictions, "report")` a page about all three. Next: [a referral policy with a guarantee](2_a_referral_policy.md).
