// libcudnn.so.9: handles, tensors and sums of them, and the sizes that the provider asks for. See also recurring.cpp,
// convolving.cpp and pooling.cpp. All other work of cuDNN's is counted as not emulated.
#include "dnn.hpp"

using namespace standin;

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
    long number = 1;
    for (int axis = 0; axis < sum.axes; axis++) number *= sum.sizes[axis];
    for (long at = 0; at < number; at++) {
      size_t source = 0, target = 0;
      long rest = at;
      for (int axis = sum.axes - 1; axis >= 0; axis--) {
        long place = rest % sum.sizes[axis];
        rest /= sum.sizes[axis];
        target += size_t(place * sum.strides[axis]);
        if (added.sizes[axis] > 1) source += size_t(place * added.strides[axis]);
      }
      onto.set(target, by * from[source] + (keeping != 0 ? keeping * onto[target] : 0));
    }
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
