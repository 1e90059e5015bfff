"""A stand-in for JAX: arrays and a namespace that refuse what cannot be traced."""

import numpy as np


class Traced:
    """An array that, as one that JAX traces, only its own operators, methods and namespace work on: NumPy's functions raise."""

    __array_ufunc__ = None

    def __init__(self, values):
        self.values = values

    def __getattr__(self, name):
        value = getattr(self.values, name)
        return wrapped(value) if callable(value) else value

    def __getitem__(self, key):
        return Traced(self.values[key])


def wrapped(function):
    def call(*operands, **options):
        plain = [one.values if isinstance(one, Traced) else one for one in operands]
        return Traced(function(*plain, **options))

    return call


Traced.__neg__ = wrapped(np.negative)
for operator in ("add", "sub", "mul", "truediv", "matmul"):
    setattr(Traced, f"__{operator}__", wrapped(getattr(np.ndarray, f"__{operator}__")))
    setattr(Traced, f"__r{operator}__", wrapped(getattr(np.ndarray, f"__r{operator}__")))


class TracedNumPy:
    def __getattr__(self, name):
        function = getattr(np, name)
        if name == "stack":
            return lambda arrays, axis: Traced(np.stack([one.values for one in arrays], axis=axis))
        return wrapped(function)
