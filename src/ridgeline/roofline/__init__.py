"""Work joined with ceilings: how fast a piece could be, what bounds it, what is lost.

Tables in, tables out; nothing here touches a device, a file or torch.

roofs.py     the roofs of one device: by measurement, from a datasheet, or given by hand
place.py     floors, bounds, efficiencies and headrooms of a table of pieces
static.py    pieces from counted operators: work by roof, bytes by memory level
counters.py  pieces from hardware counters: a row per kernel
points.py    the points of one run at every grain: step, phase, layer, kernel
captured.py  the points of a capture that was made elsewhere
reconcile.py model work beside executed work; causes.py names why they part, kernel_names.py
             what the name of a kernel tells
gate.py      what physics forbids, with the likely cause
findings.py  what to fix first, and how
"""
