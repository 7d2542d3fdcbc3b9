"""Send recorded requests again, to any backend, and keep the answers as a run that can be compared."""
