"""From rows to what a page shows: pure functions and frozen values. The templates only lay them out."""
