"""Work joined with ceilings: how fast a work item could be, what bounds it, what is lost.

Tables in, tables out; nothing here touches a device, a file or torch.

roofs.py           the roofs of one device: by measurement, from a datasheet, or given by hand
floors.py          floors, bounds, efficiencies and headrooms of a table of work items
static_work.py     work items from counted operators: work by roof, bytes by memory level
kernel_work.py     work items from hardware counters: a row per kernel
points.py          the points of one run at every scope: step, phase, layer, kernel
capture_points.py  the points of a capture
reconcile.py       model work beside executed work; causes.py explains their differences,
                   kernel_names.py reads the names of kernels
sanity_checks.py   results that physics does not allow, with the likely cause
findings.py        what to fix first, and how
"""
