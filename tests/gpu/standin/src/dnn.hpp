// What the parts of the stand-in for cuDNN say to each other. Its descriptors and enums are public; its header is not here,
// for its wheel is 600 MB.
#pragma once

#include <cuda_runtime_api.h>

#include "device.hpp"
#include "numbers.hpp"

namespace standin {

// What the generated functions make is 256 bytes of zeros. These structures lie in them.
struct Handle {
  cudaStream_t stream;
};
struct Tensor {
  int type, axes;
  int sizes[8], strides[8];
};

// cudnnDataType_t's values
inline Kind kind_of_data(int type) {
  switch (type) {
    case 0: return Kind::f32;
    case 1: return Kind::f64;
    case 2: return Kind::f16;
    case 9: return Kind::bf16;
  }
  throw std::invalid_argument("cuDNN data of type " + std::to_string(type));
}

// Work of cuDNN's that somebody wrote down.
inline int issue(Handle* handle, const std::string& what, Work work) {
  std::lock_guard<std::recursive_mutex> guard(lock);
  counts.kernels++;
  return enqueue(stream_of(handle->stream), what, std::move(work));
}

}  // namespace standin

extern "C" void standin_unemulated(cudaStream_t stream, const char* what);
