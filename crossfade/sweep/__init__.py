"""Load a model server per pool size, find the knee, and say which pool and which rate to run."""
