"""Figures: what each one shows is defined once, and drawn by matplotlib or, on the dashboard, by plotly."""
