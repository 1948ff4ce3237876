"""What a grader may be given: the pieces it looks for in any order, any text, no text at all."""

from hypothesis import strategies as st


def texts(pieces, most=12, size=40):
    """Up to `most` of the pieces behind each other, or any text of up to `size` characters."""
    return st.lists(st.sampled_from(pieces), max_size=most).map("".join) | st.text(max_size=size)


def anything(pieces, most=12, size=40):
    """Such a text, `None`, bytes, a number, or a conversation with holes."""
    turn = st.dictionaries(st.sampled_from(["role", "content"]), st.none() | st.text())
    return texts(pieces, most, size) | st.none() | st.binary() | st.floats() | st.lists(turn)
