"""The one config file: its shape, how it is read, and how the toggle is written back."""
