// Weights of 4 or 8 bits in blocks, each with a scale: multiplied as they lie, made wide, looked up by row.
#include "numbers.hpp"

namespace standin {

namespace {

// Levels that lie one behind the other. Of two of 4 bits, the first has the lower half of a byte.
struct Levels {
  Numbers bytes, scales;
  int bits, size;

  Wide operator[](size_t index) const {
    int byte = int(bytes[index * bits / 8]);
    int level = bits == 8 ? byte : (index % 2 ? byte >> 4 : byte & 15);
    return (level - (1 << (bits - 1))) * scales[index / size];
  }
};

Work multiply(const Launch& launch, int bits, bool counts_rows) {
  // <type, size of a block, has zero points, ...>(output, rows, levels, scales, zero points, number of rows, N, K, blocks of a row)
  if (launch.type(2) != "false") return {};
  int rows = counts_rows ? launch.get<int>(5) : 1, next = counts_rows ? 6 : 5;
  int columns = launch.get<int>(next), width = launch.get<int>(next + 1), size = stoi(launch.type(1));
  size_t padded = size_t(launch.get<int>(next + 2)) * size;
  Numbers output(launch.get<void*>(0), launch.type(0)), input(launch.get<void*>(1), launch.type(0));
  Levels levels{{launch.get<void*>(2), Kind::u8}, {launch.get<void*>(3), launch.type(0)}, bits, size};
  return [=] {
    for (int row = 0; row < rows; row++)
      for (int column = 0; column < columns; column++) {
        float sum = 0;
        for (int at = 0; at < width; at++) sum += float(input[size_t(row) * width + at]) * float(levels[column * padded + at]);
        output.set(size_t(row) * columns + column, sum);
      }
  };
}

Work widen(const Launch& launch, int bits) {
  // 4 bits: (output, levels, scales, zero points, size of a block, blocks of a row, blocks of a group of threads, blocks)
  // 8 bits: the same without the blocks of a row
  if (launch.get<void*>(3)) return {};
  int size = launch.get<int>(4);
  size_t number = size_t(launch.get<int>(bits == 4 ? 7 : 6)) * size;
  Numbers output(launch.get<void*>(0), launch.type(0));
  Levels levels{{launch.get<void*>(1), Kind::u8}, {launch.get<void*>(2), launch.type(0)}, bits, size};
  return [=] {
    for (size_t at = 0; at < number; at++) output.set(at, levels[at]);
  };
}

Work add_bias(const Launch& launch) {
  // <type>(output, bias, columns, N)
  Numbers output(launch.get<void*>(0), launch.type(0)), bias(launch.get<void*>(1), launch.type(0));
  size_t columns = size_t(launch.get<int>(2)), number = size_t(launch.get<int64_t>(3));
  return [=] {
    for (size_t at = 0; at < number; at++) output.set(at, output[at] + bias[at % columns]);
  };
}

Work look_up(const Launch& launch) {
  // <levels, type, index>(levels, indices, scales, zero points, output, inner, rows, indices, bits, size of a block, axis, N, signed)
  if (launch.type(0) != "unsigned char" || launch.get<void*>(3)) return {};
  long inner = launch.get<int64_t>(5), rows = launch.get<int64_t>(6), asked = launch.get<int64_t>(7), number = launch.get<int64_t>(11);
  Levels levels{
      {launch.get<void*>(0), Kind::u8}, {launch.get<void*>(2), launch.type(1)}, int(launch.get<int64_t>(8)), int(launch.get<int64_t>(9))};
  Numbers indices(launch.get<void*>(1), launch.type(2)), output(launch.get<void*>(4), launch.type(1));
  return [=] {
    for (long at = 0; at < number; at++) {
      long row = long(indices[size_t(at / inner % asked)]);
      if (row < 0) row += rows;
      bool there = row >= 0 && row < rows;
      output.set(size_t(at), there ? levels[size_t((at / (inner * asked) * rows + row) * inner + at % inner)] : 0);
    }
  };
}
}  // namespace

Work in_blocks(const Launch& launch) {
  if (launch.base == "MatMulFloat4BitsKernelM1" || launch.base == "MatMulFloat4BatchedKernel") return multiply(launch, 4, true);
  if (launch.base == "MatMulFloat8bKernelBatched") return multiply(launch, 8, true);
  if (launch.base == "MatMulFloat8bKernelM1") return multiply(launch, 8, false);
  if (launch.base == "Dequantize4BitsKernel") return widen(launch, 4);
  if (launch.base == "Dequantize8BitsKernel") return widen(launch, 8);
  if (launch.base == "MatMulNBitsBiasAddKernel") return add_bias(launch);
  if (launch.base == "GatherBlockQuantizedKernel") return look_up(launch);
  return {};
}
}  // namespace standin
