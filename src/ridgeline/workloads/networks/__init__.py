"""Networks of our own, in plain PyTorch. `ridgeline.workloads.own` gives them their names."""
