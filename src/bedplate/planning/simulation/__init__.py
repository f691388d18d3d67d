"""`bedplate simulate`: a file of jobs on what the lock decided; no host and no cluster is asked."""
