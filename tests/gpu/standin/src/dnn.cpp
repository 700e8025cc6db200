// libcudnn.so.9: handles, tensors, their sums, reductions and norms, and sizes that the provider asks for. See also recurring.cpp,
// convolving.cpp and pooling.cpp. All other work of cuDNN's is counted as not emulated.
#include <algorithm>
#include <map>

#include "dnn.hpp"

using namespace standin;

namespace {
enum { kMax = 3, kMean = 5, kNorm2 = 7 };  // cudnnReduceTensorOp_t
struct Reduction {
  int operation;
};

// Calls `each` for every place of a tensor, with where it lies, and where in another one whose axes may have size 1.
template <typename Each>
void walk(const Tensor& tensor, const Tensor& other, Each each) {
  long number = 1;
  for (int axis = 0; axis < tensor.axes; axis++) number *= tensor.sizes[axis];
  for (long at = 0; at < number; at++) {
    size_t place = 0, of_other = 0;
    long rest = at;
    for (int axis = tensor.axes - 1; axis >= 0; axis--) {
      long index = rest % tensor.sizes[axis];
      rest /= tensor.sizes[axis];
      place += size_t(index * tensor.strides[axis]);
      if (other.sizes[axis] > 1) of_other += size_t(index * other.strides[axis]);
    }
    each(place, of_other);
  }
}
}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 92801; }

int cudnnSetStream(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return 0;
}
int cudnnGetStream(Handle* handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return 0;
}

int cudnnSetTensorNdDescriptor(Tensor* tensor, int type, int axes, const int* sizes, const int* strides) {
  tensor->type = type;
  tensor->axes = axes;
  for (int axis = 0; axis < axes && axis < 8; axis++) {
    tensor->sizes[axis] = sizes[axis];
    tensor->strides[axis] = strides[axis];
  }
  return axes > 8;
}
int cudnnGetTensorNdDescriptor(const Tensor* tensor, int asked, int* type, int* axes, int* sizes, int* strides) {
  *type = tensor->type;
  *axes = tensor->axes;
  for (int axis = 0; axis < asked && axis < tensor->axes; axis++) {
    sizes[axis] = tensor->sizes[axis];
    strides[axis] = tensor->strides[axis];
  }
  return 0;
}

// C = alpha A + beta C. An axis of A may have size 1.
int cudnnAddTensor(Handle* handle, const float* alpha, const Tensor* a_of, const void* a, const float* beta, const Tensor* c_of, void* c) {
  if (a_of->type == 1 || a_of->axes != c_of->axes) {
    standin_unemulated(handle->stream, "cudnnAddTensor");
    return 0;
  }
  Tensor added = *a_of, sum = *c_of;
  Numbers from(a, kind_of_data(added.type)), onto(c, kind_of_data(sum.type));
  Wide by = *alpha, keeping = *beta;
  return issue(handle, "sum of tensors", [=] {
    walk(sum, added, [&](size_t target, size_t source) { onto.set(target, by * from[source] + (keeping != 0 ? keeping * onto[target] : 0)); });
  });
}

int cudnnSetReduceTensorDescriptor(Reduction* reduction, int operation, int, int, int, int) {
  reduction->operation = operation;
  return 0;
}
// The largest, the mean, or the root of the sum of squares, over the axes that have size 1 in C.
// alpha and beta are doubles for doubles, and floats for all others.
int cudnnReduceTensor(Handle* handle, const Reduction* reduction, void*, size_t, void*, size_t, const void* alpha, const Tensor* a_of, const void* a,
                      const void* beta, const Tensor* c_of, void* c) {
  int operation = reduction->operation;
  Kind kind = a_of->type == 1 ? Kind::f64 : Kind::f32;
  bool plain = Numbers(alpha, kind)[0] == 1 && Numbers(beta, kind)[0] == 0;
  bool fits = (operation == kMax || operation == kMean || operation == kNorm2) && a_of->axes == c_of->axes && plain;
  if (!fits) {
    standin_unemulated(handle->stream, ("cudnnReduceTensor " + std::to_string(operation)).c_str());
    return 0;
  }
  Tensor all = *a_of, left = *c_of;
  Numbers from(a, kind_of_data(all.type)), onto(c, kind_of_data(left.type));
  return issue(handle, "reduction of a tensor", [=] {
    std::map<size_t, Wide> found;
    long number = 0;
    walk(all, left, [&](size_t source, size_t target) {
      Wide x = operation == kNorm2 ? from[source] * from[source] : from[source];
      auto [at, is_first] = found.emplace(target, x);
      if (!is_first) at->second = operation == kMax ? std::max(at->second, x) : at->second + x;
      number++;
    });
    for (auto [target, value] : found)
      onto.set(target, operation == kNorm2 ? sqrtl(value) : operation == kMean ? value * found.size() / number : value);
  });
}

// Of each channel: (x - mean) / sqrt(variance + epsilon) * scale + bias. All four are float32 beside fp16.
int cudnnBatchNormalizationForwardInference(Handle* handle, int mode, const float* alpha, const float* beta, const Tensor* x_of, const void* x,
                                            const Tensor* y_of, void* y, const Tensor*, const void* scale, const void* bias, const void* mean,
                                            const void* variance, double epsilon) {
  if (mode != 1 || x_of->type == 1 || *alpha != 1 || *beta != 0) {
    standin_unemulated(handle->stream, "cudnnBatchNormalizationForwardInference");
    return 0;
  }
  Tensor from = *x_of, onto = *y_of;
  Numbers input(x, kind_of_data(from.type)), output(y, kind_of_data(onto.type));
  Numbers scales(scale, Kind::f32), biases(bias, Kind::f32), means(mean, Kind::f32), variances(variance, Kind::f32);
  return issue(handle, "norm of channels", [=] {
    walk(from, onto, [&](size_t source, size_t target) {
      size_t channel = source / from.strides[1] % from.sizes[1];
      Wide normed = (input[source] - means[channel]) / sqrtl(variances[channel] + epsilon);
      output.set(target, normed * scales[channel] + biases[channel]);
    });
  });
}

int cudnnDropoutGetStatesSize(Handle*, size_t* bytes) {
  *bytes = 1024;
  return 0;
}
int cudnnGetReductionWorkspaceSize(Handle*, void*, void*, void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
int cudnnGetReductionIndicesSize(Handle*, void*, void*, void*, size_t* bytes) {
  *bytes = 0;
  return 0;
}
int cudnnGetConvolutionForwardAlgorithm_v7(void*, void*, void*, void*, void*, int, int* count, char* algorithms) {
  memset(algorithms, 0, 48);
  *reinterpret_cast<int*>(algorithms) = 1;
  *count = 1;
  return 0;
}
int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int, size_t* bytes) {
  *bytes = 0;
  return 0;
}

}  // extern "C"
