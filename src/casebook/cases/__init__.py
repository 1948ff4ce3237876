"""One folder for each case; `casebook.load_case` finds them."""
