"""What only notebooks of the case need."""
