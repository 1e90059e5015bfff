"""What the same answers say beside the rates: against other readers (`questioning.reference`) and the main decision (`.referral`)."""

from __future__ import annotations

from retinabench.concepts.inference.rates import Rate
from retinabench.concepts.questioning.examination import Readers
from retinabench.concepts.questioning.referral import Agreement, AnyConcept, AtEqualGrade, Share, Shares
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit.number_format import COUNT, PERCENT, percent
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table


def readers_tables(readers: Readers) -> list[Table]:
    """Return the rates against every possible truth, a table for sensitivity and one for specificity."""
    concepts = readers.concepts
    tables = []
    for measure in ("sensitivity", "specificity"):
        names = list(next(iter(concepts.values())).against[measure])
        rows = [
            Row(name, [_against(one.against[measure][name]) for one in concepts.values()]) for name in names
        ]
        columns = [Column(f"{name} ({one.disputed:,} disputed)") for name, one in concepts.items()]
        caption = f"{measure.capitalize()} in this bank against each truth, with 95 % intervals"
        tables.append(Table.of(caption, columns, rows, row_header="Truth"))
    return tables


def _against(rate: Rate) -> Cell:
    if not rate.of:
        return UNDEFINED
    if rate.value is None:
        assert rate.low is not None
        assert rate.high is not None
        return Cell(f"[{percent(rate.low)}, {percent(rate.high)}]")
    return Cell.number(rate.value, rate.low, rate.high, form=PERCENT)


def referral_tables(found: Agreement) -> list[Table]:
    """Return the tables: by concept, the agreement by grade and concept, and by grade what referred images are said to show."""
    concepts = found.concepts
    columns = [
        Column("Images asked about"),
        Column("Referred where it says yes"),
        Column("Referred where it says no"),
        Column("Difference at equal grade"),
        Column("Agreement"),
    ]
    rows = []
    for name, one in concepts.items():
        shares = (one.refers_if_yes, one.refers_if_no, one.at_equal_grade, one.agreement)
        rows.append(Row(name, [Cell.number(one.images, form=COUNT), *map(_cell, shares)]))
    caption = "Concept answers and referral, with 95 % intervals that respect patients"
    tables = [Table.of(caption, columns, rows, row_header="Concept")]
    grades = sorted({grade for one in concepts.values() for grade in one.grades})
    if grades:
        rows = [
            Row(grade, [_agreement(one.grades.get(grade)) for one in concepts.values()]) for grade in grades
        ]
        caption = "Agreement of each concept's answers with the referral, by grade"
        tables.append(Table.of(caption, [Column(name) for name in concepts], rows, row_header="Grade"))
    if found.named.images:
        tables.append(_named_table(found.named))
    return tables


def _named_table(named: AnyConcept) -> Table:
    rows = [
        Row(label, [cell for share in (one.referred, one.not_referred) for cell in _counted(share)])
        for label, one in [("all", named.overall), *named.grades.items()]
    ]
    columns = [
        Column("Referred images"),
        Column("of these, a yes to any concept"),
        Column("Other images"),
        Column("of these, a yes to any concept"),
    ]
    caption = "Images about which every concept was asked: how many show at least one, by the model's answers"
    return Table.of(caption, columns, rows, row_header="Grade")


def _counted(share: Share) -> list[Cell]:
    return [Cell.number(share.images, form=COUNT), _cell(share)]


def _agreement(shares: Shares | None) -> Cell:
    return Cell.number(None) if shares is None else _cell(shares.agreement)


def _cell(share: Interval) -> Cell:
    why = share.why or "" if isinstance(share, AtEqualGrade) else ""
    return Cell.number(share.value, share.low, share.high, form=PERCENT, why=why)
