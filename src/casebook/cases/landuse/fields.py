"""The words of the case: labels, crops, and the columns of a landscape's file."""

CROPS = ("wheat", "oat", "corn", "soy")
HABITAT = "habitat"
LABELS = ("wheat", "oat", HABITAT, "corn", "soy")  # in the write-up's order
YIELDS = tuple(f"{crop}_yield" for crop in CROPS)  # t/ha
CONNECTIVITY = "ecological_connectivity"  # 0 to 1
