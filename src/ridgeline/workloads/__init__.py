"""What is run: a model by its name, inputs of the right shape, and a loss to train it with.

    workload.py          the records Workload and Inputs; checks of what a user asks for
    sources.py           a name → the source that knows it; the names of all sources
    from_torchvision.py  and a module each for timm, transformers, a Python file and ultralytics
    own.py               the networks of our own: CIFAR-10 forms, an LSTM; yolo.py a detector
    inputs.py            images, labels and boxes
    losses.py            losses, and the optimizers that users name
    data.py              real batches: folders of images, CIFAR-10
    cifar10.py           CIFAR-10, synthetic images in its place, and classifiers of ten classes
    offline.py           nothing is downloaded while a model is built or run

Importing this package imports no torch: each source is loaded when a name asks for it.
"""

from ridgeline.workloads.offline import DownloadRefusedError, refuse_downloads
from ridgeline.workloads.sources import list_models, resolve
from ridgeline.workloads.workload import Inputs, Workload

__all__ = [
    "DownloadRefusedError",
    "Inputs",
    "Workload",
    "list_models",
    "refuse_downloads",
    "resolve",
]
