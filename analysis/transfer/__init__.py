"""The study of transfer: its rows, its page, and what makes its table and figure."""
