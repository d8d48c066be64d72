// See `shim.h`. The kernels' sources, each in a namespace of its own, but for those in `tensor_cores.cpp`.
#include "kernels.h"
#include "shim.h"

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
namespace tree_sum {
#include "tree_sum.cu"
}
namespace faults {
#include "faults.cu"
}
