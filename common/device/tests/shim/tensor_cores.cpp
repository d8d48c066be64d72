// The kernels for tensor cores, apart from `shim.cpp` so that two cores can compile at the same time.
#include "kernels.h"

namespace attention_mma {
#include "attention_mma.cu"
}
namespace attention_wgmma {
#include "attention_wgmma.cu"
}
namespace attention_wgmma_backward {
#include "attention_wgmma_backward.cu"
}
