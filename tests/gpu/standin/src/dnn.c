// libcudnn.so.9: what the provider reads of cuDNN's answers. Its work is counted as not emulated.
#include <stdlib.h>
#include <string.h>

typedef void* P;

size_t cudnnGetVersion() { return 92801; }

int cudnnSetStream(P* handle, P stream) {
  *handle = stream;
  return 0;
}
int cudnnGetStream(P* handle, P* stream) {
  *stream = *handle;
  return 0;
}

int cudnnBackendCreateDescriptor(int type, P* made) {
  *made = calloc(1, 256);
  return 0;
}
// Types 3, 5 and 6 are of 8 bytes, 15 is a descriptor. All values are 0.
int cudnnBackendGetAttribute(P descriptor, int name, int type, long asked, long* count, char* out) {
  int is_wide = type == 3 || type == 5 || type == 6;
  if (out && asked && type != 15) memset(out, 0, is_wide ? 8 : asked == 1 ? 4 : 0);
  if (count) *count = is_wide || type == 15 ? (asked ? asked : 1) : asked == 1;
  return 0;
}

int cudnnGetConvolutionForwardAlgorithm_v7(P handle, P x, P w, P plan, P y, int asked, int* count, char* algorithms) {
  memset(algorithms, 0, 48);
  *(int*)algorithms = 1;
  *count = 1;
  return 0;
}
int cudnnGetConvolutionForwardWorkspaceSize(P handle, P x, P w, P plan, P y, int algorithm, size_t* bytes) {
  *bytes = 0;
  return 0;
}
int cudnnDropoutGetStatesSize(P handle, size_t* bytes) {
  *bytes = 1024;
  return 0;
}
int cudnnGetReductionWorkspaceSize(P handle, P plan, P x, P y, size_t* bytes) {
  *bytes = 0;
  return 0;
}
int cudnnGetReductionIndicesSize(P handle, P plan, P x, P y, size_t* bytes) {
  *bytes = 0;
  return 0;
}
int cudnnGetRNNTempSpaceSizes(P handle, P plan, int mode, P x, size_t* work, size_t* reserve) {
  *work = 1024;
  if (reserve) *reserve = 1024;
  return 0;
}
int cudnnGetRNNWeightParams(P handle, P plan, int layer, size_t bytes, P weights, int which, P shape, P* matrix, P bias_shape, P* bias) {
  *matrix = weights;
  *bias = weights;
  return 0;
}
int cudnnGetTensorNdDescriptor(P descriptor, int asked, int* type, int* axes, int* sizes, int* strides) {
  *axes = 3;
  for (int axis = 0; axis < asked && axis < 3; axis++) sizes[axis] = strides[axis] = 1;
  return 0;
}
