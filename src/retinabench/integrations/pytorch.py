"""A PyTorch classifier scored on the batches of a data loader, and the predictions of a network's raw outputs."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import Rules, Scores, score
from retinabench.predictions.columns import GRADES
from retinabench.predictions.table import Predictions

Outputs = Literal["logits", "probabilities"]
FEWEST = 20  # images whose outputs or labels tell what they are
_ONE_DRAWS = threading.RLock()  # the masks of dropout come from the generator of the whole process
DEFAULT_SCORES = ("auroc", "accuracy", "nll", "failure_auroc", "referral_accuracy_area")


def predictions_of(
    values: ArrayLike, columns: Mapping[str, Any], outputs: Outputs | None = None, referable_from: int | None = None
) -> Predictions:
    """Return the predictions of a network's outputs; `values`, `columns` (N,)."""
    numbers, known = np.asarray(values), dict(columns)
    if numbers.ndim == 1 or (numbers.ndim == 3 and numbers.shape[1] == 1):
        numbers = numbers[:, None] if numbers.ndim == 1 else numbers[:, 0]
    for name, column in known.items():
        if len(column) != len(numbers):
            raise InputError(f"{name} has {len(column)} values for {len(numbers)} images")
    label, image_id, classes = known.pop("label", None), known.pop("image_id", None), numbers.shape[-1]
    patients = known.get("patient_id")
    if image_id is None and patients is not None and len(np.unique(patients)) == len(patients):
        image_id = patients  # of a table with a row for each patient
    if label is not None and "grade" not in known:
        if classes == GRADES:
            known["grade"], label = label, None
        elif classes > 2 and referable_from is not None:
            label = np.asarray(label) >= referable_from
    if "grade" in known:
        known["grades"] = known.pop("grade")
    known["referable_from"] = referable_from
    if outputs != "probabilities":
        return Predictions.from_logits(numbers, image_id, label, **known)
    if classes == 1:
        numbers = np.concatenate([1 - numbers, numbers], axis=-1)
    return Predictions.from_softmax(numbers, image_id, label, **known)


