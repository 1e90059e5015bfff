"""What the same answers say beside the rates: against other readers (`questioning.reference`) and the main decision (`.referral`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinabench.reports.toolkit.number_format import COUNT, PERCENT, percent
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table


def readers_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return the rates against every possible truth, a table for sensitivity and one for specificity.

    Args:
        found: An examination with its ``readers`` (`questioning.reference.enter_readers`).

    Returns:
        The tables: a row per truth, a column per concept.
    """
    concepts = found["readers"]["concepts"]
    tables = []
    for measure in ("sensitivity", "specificity"):
        names = list(next(iter(concepts.values()))["against"][measure])
        rows = [
            Row(name, [_against(one["against"][measure][name]) for one in concepts.values()])
            for name in names
        ]
        columns = [Column(f"{name} ({one['disputed']:,} disputed)") for name, one in concepts.items()]
        caption = f"{measure.capitalize()} in this bank against each truth, with 95 % intervals"
        tables.append(Table.of(caption, columns, rows, row_header="Truth"))
    return tables


def _against(rate: Mapping[str, Any]) -> Cell:
    if not rate["of"]:
        return UNDEFINED
    if rate["value"] is None:
        low, high = (percent(rate[end]) for end in ("low", "high"))
        return Cell(f"[{low}, {high}]")
    return Cell.number(rate["value"], rate["low"], rate["high"], form=PERCENT)


def referral_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return the tables: by concept, the agreement by grade and concept, and by grade what referred images are said to show.

    Args:
        found: What `questioning.referral.agreement` returns.

    Returns:
        The tables; those by grade are left out where no grade is known.
    """
    concepts = found["concepts"]
    columns = [
        Column("Images asked about"),
        Column("Referred where it says yes"),
        Column("Referred where it says no"),
        Column("Difference at equal grade"),
        Column("Agreement"),
    ]
    rows = []
    for name, one in concepts.items():
        shares = [_cell(one[key]) for key in ("refers_if_yes", "refers_if_no", "at_equal_grade", "agreement")]
        rows.append(Row(name, [Cell.number(one["images"], form=COUNT), *shares]))
    caption = "Concept answers and referral, with 95 % intervals that respect patients"
    tables = [Table.of(caption, columns, rows, row_header="Concept")]
    grades = sorted({grade for one in concepts.values() for grade in one["grades"]})
    if grades:
        rows = [
            Row(grade, [_cell(one["grades"].get(grade, {}).get("agreement")) for one in concepts.values()])
            for grade in grades
        ]
        heads = [Column(name) for name in concepts]
        tables.append(
            Table.of(
                "Agreement of each concept's answers with the referral, by grade",
                heads,
                rows,
                row_header="Grade",
            )
        )
    if found["named"]["images"]:
        tables.append(_named_table(found["named"]))
    return tables


def _named_table(named: Mapping[str, Any]) -> Table:
    rows = [
        Row(label, [cell for kind in ("referred", "not_referred") for cell in _counted(one[kind])])
        for label, one in [("all", named), *named["grades"].items()]
    ]
    columns = [
        Column("Referred images"),
        Column("of these, a yes to any concept"),
        Column("Other images"),
        Column("of these, a yes to any concept"),
    ]
    caption = "Images about which every concept was asked: how many show at least one, by the model's answers"
    return Table.of(caption, columns, rows, row_header="Grade")


def _counted(share: Mapping[str, Any]) -> list[Cell]:
    return [Cell.number(share["images"], form=COUNT), _cell(share)]


def _cell(share: Mapping[str, Any] | None) -> Cell:
    if share is None or share["value"] is None:
        return Cell.number(None, why=(share or {}).get("why", ""))
    return Cell.number(share["value"], share["low"], share["high"], form=PERCENT)
