// libcublas.so.13: products of matrices, in plain loops. cuBLAS has no header here: its wheel is 400 MB.
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "device.hpp"
#include "numbers.hpp"

using namespace standin;

namespace {
struct Handle {
  cudaStream_t stream;
};

// cudaDataType_t's and cublasComputeType_t's values
Kind kind_of_data(int type) {
  switch (type) {
    case 0: return Kind::f32;
    case 1: return Kind::f64;
    case 2: return Kind::f16;
    case 14: return Kind::bf16;
  }
  throw std::invalid_argument("cuBLAS data of type " + std::to_string(type));
}
Kind kind_of_scale(int compute) { return compute == 64 || compute == 65 ? Kind::f16 : compute == 70 ? Kind::f64 : Kind::f32; }

struct Matrix {
  Numbers numbers;
  int leading;
  long stride;  // to the next product of a batch
  bool turned;
};

// Columns follow each other: element (row, column) lies at row + column * leading.
std::vector<float> unpacked(const Matrix& matrix, int rows, int columns, long batch) {
  std::vector<float> values(size_t(rows) * columns);
  for (int row = 0; row < rows; row++)
    for (int column = 0; column < columns; column++) {
      size_t at = matrix.turned ? size_t(column) + size_t(row) * matrix.leading : size_t(row) + size_t(column) * matrix.leading;
      values[size_t(row) * columns + column] = float(matrix.numbers[at + size_t(batch * matrix.stride)]);
    }
  return values;
}

// C = alpha A B + beta C, [m, n] = [m, k] [k, n], of one of a batch. Sums are of float32.
void multiply(int m, int n, int k, Wide alpha, const Matrix& a, const Matrix& b, Wide beta, const Matrix& c, long batch) {
  std::vector<float> left = unpacked(a, m, k, batch), right = unpacked(b, k, n, batch), sums(size_t(m) * n);
  for (int row = 0; row < m; row++)
    for (int inner = 0; inner < k; inner++) {
      float x = left[size_t(row) * k + inner];
      const float* y = &right[size_t(inner) * n];
      float* sum = &sums[size_t(row) * n];
      for (int column = 0; column < n; column++) sum[column] += x * y[column];
    }
  for (int row = 0; row < m; row++)
    for (int column = 0; column < n; column++) {
      size_t at = size_t(row) + size_t(column) * c.leading + size_t(batch * c.stride);
      c.numbers.set(at, alpha * sums[size_t(row) * n + column] + (beta != 0 ? beta * c.numbers[at] : 0));
    }
}

// The same of each of a batch.
int product(Handle* handle, int m, int n, int k, Wide alpha, Matrix a, Matrix b, Wide beta, Matrix c, long batches) {
  std::lock_guard<std::recursive_mutex> guard(standin::lock);
  counts.kernels++;
  std::string what = "product " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) + ", " + std::to_string(batches);
  return enqueue(stream_of(handle->stream), what, [=] {
    for (long batch = 0; batch < batches; batch++) multiply(m, n, k, alpha, a, b, beta, c, batch);
  });
}

Wide scalar(const void* pointer, Kind kind) { return Numbers(pointer, kind)[0]; }
}  // namespace

