"""Bundles: a run as one file that can be sent, and checked by somebody who trusts none of it.

    export    a finished run folder -> one zip of data, without paths, names and secrets
    import    that zip -> results/<case>/<profile>/<arm>/seed<k>.json, or a sentence why not

A bundle holds every completion of the measuring before and after. Who imports it grades them
again with the case's own grader against the case's own rows, and computes all figures and
intervals anew: what the sender's record says only has to agree. Nobody can check in this way that
a GPU wrote the completions; the record is called *contributed* wherever it is shown.
"""

from casebook.lazy import lazy_names

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "archive": "CannotCheck Refused",
        "exporting": "export_run",
        "importing": "import_bundle",
    },
)
