"""What every other folder may use: errors, files, programs, the terminal, versions."""