extern "C" {

int cublasCreate_v2(Handle** handle) {
  *handle = new Handle{};
  return 0;
}
int cublasDestroy_v2(Handle* handle) {
  delete handle;
  return 0;
}
int cublasSetStream_v2(Handle* handle, cudaStream_t stream) {
  handle->stream = stream;
  return 0;
}
int cublasGetMathMode(Handle*, int* mode) {
  *mode = 0;
  return 0;
}
int cublasSetMathMode(Handle*, int) { return 0; }
int cublasSetWorkspace_v2(Handle*, void*, size_t) { return 0; }
const char* cublasGetStatusName(int) { return "a status of the stand-in"; }
const char* cublasGetStatusString(int) { return "a status of the stand-in"; }

int cublasGemmStridedBatchedEx(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const void* alpha, const void* a, int a_type,
                               int a_leading, long long a_stride, const void* b, int b_type, int b_leading, long long b_stride,
                               const void* beta, void* c, int c_type, int c_leading, long long c_stride, int batches, int compute, int) {
  Watch watch(home_of(stream_of(handle->stream)));
  Kind scale = kind_of_scale(compute);
  return product(handle, m, n, k, scalar(alpha, scale), {Numbers(a, kind_of_data(a_type)), a_leading, a_stride, turn_a != 0},
                 {Numbers(b, kind_of_data(b_type)), b_leading, b_stride, turn_b != 0}, scalar(beta, scale),
                 {Numbers(c, kind_of_data(c_type)), c_leading, c_stride, false}, batches);
}
int cublasGemmEx(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const void* alpha, const void* a, int a_type, int a_leading,
                 const void* b, int b_type, int b_leading, const void* beta, void* c, int c_type, int c_leading, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, turn_a, turn_b, m, n, k, alpha, a, a_type, a_leading, 0, b, b_type, b_leading, 0, beta, c,
                                    c_type, c_leading, 0, 1, compute, algorithm);
}
int cublasSgemmStridedBatched(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const float* alpha, const float* a, int a_leading,
                              long long a_stride, const float* b, int b_leading, long long b_stride, const float* beta, float* c,
                              int c_leading, long long c_stride, int batches) {
  return cublasGemmStridedBatchedEx(handle, turn_a, turn_b, m, n, k, alpha, a, 0, a_leading, a_stride, b, 0, b_leading, b_stride, beta, c, 0,
                                    c_leading, c_stride, batches, 68, -1);
}
int cublasSgemm_v2(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const float* alpha, const float* a, int a_leading,
                   const float* b, int b_leading, const float* beta, float* c, int c_leading) {
  return cublasSgemmStridedBatched(handle, turn_a, turn_b, m, n, k, alpha, a, a_leading, 0, b, b_leading, 0, beta, c, c_leading, 0, 1);
}

// The matrices of a batch lie anywhere. Where, is read on the device.
int cublasGemmBatchedEx(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const void* alpha, const void* const* a, int a_type,
                        int a_leading, const void* const* b, int b_type, int b_leading, const void* beta, void* const* c, int c_type,
                        int c_leading, int batches, int compute, int) {
  std::lock_guard<std::recursive_mutex> guard(standin::lock);
  counts.kernels++;
  Kind scale = kind_of_scale(compute), of_a = kind_of_data(a_type), of_b = kind_of_data(b_type), of_c = kind_of_data(c_type);
  Wide times = scalar(alpha, scale), keeping = scalar(beta, scale);
  Numbers a_places(a, Kind::u64), b_places(b, Kind::u64), c_places(c, Kind::u64);
  return enqueue(stream_of(handle->stream), "products of a batch", [=] {
    auto matrix = [](const Numbers& places, int batch, Kind kind, int leading, bool turned) {
      return Matrix{Numbers(reinterpret_cast<void*>(uint64_t(places[batch])), kind), leading, 0, turned};
    };
    for (int batch = 0; batch < batches; batch++)
      multiply(m, n, k, times, matrix(a_places, batch, of_a, a_leading, turn_a != 0), matrix(b_places, batch, of_b, b_leading, turn_b != 0), keeping,
               matrix(c_places, batch, of_c, c_leading, false), 0);
  });
}
int cublasSgemmBatched(Handle* handle, int turn_a, int turn_b, int m, int n, int k, const float* alpha, const float* const* a, int a_leading,
                       const float* const* b, int b_leading, const float* beta, float* const* c, int c_leading, int batches) {
  auto any = [](const float* const* places) { return reinterpret_cast<const void* const*>(places); };
  return cublasGemmBatchedEx(handle, turn_a, turn_b, m, n, k, alpha, any(a), 0, a_leading, any(b), 0, b_leading, beta,
                             reinterpret_cast<void* const*>(c), 0, c_leading, batches, 68, -1);
}

// C = alpha A + beta B, either turned.
int cublasSgeam(Handle* handle, int turn_a, int turn_b, int m, int n, const float* alpha, const float* a, int a_leading, const float* beta,
                const float* b, int b_leading, float* c, int c_leading) {
  Watch watch(home_of(stream_of(handle->stream)));
  counts.kernels++;
  Wide x = *alpha, y = *beta;
  Numbers left(a, Kind::f32), right(b, Kind::f32), sum(c, Kind::f32);
  return enqueue(stream_of(handle->stream), "sum of matrices", [=] {
    auto place = [](int row, int column, int leading, int turned) {
      return turned ? size_t(column) + size_t(row) * leading : size_t(row) + size_t(column) * leading;
    };
    for (int row = 0; row < m; row++)
      for (int column = 0; column < n; column++) {
        Wide value = x != 0 ? x * left[place(row, column, a_leading, turn_a)] : 0;
        if (y != 0) value += y * right[place(row, column, b_leading, turn_b)];
        sum.set(place(row, column, c_leading, 0), value);
      }
  });
}

}  // extern "C"
