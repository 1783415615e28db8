"""A judge and a dialect for referee."""
