"""Plots as matplotlib figures, and the house style; matplotlib is imported when the first figure is drawn."""
