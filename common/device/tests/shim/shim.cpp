// See `shim.h`. The kernels' sources, each in a namespace of its own, and the fibers that run them.
#include "shim.h"

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

namespace elementwise {
#include "elementwise.cu"
}
namespace adamw {
#include "adamw.cu"
}
namespace norm {
#include "norm.cu"
}
namespace rope {
#include "rope.cu"
}
namespace swiglu {
#include "swiglu.cu"
}
namespace embedding {
#include "embedding.cu"
}
namespace cross_entropy {
#include "cross_entropy.cu"
}
namespace reduction {
#include "reduction.cu"
}
namespace softmax {
#include "softmax.cu"
}
namespace attention {
#include "attention.cu"
}
namespace attention_mma {
#include "attention_mma.cu"
}
namespace attention_wgmma {
#include "attention_wgmma.cu"
}
namespace attention_wgmma_backward {
#include "attention_wgmma_backward.cu"
}
namespace tree_sum {
#include "tree_sum.cu"
}
namespace faults {
#include "faults.cu"
}
