"""Figures: charts as data, drawn by matplotlib in files and by plotly on the dashboard."""
