"""How arithmetic intensity grows with the batch: weights are read once for all samples."""

import ridgeline

for batch_size in (1, 8, 64):
    result = ridgeline.count("vgg16", batch_size=batch_size)
    moved, fused = result.intensity_range
    print(f"batch {batch_size:>3}: {moved:6.1f} to {fused:6.1f} FLOP per byte")
