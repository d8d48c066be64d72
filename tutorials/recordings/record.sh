#!/bin/sh
# Records the runs whose symptoms the book shows: on two ranks, so that two cores are enough to give each its own. Run it
# on an idle machine when events or the report change, then look at the pictures that change with it.
set -eu
cd "$(dirname "$0")/../.."
here=tutorials/recordings
umask 022
run() {
    package=$1
    shift
    cargo run --quiet -p "$package" -- --headless --device cpu --gpus 2 --threads 1 --batch-size 2 "$@" >/dev/null
}

# Communication that takes longer than what there is to compute meanwhile.
run zero3 --steps 8 --link 1ms,20MB/s --record $here/link.events --report $here/link.json
# Communication that backward hides, but for the end.
run zero0-ddp --batch-size 4 --steps 4 --link 100us,100MB/s --record $here/overlap.events
# Out of memory in the first backward, on a device that the plan says is too small.
run zero0-ddp --gpus 4 --batch-size 4 --steps 5 --device-memory 34MB --ignore-plan --record $here/failed.events 2>/dev/null || true
# Rank 1 stops taking part; the others give up after a second.
run zero2 --steps 3 --timeout 1 --inject stall@rank1,step1,backward --record $here/stall.events 2>/dev/null || true
# Rank 2 leaves out the first all-gather of the second step: from then on it means other collectives than its peers.
run zero3 --gpus 4 --steps 3 --inject skip@rank2,step1 --record $here/skip.events 2>/dev/null || true
# Rank 1 takes three times as long to compute as it should.
run zero2 --steps 5 --batch-size 8 --inject slow@rank1,step2 --record $here/slow.events
# A fault that says nothing, and the same run without it: every rank tells of its own part.
own="--gpus 4 --batch-size 1 --seq-len 32 --steps 6 --contributions"
run zero2 $own --record $here/healthy.events
run zero2 $own --inject divisor@rank1,step3 --record $here/divisor.events