def check_scores(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if name not in SCORES:
            raise InputError(f"unknown score '{name}'", hint=nearest(name, list(SCORES)))
    return tuple(names)


def scores_of(predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
    """Return some scores of predictions on one set, without intervals; NaN where one is undefined."""
    (found,) = score(predictions, bootstrap=0).sets.values()
    return {name: float(found.scores[name].value) for name in names}


Model = nn.Module | Sequence[nn.Module]
INPUTS = ("image", "images", "pixel_values", "inputs", "input", "x")
LABELS = ("label", "labels", "target", "targets", "y")
COLUMNS = ("image_id", "patient_id", "grade", "domain", "split")
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def evaluate_torch(
    model: Model,
    batches: Iterable[Any],
    *,
    samples: int = 1,
    outputs: Outputs | None = None,
    referable_from: int | None = None,
    device: str | torch.device | None = None,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
) -> Scores:
    """Score a PyTorch classifier on the batches of a data loader.

    Args:
        model: As in `predict_torch`.
        batches: As in `predict_torch`.
        samples: As in `predict_torch`.
        outputs: As in `predict_torch`.
        referable_from: As in `predict_torch`.
        device: As in `predict_torch`.
        rules: As in `score`.
        bootstrap: As in `score`.
        seed: Of the dropout masks and of the bootstrap.

    Returns:
        The scores.

    Raises:
        InputError: As in `predict_torch`.

    Examples:
        >>> import torch
        >>> import retinabench as rb
        >>> model = torch.nn.Linear(1, 1)
        >>> _ = torch.nn.init.constant_(model.weight, 2.0), torch.nn.init.zeros_(model.bias)
        >>> batches = [(torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1]))]
        >>> rb.evaluate_torch(model, batches, bootstrap=0)["in_domain"].auroc.value
        1.0
    """
    predictions = predict_torch(
        model, batches, samples=samples, outputs=outputs, referable_from=referable_from, device=device, seed=seed
    )
    return score(predictions, rules=rules, bootstrap=bootstrap, seed=seed)


def predict_torch(
    model: Model,
    batches: Iterable[Any],
    *,
    samples: int = 1,
    outputs: Outputs | None = None,
    referable_from: int | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
) -> Predictions:
    """Return the predictions of a PyTorch classifier, to be written, scored or compared.

    Args:
        model: A module, or K modules of an ensemble, from a batch of inputs to (B,), (B, 1) or (B, C) outputs, or to an
            object with these as `logits`. It is moved to `device`, put into evaluation mode, and back into its own.
        batches: A data loader, not shuffled where images have no id. A batch is (inputs, label), (inputs, label, columns),
            or a dictionary with the inputs (`image`, `pixel_values`, `inputs` …) and the `label`. Columns is a dictionary
            with any of `image_id`, `patient_id`, `grade`, `domain` and `split`, (B,) each; in a dictionary they stand
            beside the label. The label is 0 or 1, or the grade 0 to 4 of a network with five classes.
        samples: Forward passes of every module with its dropout layers on (Monte Carlo dropout); 1: one without.
        outputs: What the model returns: `logits`, or `probabilities` (after a sigmoid or softmax). None: logits, refused where all lie in
            [0, 1].
        referable_from: The lowest referable class; None: 1 of two classes, 2 of five.
        device: Where to compute; None: where the first module's parameters are.
        seed: Of the dropout masks.

    Returns:
        The predictions, with S = K x samples posterior samples where S > 1.

    Raises:
        InputError: A batch or an output has another form, or samples are asked for where there is no dropout layer.

    References:
        Gal, Y. & Ghahramani, Z. (2016). Dropout as a Bayesian approximation. ICML.

    Examples:
        >>> import torch
        >>> import retinabench as rb
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
        >>> batch = {"image": torch.ones(3, 2), "label": torch.tensor([0, 1, 1]), "patient_id": ["a", "b", "b"]}
        >>> rb.predict_torch(model, [batch], samples=10).probs.shape
        (3, 10)
    """
    members = [model] if isinstance(model, nn.Module) else list(model)
    if samples > 1 and not all(_dropout_layers(one) for one in members):
        hint = "Use samples=1, or pass the members of an ensemble."
        raise InputError("samples need dropout layers (torch.nn.Dropout), and there are none", hint=hint)
    own = next((one.device for one in members[0].parameters()), torch.device("cpu"))
    place = torch.device(device) if device is not None else own
    with _predicting(members, samples > 1, seed, place), torch.inference_mode():
        values, known = _collect(members, batches, samples, place)
    _check_meaning(values, known, outputs)
    return predictions_of(values, known, outputs, referable_from)


def _check_meaning(values: np.ndarray[Any, Any], known: Mapping[str, Any], outputs: Outputs | None) -> None:
    """Refuse probabilities that were not declared, and labels of two classes beside outputs of five."""
    if len(values) < FEWEST:
        return
    if outputs is None and values.min() >= 0 and values.max() <= 1:
        hint = 'Say outputs="probabilities", or outputs="logits" if the network has no sigmoid or softmax.'
        raise InputError("all outputs lie between 0 and 1, as probabilities do", hint=hint)
    if values.shape[-1] == GRADES and "grade" not in known and np.max(known.get("label", GRADES)) <= 1:
        hint = "Give the grades 0 to 4, as the label or as the column grade."
        raise InputError("the network has five outputs, and every label is 0 or 1", hint=hint)


def _collect(
    members: Sequence[nn.Module], batches: Iterable[Any], samples: int, place: torch.device
) -> tuple[np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    found: list[np.ndarray[Any, Any]] = []
    columns: dict[str, list[Any]] = {}
    for number, batch in enumerate(batches, start=1):
        inputs, further = parts_of(batch, number)
        inputs = inputs.to(place)
        drawn = [_output(one(inputs), len(inputs), number) for one in members for _ in range(samples)]
        found.append(torch.stack(drawn, dim=1).float().cpu().numpy())
        for name, part in further.items():
            columns.setdefault(name, []).append(_array(part))
    if not found:
        raise InputError("there are no batches")
    return np.concatenate(found), {name: np.concatenate(parts) for name, parts in columns.items()}


def parts_of(batch: Any, number: int) -> tuple[Tensor, dict[str, Any]]:
    if isinstance(batch, Mapping):
        inputs = next((batch[name] for name in INPUTS if name in batch), None)
        label = next((batch[name] for name in LABELS if name in batch), None)
        further: Mapping[str, object] = batch
    elif isinstance(batch, Sequence) and 2 <= len(batch) <= 3:
        inputs, label = batch[0], batch[1]
        further = batch[2] if len(batch) == 3 else {}
    else:
        inputs, label, further = None, None, {}
    if not isinstance(inputs, Tensor) or not isinstance(further, Mapping):
        hint = "A batch is (inputs, label), (inputs, label, columns) or a dictionary with image and label."
        raise InputError(f"batch {number} is a {type(batch).__name__} without inputs and label", hint=hint)
    known = {name: further[name] for name in COLUMNS if name in further}
    return inputs, known if label is None else {"label": label, **known}


def _output(found: Any, images: int, number: int) -> Tensor:
    """Return (B, C) outputs; one output per image is one column."""
    found = getattr(found, "logits", found)
    if isinstance(found, Mapping):
        found = found.get("logits")
    if isinstance(found, Tensor) and found.ndim == 1:
        found = found[:, None]
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != images:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        hint = "It must return a tensor (B,), (B, 1) or (B, C), or an object with it as `logits`."
        raise InputError(f"the model returned {shape} for batch {number} of {images} images", hint=hint)
    return _dense(found)


def _array(values: Any) -> np.ndarray[Any, Any]:
    return np.array(
        _dense(values).detach().cpu().numpy() if isinstance(values, Tensor) else values
    )  # loaders refill theirs


def _dense(values: Tensor) -> Tensor:
    if values.is_meta or values.is_quantized or values.layout != torch.strided:
        kind = "without data (meta)" if values.is_meta else "quantized" if values.is_quantized else "sparse"
        raise InputError(f"a tensor is {kind}", hint="Give dense tensors of ordinary numbers.")
    return values


def _dropout_layers(model: nn.Module) -> list[nn.Module]:
    return [one for one in model.modules() if isinstance(one, DROPOUT)]


@contextmanager
def _predicting(members: Sequence[nn.Module], dropout: bool, seed: int, device: torch.device) -> Iterator[None]:
    """Put the members into evaluation mode, with dropout where it is asked for; undo it, and restore the generators."""
    modes = [(one, one.training) for member in members for one in member.modules()]
    with _ONE_DRAWS, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        try:
            for member in members:
                member.to(device).eval()
                for layer in _dropout_layers(member) if dropout else ():
                    layer.train()
            yield
        finally:
            for one, training in modes:
                one.training = training
