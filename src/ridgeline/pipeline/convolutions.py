"""A study of convolutions: found, measured shape by shape, then in their networks.

Each pass of a distinct shape is stored as soon as it is measured; what is stored from before, of
the same device and libraries, is not measured again. One process measures all passes: to start one
on a GPU takes longer than to measure a shape. Where it ends early, another goes on with the rest.
PyTorch's benchmark mode gets a process of its own: PyTorch keeps the plan that it first chose for a
shape, whichever mode chose. So do counters, which slow down what they watch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from ridgeline.errors import RidgelineError
from ridgeline.measure.isolation import Send
from ridgeline.measure.worker import Progress, ignore_message, torch_needed
from ridgeline.pipeline.cases import Case, CaseRunner, Executor, NoProgress, ProgressListener
from ridgeline.provenance import collect
from ridgeline.records import (
    FAILED,
    RANKED,
    ConvNetwork,
    ConvNetworkRequest,
    ConvRequest,
    ConvResult,
    ConvShape,
    Provenance,
    RunConditions,
    WorkloadSpec,
)
from ridgeline.report.convolutions import Convolutions, join_convolutions
from ridgeline.report.stored import Machines
from ridgeline.report.views import environment_text
from ridgeline.settings import Settings
from ridgeline.signals import interrupts_later
from ridgeline.store import ResultsFolder, ResultsIndex, StoredConv, StoredConvNetwork, run_label
from ridgeline.workloads.sources import workload_spec

if TYPE_CHECKING:
    from ridgeline.measure.backends import Backend

BENCHMARK = "benchmark"
ALL = "all"
ENGINE = "engine "  # plans of cuDNN's graph interface are named so
CONV_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
SHAPE_FORM = "n,c,h,w,k,r,s[,stride,pad,dilation,groups]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSelection:
    """What is to be measured."""

    models: tuple[str, ...] = ()
    shapes: tuple[ConvShape, ...] = ()
    batch_sizes: tuple[int, ...] = (1,)
    input_sizes: tuple[tuple[int, ...] | None, ...] = (None,)
    algorithms: tuple[str, ...] = (ALL,)
    mode: str = "infer"
    settings: Settings = field(default_factory=Settings)  # of whole models; shapes use some
    layers: str = ""  # only those whose path has this text
    engines: bool = False
    in_network: bool = True  # also run whole models
    again: bool = False  # also what is stored

    def specs(self) -> Iterator[WorkloadSpec]:
        for model, batch, size in product(self.models, self.batch_sizes, self.input_sizes):
            yield workload_spec(model, batch, size, None, {}, mode=self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a look at the device and the models has found."""

    backend: str
    device_name: str
    algorithms: tuple[str, ...]  # that the device has
    networks: tuple[ConvNetwork, ...] = ()
    no_engines: str = ""  # why there are no plans of cuDNN's graph interface


def make_shape(parts: Sequence[int | str]) -> ConvShape:
    """n, c, h, w, k, r, s, and as many of stride, padding, dilation and groups as there are."""
    try:
        n, c, h, w, k, r, s, *others = map(int, parts)
        rest = dict(zip(("stride", "padding", "dilation", "groups"), others, strict=False))
        if len(others) > len(rest) or min(n, c, h, w, k, r, s) < 1:
            raise ValueError
        if any(value < (name != "padding") for name, value in rest.items()):
            raise ValueError
    except ValueError:
        raise RidgelineError(
            f"the shape {','.join(map(str, parts))!r} is not valid",
            hint=f"give {SHAPE_FORM} as whole numbers: 1,64,56,56,64,3,3,1,1",
        ) from None
    pairs = {name: (value, value) for name, value in rest.items() if name != "groups"}
    return ConvShape(n=n, c=c, h=h, w=w, k=k, r=r, s=s, groups=rest.get("groups", 1), **pairs)


# ---------------------------------------------------------------- work of processes of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class FindTask:
    """Models to look into, and the device that will run them."""

    specs: tuple[WorkloadSpec, ...]
    settings: Settings


