"""Reading proof: what the verify steps found, against what the lock decided."""
