"""Where a step is: which module runs, which module an autograd node belongs to, what is recomputed.

tracker.py follows all three.

Counting, layer timing and profiling use these. The names below stand where a module's path would,
for work of a step that is in no module.
"""

MODEL = "(model)"  # of the model's own forward, outside its children
DATA, COPY = "(data)", "(copy)"  # waiting for a batch, and bringing it to the device
FORWARD = "(forward)"  # before the model and after it
LOSS = "(loss)"
GRADIENTS = "(gradients)"  # adding up those of a parameter that is used several times
OPTIMIZER = "(optimizer)"

RANGE = "ridgeline:op:"  # before an operator's number, in the name of a profiler's range around it