def find_task(task: FindTask, send: Send = ignore_message) -> Found:
    """Find the device, its algorithms, and the convolutions of every model."""
    with torch_needed():
        import torch  # noqa: F401
    from ridgeline.conv.network import find_algorithms, find_layers
    from ridgeline.workloads import resolve

    chosen = task.settings
    backend = _choose(chosen.backend, chosen.device, chosen.precision)
    if backend.kind == "mps":
        raise RidgelineError(
            "convolutions are measured on a CPU or an NVIDIA GPU", hint="add --backend cpu"
        )
    networks = []
    for number, spec in enumerate(task.specs):
        send(Progress(what=spec.model, done=number, total=len(task.specs)))
        networks.append(ConvNetwork(layers=find_layers(resolve(spec), spec.batch_size)))
    return Found(
        backend=backend.kind, device_name=backend.name, networks=tuple(networks),
        algorithms=tuple(find_algorithms(backend.kind)), no_engines=_why_no_engines(backend.kind),
    )  # fmt: skip


def _why_no_engines(kind: str) -> str:
    """Why the plans of cuDNN's graph interface cannot be had; empty if they can."""
    from ridgeline.conv.algorithms import UnsupportedError
    from ridgeline.conv.cudnn import import_frontend

    if kind != "cuda":
        return f"plans are cuDNN's, and this is a {kind} device"
    try:
        import_frontend()
    except UnsupportedError as error:
        return str(error)
    return ""


def _choose(name: str, index: int, precision: str) -> Backend:
    """The device, set to a precision; one that it lacks is refused."""
    from ridgeline.measure.backends import choose_backend, choose_precision

    backend = choose_backend(name, index)
    chosen = choose_precision(precision, backend)
    if chosen.used != precision:
        raise RidgelineError(
            chosen.warnings[0].rpartition(";")[0], hint="--precision fp32 runs everywhere"
        )
    chosen.apply()
    return backend


