#!/bin/sh
# Records the runs that the visualizer's tests replay, and the one that ships with it. Run it when events or the header
# change, then look at what changed in the snapshots: cargo insta review.
set -eu
cd "$(dirname "$0")/../../.."
here=viz/tests/recordings
umask 022
run() {
    package=$1
    shift
    cargo run --quiet -p "$package" -- --headless --gpus 4 --threads 1 "$@" >/dev/null
}
tiny="--steps 5 --batch-size 4"

for package in zero0-ddp zero1 zero2 zero3; do
    name=$(echo "$package" | sed s/zero0-//)
    run "$package" $tiny --record "$here/$name.events" --report "$here/$name.json"
done
run zero3 $tiny --algorithm ring --record "$here/ring.events" --report "$here/ring.json"
# A slow link, behind whose transfers there is something to compute.
run zero3 $tiny --link 100us,100MB/s --record "$here/link.events" --report "$here/link.json"
# Shards among two neighbours, copies across.
run zero3 $tiny --strategy hybrid-shard --shard-group-size 2 \
    --record "$here/hybrid.events" --report "$here/hybrid.json"
# A second copy of the parameters shared by two neighbours.
run zero3 $tiny --secondary-shard-size 2 --record "$here/hpz.events" --report "$here/hpz.json"
# fp16 with a gradient that overflows, and activations computed again.
run zero2 $tiny --precision fp16 --checkpoint-activations block --inject overflow@rank1,step1 \
    --record "$here/fp16.events" --report "$here/fp16.json"
# Out of memory in the first backward, on a device that the plan says is too small.
run zero0-ddp $tiny --device-memory 34MB --ignore-plan --record "$here/failed.events" 2>/dev/null || true
# Rank 3 stops taking part; the others give up after a second.
run zero2 $tiny --timeout 1 --inject stall@rank3,step1,backward --record "$here/stall.events" 2>/dev/null || true
run zero3 --steps 20 --batch-size 4 --record viz/recordings/zero3.events
