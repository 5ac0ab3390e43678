"""Figures and tables from what is stored.

roofs.py        the roofs of a machine: lines of a roofline, for any kind of drawing
roofs_text.py   drawn with characters, for the terminal
roofs_figure.py drawn with matplotlib, for a paper
"""