def conv_task(request: ConvRequest, send: Send = ignore_message) -> ConvResult:
    """Measure one pass of one shape."""
    from ridgeline.conv.measuring import measure_conv
    from ridgeline.sensors.meters import find_meters

    backend = _choose(request.backend, request.device, request.precision)
    meters = find_meters(backend.kind, uuid=backend.uuid)
    before = meters.conditions()

    def on_progress(what: str, done: int, total: int) -> None:
        send(Progress(what=what, done=done, total=total))

    result = measure_conv(request, backend.device, backend.name, on_progress)
    after = meters.conditions()
    return replace(result, conditions=RunConditions(before=before, after=after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What came of one of several requests."""

    request: ConvRequest
    result: Any


def conv_tasks(requests: Sequence[ConvRequest], send: Send = ignore_message) -> bool:
    """Measure passes one after the other; each is sent as soon as it is measured."""
    for request in requests:
        send(Finished(request=request, result=conv_task(request, send)))
        _tidy(request)
    return True


def _tidy(request: ConvRequest) -> None:
    """Free what a pass has left on a GPU."""
    if request.backend == "cuda":
        from ridgeline.conv.cudnn import release_workspaces

        release_workspaces()


def count_tasks(requests: Sequence[ConvRequest], send: Send = ignore_message) -> bool:
    """The FLOPs that a GPU executes under each algorithm of each request, by its counters."""
    from ridgeline.conv.measuring import make_calls
    from ridgeline.profile.count_calls import CallCounter

    counter = None
    for number, request in enumerate(requests):
        send(Progress(what="counting FLOPs", done=number, total=len(requests)))
        device = _choose(request.backend, request.device, request.precision).device
        calls = make_calls(request, device)
        counter = counter or CallCounter(device.index or 0, request.precision)
        send(Finished(request=request, result=counter.flops(calls)))
        del calls
        _tidy(request)
    return True


# ---------------------------------------------------------------- the study


@dataclass(slots=True, kw_only=True)
class ConvStudy:
    """Measures a selection; what is stored of it, now or before, is in its lists."""

    results: ResultsFolder
    selection: ConvSelection
    executor: Executor = field(default_factory=Executor)
    progress: ProgressListener = field(default_factory=NoProgress)
    runner: CaseRunner | None = None  # of whole models
    convolutions: list[StoredConv] = field(default_factory=list)
    networks: list[StoredConvNetwork] = field(default_factory=list)
    measured: int = 0  # passes, now
    kept: int = 0  # that were stored before
    failures: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # with what is known, not with the work
    _found: Found | None = None
    _requests: list[ConvRequest] = field(default_factory=list)
    _cases: list[Case] = field(default_factory=list)
    _flops: dict[ConvRequest, dict[str, int]] = field(default_factory=dict)  # by counters
    _index: ResultsIndex = field(default_factory=ResultsIndex)
    _now: Provenance = field(default_factory=collect)

    def find(self) -> Found:
        """Look at the device and the models; refuse what cannot be measured."""
        chosen = self.selection
        precision = chosen.settings.precision
        if precision not in CONV_PRECISIONS:
            raise RidgelineError(
                f"unknown precision {precision!r} of a convolution",
                hint=f"choose {', '.join(CONV_PRECISIONS)}",
            )
        self.progress.start("looking for convolutions", advance=False)
        task = FindTask(specs=tuple(chosen.specs()), settings=chosen.settings)
        found: Found = self.executor.do(find_task, task, self._on_message).value()
        for name in chosen.algorithms:
            if name != ALL and name not in found.algorithms:
                raise RidgelineError(
                    f"there is no algorithm {name!r} on {found.backend}",
                    hint=f"choose {', '.join(found.algorithms)}, or all",
                )
        return found

    def requests(self, found: Found) -> list[ConvRequest]:
        """A request for every pass of every distinct shape, the heaviest work last."""
        chosen, settings = self.selection, self.selection.settings
        shapes = dict.fromkeys(chosen.shapes)
        for network in found.networks:
            shapes |= dict.fromkeys(
                one.shape for one in network.layers if one.shape and chosen.layers in one.layer
            )
        if not shapes:
            raise RidgelineError(
                f"no convolution has {chosen.layers!r} in its name",
                hint=f"for example {_some_layers(found)}",
            )
        names = found.algorithms if ALL in chosen.algorithms else chosen.algorithms
        if chosen.engines and found.no_engines:
            self.problems.append(f"--engines is skipped: {found.no_engines}")
        phases = ("forward", "input-grad", "weight-grad")[: 3 if chosen.mode == "train" else 1]
        return [
            ConvRequest(
                shape=shape, phase=phase, precision=settings.precision, layout=settings.layout,
                backend=found.backend, device=settings.device, algorithms=tuple(names),
                engines=chosen.engines and not found.no_engines,
            )
            for shape in sorted(shapes, key=lambda shape: shape.macs)
            for phase in phases
        ]  # fmt: skip

    def measure(self, found: Found, requests: list[ConvRequest]) -> None:
        """Measure what is not stored yet; each pass is stored as soon as it is measured."""
        self._index = self.results.index()
        self._store_networks(found)
        parts = []
        for request in requests:
            missing = list(self._split(request, found))
            parts += missing
            if not missing:
                self.progress.start(_name(request))
        for is_benchmark in (False, True):
            same = [one for one in parts if (one.algorithms == (BENCHMARK,)) is is_benchmark]
            self._count(same, found)
            self._measure_all(same)

    def _split(self, request: ConvRequest, found: Found) -> Iterator[ConvRequest]:
        """What is missing of a request, by processes."""
        stored = [] if self.selection.again else [
            run for run in self._index.convolutions
            if is_same_pass(run.request, request)
            and run.result.device_name == found.device_name
            and is_same_software(run.made, self._now)
        ]  # fmt: skip
        self.convolutions += stored
        done = {one.algorithm for run in stored for one in run.result.timings
                if one.status != FAILED}  # fmt: skip
        missing = tuple(name for name in request.algorithms if name not in done)
        has_engines = any(run.request.engines for run in stored)
        self.kept += bool(stored) and not missing
        usual = tuple(name for name in missing if name != BENCHMARK)
        if usual or (request.engines and not has_engines):
            yield replace(request, algorithms=usual, engines=request.engines and not has_engines)
        if BENCHMARK in missing:
            yield replace(request, algorithms=(BENCHMARK,), engines=False)

    def _measure_all(self, requests: Sequence[ConvRequest]) -> None:
        """All in one process; where it ends at a request, that failed and another does the rest."""
        waiting = list(requests)

        def on_message(message: Any) -> None:
            if isinstance(message, Finished):
                waiting.remove(message.request)
                self._store(message.request, message.result)
                self._start_first(waiting)
            else:
                self._on_message(message)

        self._start_first(waiting)
        while waiting:
            failure = self.executor.do(conv_tasks, tuple(waiting), on_message).failure
            if failure is None:
                return
            if failure.is_input:
                raise failure.error()
            self.failures.append(f"{_name(waiting.pop(0))}: {failure.reason}")
            self._start_first(waiting)

    def _start_first(self, waiting: Sequence[ConvRequest]) -> None:
        """Show what is measured now; the benchmark mode of a pass is no unit of its own."""
        if waiting:
            self.progress.start(_name(waiting[0]), advance=waiting[0].algorithms != (BENCHMARK,))

    def _count(self, requests: Sequence[ConvRequest], found: Found) -> None:
        """Count the FLOPs that a GPU executes; why they are missing is noted."""
        forward = [one for one in requests if one.phase == "forward"]
        if found.backend == "cuda" and forward:
            self.progress.start("counting FLOPs", advance=False)
            outcome = self.executor.do(count_tasks, tuple(forward), self._on_counted)
            if outcome.failure is not None:
                self.problems.append(f"FLOPs were not counted: {outcome.failure.reason}")

    def _on_counted(self, message: Any) -> None:
        if isinstance(message, Finished):
            self._flops[message.request] = message.result
        else:
            self._on_message(message)

    def _store(self, request: ConvRequest, result: ConvResult) -> None:
        result = add_counted(result, self._flops.get(request, {}))
        with interrupts_later():
            label = run_label("conv", f"{request.shape}-{request.phase}")
            run_id = self.results.save_run(label, request, result, collect())
            self.convolutions.append(self.results.read_run(run_id))
        self.measured += 1

    def _store_networks(self, found: Found) -> None:
        settings = self.selection.settings
        for spec, network in zip(self.selection.specs(), found.networks, strict=True):
            request = ConvNetworkRequest(
                **vars(spec), precision=settings.precision, layout=settings.layout,
                backend=found.backend,
            )  # fmt: skip
            same = [one for one in self._index.conv_networks
                    if (one.request, one.result) == (request, network)]  # fmt: skip
            if same:
                self.networks.append(same[-1])
                continue
            label = run_label("conv", spec.model, spec.batch_size)
            run_id = self.results.save_run(label, request, network, collect())
            self.networks.append(self.results.read_run(run_id))

    def prepare(self) -> int:
        """Find all that is to be measured; how many passes and whole models that is."""
        self._found = self.find()
        self._requests = self.requests(self._found)
        self._cases = self.cases(self._found)
        return len(self._requests) + len(self._cases)

    def run(self) -> None:
        """Measure what was prepared."""
        assert self._found is not None
        self.measure(self._found, self._requests)
        self.run_networks(self._cases)

    def answer(self) -> Convolutions:
        """What is known of the selection, from now and from before."""
        machines = Machines(self.results, self.problems, {}, None)
        names = self.selection.algorithms
        runs = [run for run in self.results.index().runs
                if ALL in names or run.request.algorithm in names]  # fmt: skip
        found = join_convolutions(
            map(self._keep_chosen, self.convolutions),
            self.networks,
            runs,
            machines,
            self.selection.layers,
        )
        reasons = (text for run in self.convolutions for text in run.result.problems)
        self.problems = list(dict.fromkeys([*self.problems, *reasons]))
        return found

    def _keep_chosen(self, run: StoredConv) -> StoredConv:
        """A stored pass without algorithms that were measured then and are not chosen now."""
        names = self.selection.algorithms
        timings = tuple(one for one in run.result.timings
                        if ALL in names or one.algorithm in names
                        or one.algorithm.startswith(ENGINE))  # fmt: skip
        return replace(run, result=replace(run.result, timings=timings))

    def check_possible(self) -> None:
        """Refuse a shape, named by itself, that none of the algorithms could do."""
        for shape in self.selection.shapes:
            tried = [one for run in self.convolutions if run.request.shape == shape
                     for one in run.result.timings]  # fmt: skip
            if tried and not any(one.samples_s for one in tried):
                raise RidgelineError(
                    f"no chosen algorithm can do {shape}: {tried[0].algorithm}: {tried[0].reason}",
                    hint="choose --algorithm all; `ridgeline conv --list-algorithms` lists them",
                )

    # ------------------------------------------------------------ in the network

    def cases(self, found: Found) -> list[Case]:
        """A run of every whole model under every algorithm that is not stored yet."""
        chosen = self.selection
        if not chosen.in_network or chosen.layers:
            return []
        names = found.algorithms if ALL in chosen.algorithms else chosen.algorithms
        cases = [
            Case(spec=spec, settings=replace(chosen.settings, algorithm=name, layers=True))
            for spec in chosen.specs()
            for name in names
        ]
        stored = () if chosen.again else self.results.index().runs
        known = [(run.request.workload, run.request.settings) for run in stored
                 if run.result.device_name == found.device_name
                 and is_same_software(run.made, self._now)]  # fmt: skip
        return [case for case in cases if (case.spec, case.settings) not in known]

    def run_networks(self, cases: list[Case]) -> CaseRunner:
        """Run whole models; an algorithm that can do none of their layers is noted."""
        self.runner = CaseRunner(
            results=self.results, executor=self.executor, progress=self.progress
        )
        able = [case for case in cases if self._can_do_a_layer(case)]
        left_out = dict.fromkeys(
            f"{case.spec.model} was not run under {case.settings.algorithm}, which can do none of"
            " its layers"
            for case in cases
            if case not in able
        )
        self.problems += left_out
        self.runner.run(able)
        return self.runner

    def _can_do_a_layer(self, case: Case) -> bool:
        """Whether an algorithm is right on a convolution of a model."""
        able = {run.request.shape for run in self.convolutions for one in run.result.timings
                if one.algorithm == case.settings.algorithm and one.status == RANKED}  # fmt: skip
        layers = (layer for network in self.networks if network.request.workload == case.spec
                  for layer in network.result.layers)  # fmt: skip
        return any(layer.shape in able for layer in layers)

    def _on_message(self, message: Any) -> None:
        if isinstance(message, Progress):
            self.progress.update(message.what, message.done, message.total)


def _name(request: ConvRequest) -> str:
    return f"{request.shape}, {request.phase}"


def _some_layers(found: Found) -> str:
    names = [one.layer for network in found.networks for one in network.layers][:3]
    return ", ".join(names) or "conv1"


def add_counted(result: ConvResult, flops: Mapping[str, int]) -> ConvResult:
    """The result with FLOPs of counters in place of those by formula."""
    return replace(result, timings=tuple(
        replace(one, flops_executed=flops[one.algorithm], flops_source="counter")
        if one.algorithm in flops else one
        for one in result.timings
    ))  # fmt: skip


def is_same_pass(one: ConvRequest, other: ConvRequest) -> bool:
    """Whether two requests are of the same pass of the same shape, in the same form."""
    names = ("shape", "phase", "precision", "layout", "device")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def is_same_software(made: Provenance, now: Provenance) -> bool:
    """Whether a run was made with the same PyTorch, under the same variables that change speed."""
    pairs = [(one.libraries.get("torch"), environment_text(one.environment))
             for one in (made, now)]  # fmt: skip
    return pairs[0] == pairs[1]
