"""What was measured, and where it came from. The names below are what others use."""

# ruff: noqa: F401

from casebook.records.claims import (
    EXPLORATORY,
    VERDICTS,
    WORDS,
    compared,
    corrected,
    counts,
    load_claims,
    load_source,
    models_of,
    predictions,
    table_row,
    tally,
    verdict_tables,
    write_up_box,
)
from casebook.records.figures import difference_of, figures_at, pooled
from casebook.records.record import (
    arms_with_completions,
    committed,
    committed_completions,
    completions_file,
    digest,
    figure_text,
    first_and_last,
    has_test_figures,
    machine,
    missing,
    provenance,
    read_record,
    read_rows,
    recorded,
    revision,
    write_rows,
)
