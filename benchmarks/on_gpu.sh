#!/usr/bin/env bash
# What the pages under docs/results need from an NVIDIA GPU, one part a call:
#
#   bash benchmarks/on_gpu.sh PART OUT      PART: tests, analyze, sweep, counters, conv, energy, predict
#
# Each part ends with a short table, and leaves its results in OUT/PART.tar.gz, also where it fails.
# torch has to be importable by `python3`.
set -euo pipefail
part=${1:?which part: tests, analyze, sweep, counters, conv, energy or predict}
out=$(realpath "${2:?a folder for the results}")
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
work=$(mktemp -d)
trap 'tar -czf "$out/$part.tar.gz" -C "$work" . && echo "wrote $out/$part.tar.gz"' EXIT
ridgeline() { python3 -m ridgeline "$@"; }

case $part in
  tests)
    python3 -m pytest tests/gpu -q -p no:cacheprovider --durations 10 | tee "$work/tests.log" ;;
  analyze) # the page, and the tensor FLOPs of docs/results/h200-profile.md
    ridgeline analyze resnet50 --precision fp32,amp -b 16 --results "$work/results"
    ridgeline roofline --results "$work/results" ;;
  sweep) # the quick stage of input-sizes for two networks, each at ten sizes
    ridgeline sweep --copy input-sizes
    mv input-sizes.yaml "$work/"
    sed -i 's/^models: .*/models: [alexnet, resnet50]/' "$work/input-sizes.yaml"
    ridgeline sweep "$work/input-sizes.yaml" --stage quick --results "$work/results"
    ridgeline report input-sizes --results "$work/results" ;;
  counters) # the counter matrix for one network
    ridgeline sweep --copy cuda-counters
    mv cuda-counters.yaml "$work/"
    sed -i 's/^models: .*/models: [resnet50]/' "$work/cuda-counters.yaml"
    ridgeline sweep "$work/cuda-counters.yaml" --results "$work/results"
    ridgeline report cuda-counters --results "$work/results" ;;
  conv) # six networks in fp32, then one in three precisions with all plans and gradients
    networks="vgg16 densenet121 resnet152 googlenet alexnet resnet50"
    # shellcheck disable=SC2086
    ridgeline conv $networks -b 1,16 --input-size 224 --no-network --results "$work/results"
    for precision in fp32 tf32; do
      ridgeline conv resnet50 -b 16 --precision $precision --mode train --engines --results "$work/results"
    done
    ridgeline conv resnet50 -b 16 --precision fp16 --channels-last --mode train --engines --results "$work/results" ;;
  energy) # the fit twice, then twelve networks that are not in it, in two precisions
    ridgeline machine measure --quick --results "$work/results"
    for time in 1 2; do
      ridgeline machine measure --energy --results "$work/results"
      cp "$work"/results/machines/*.json "$work/fit-$time.json"
    done
    export PYTHONPATH="$PWD:$PYTHONPATH"
    python3 -m benchmarks.energy_gpu run table --out "$work/results"
    ridgeline run alexnet resnet50 vgg16 mobilenet_v2 --precision fp32,amp -b 32 --energy --energy-time 2 --iters 30 --layers --results "$work/results"
    ridgeline roofline --energy --results "$work/results" ;;
  predict) # eight minutes; then, without a GPU: python -m benchmarks.predict_gpu table --out FOLDER
    export PYTHONPATH="$PWD:$PYTHONPATH"
    python3 -m benchmarks.predict_gpu calibrate run refine --out "$work" | tee "$work/predict.log" ;;
  *)
    echo "no part $part: tests, analyze, sweep, counters, conv, energy, predict" >&2
    exit 2 ;;
esac
