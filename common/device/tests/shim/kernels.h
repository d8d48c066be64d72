// The headers that the kernels' sources expect.
#pragma once
#include "host.h"

#include "types.cuh"

#include "block.cuh"
#include "math.cuh"
#include "mma.cuh"
#include "attention.cuh"
#include "tile.cuh"
#include "online_softmax.cuh"
#include "attention_backward.cuh"
#include "warpgroup.cuh"
#include "warpgroup_tile.cuh"
