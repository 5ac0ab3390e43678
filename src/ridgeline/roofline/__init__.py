"""Work joined with ceilings: how fast a work item could be, what bounds it, what is lost.

Tables in, tables out; nothing here touches a device, a file or torch.

roofs.py          the roofs of one device: by measurement, from a datasheet, or user-supplied
floors.py         floors, bounds, efficiencies and headrooms of a table of work items; the same in
                  joules, with the arch and the power cap
work.py           work items from counted operators, and from kernels by counters and name
points.py         the points of a run at every scope (step, phase, layer, kernel), and of a capture
reconcile.py      model work and executed work compared; causes.py explains their differences
sanity_checks.py  results that physics does not allow, with the likely cause
"""
