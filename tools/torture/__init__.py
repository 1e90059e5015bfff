"""Campaigns that try to break retinabench, and the driver that runs them (`make torture`).

A campaign is a module in `torture/campaigns/` with

- a docstring, whose first line is its title in the table;
- `UNIT`: what its trials are: ``"inputs"``, ``"kills"``, ``"faults"``, ``"attacks"``;
- `SHARE`, which may be left out: its share of the time, 1 by default;
- `campaign(seed, scratch)`: a generator of `Outcome`, one per trial, for one batch of a few seconds to two minutes.

A batch depends on nothing but its seed, works in the empty folder `scratch`, and yields nothing when a seed has nothing left to
try. Nothing else lists campaigns: a new file is found. A trial runs in a process of its own, with limits of time and
memory, by `trial.isolated` (a Python function in a forked child, about 10 ms; `isolated_each` shares one among several) or `trial.command` (a `retinabench` command).
"""
