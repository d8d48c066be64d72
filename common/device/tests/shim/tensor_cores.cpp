// The kernels for tensor cores, which another core compiles while one compiles `shim.cpp`.
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
