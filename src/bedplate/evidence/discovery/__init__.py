"""What hosts really are, against wishes and lock, and the pool variables that would fit them."""
