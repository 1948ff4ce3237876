"""What was measured, and where it came from.

The names below are those that notebooks use. Each is imported when it is asked for: what a
training needs of records does not bring the claims with it.
"""

from casebook.lazy import lazy_names

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "record": """
            arms_with_completions check_clean committed committed_completions completions_file
            digest figure_text first_and_last has_test_figures machine missing provenance
            read_record read_rows recorded revision torch_cuda write_rows
        """,
        "figures": "answer_entropy discrimination figures_at labels_recalled",
        "claims": """
            BASIS EXPLORATORY VERDICTS compared load_claims load_expectations load_source models_of
            predictions table_row tally tally_table write_up_box
        """,
    },
)
