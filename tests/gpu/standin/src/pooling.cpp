// cuDNN's pooling: the largest of each window of a picture. Means are counted as not emulated.
#include <algorithm>

#include "dnn.hpp"

using namespace standin;

namespace {
struct Windows {
  int mode, axes;
  int sizes[2], pads[2], strides[2];
};
}  // namespace

extern "C" {

int cudnnSetPoolingNdDescriptor(Windows* windows, int mode, int, int axes, const int* sizes, const int* pads, const int* strides) {
  *windows = {mode, axes, {}, {}, {}};
  for (int axis = 0; axis < axes && axis < 2; axis++) {
    windows->sizes[axis] = sizes[axis];
    windows->pads[axis] = pads[axis];
    windows->strides[axis] = strides[axis];
  }
  return 0;
}

int cudnnPoolingForward(Handle* handle, const Windows* given, const float* alpha, const Tensor* x_of, const void* x, const float* beta,
                        const Tensor* y_of, void* y) {
  bool is_largest = given->mode == 0 || given->mode == 3;
  if (!is_largest || given->axes != 2 || x_of->axes != 4 || x_of->type == 1 || *alpha != 1 || *beta != 0) {
    standin_unemulated(handle->stream, "cudnnPoolingForward");
    return 0;
  }
  Windows windows = *given;
  Tensor from = *x_of, onto = *y_of;
  Numbers input(x, kind_of_data(from.type)), output(y, kind_of_data(onto.type));
  return issue(handle, "largest of windows", [=] {
    auto place = [](const Tensor& tensor, int a, int b, int c, int d) {
      return size_t(a) * tensor.strides[0] + size_t(b) * tensor.strides[1] + size_t(c) * tensor.strides[2] + size_t(d) * tensor.strides[3];
    };
    for (int image = 0; image < onto.sizes[0]; image++)
      for (int channel = 0; channel < onto.sizes[1]; channel++)
        for (int row = 0; row < onto.sizes[2]; row++)
          for (int column = 0; column < onto.sizes[3]; column++) {
            Wide most = -INFINITY;
            for (int i = 0; i < windows.sizes[0]; i++)
              for (int j = 0; j < windows.sizes[1]; j++) {
                int at = row * windows.strides[0] - windows.pads[0] + i, across = column * windows.strides[1] - windows.pads[1] + j;
                bool inside = at >= 0 && across >= 0 && at < from.sizes[2] && across < from.sizes[3];
                if (inside) most = std::max(most, input[place(from, image, channel, at, across)]);
              }
            output.set(place(onto, image, channel, row, column), most);
          }
  });
}

}  // extern "C"
