"""A results folder and its tables. Free of ray and torch."""
