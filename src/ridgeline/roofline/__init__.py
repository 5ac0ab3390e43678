"""Work joined with ceilings: how fast a work item could be, what bounds it, what is lost.

Tables in, tables out; nothing here touches a device, a file or torch.

roofs.py          the roofs of one device: by measurement, from a datasheet, or user-supplied
floors.py         floors, bounds, efficiencies and headrooms of a table of work items
work.py           work items from counted operators, and from the counters of kernels
points.py         the points of a run at every scope (step, phase, layer, kernel), and of a capture
reconcile.py      model work and executed work compared; causes.py explains their differences
kernel_names.py   what a kernel's name says about the way it computes
sanity_checks.py  results that physics does not allow, with the likely cause
"""
