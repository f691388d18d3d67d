"""What Pulumi's three projects are made of, from the lock."""
