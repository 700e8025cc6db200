// Tensors turned, cut and joined: bytes that keep their neighbours.
#include <map>
#include <vector>

#include "numbers.hpp"

namespace standin {

namespace {

size_t bytes_of(const std::string& type) {
  if (type == "float4") return 16;
  return type == "float2" ? 8 : type == "__half2" || type == "__nv_bfloat162" ? 4 : size_of(kind_of(type));
}

Work transpose(const Launch& launch) {
  // From [batch, seq, matrices, heads, width] to [matrices, batch, heads, seq, width], or back. A width counts `type`s.
  bool back = launch.base.rfind("TransposeCtx", 0) == 0;
  bool seq_first = launch.get<bool>(1);
  size_t width = size_t(launch.get<int>(0)) * bytes_of(launch.type(0)), heads = launch.block.y;
  size_t length = launch.grid.x, batch = launch.grid.y, matrices = launch.grid.z;
  const char* input = view(launch.get<void*>(2));
  char* output = view(launch.get<void*>(3));
  int total = back ? 1 : launch.get<int>(4);
  if (total > 0) matrices = std::min(matrices, size_t(total));
  size_t stride = total > 0 ? size_t(total) : matrices;
  return [=] {
    for (size_t m = 0; m < matrices; m++)
      for (size_t b = 0; b < batch; b++)
        for (size_t s = 0; s < length; s++)
          for (size_t n = 0; n < heads; n++) {
            size_t row = seq_first ? s * batch + b : b * length + s;
            size_t apart = ((row * stride + m) * heads + n) * width;
            size_t together = (((m * batch + b) * heads + n) * length + s) * width;
            if (back)
              memcpy(output + apart, input + together, width);
            else
              memcpy(output + together, input + apart, width);
          }
  };
}

Work add_bias_and_transpose(const Launch& launch) {
  // <some of a type>(input, bias, output): [matrices, batch, seq, heads, width] to [matrices, batch, heads, seq, width]
  static const std::map<std::string, std::pair<Kind, size_t>> vectors = {
      {"onnxruntime::cuda::Half4", {Kind::f16, 4}}, {"__half2", {Kind::f16, 2}}, {"__half", {Kind::f16, 1}},
      {"float4", {Kind::f32, 4}}, {"float2", {Kind::f32, 2}}, {"__nv_bfloat162", {Kind::bf16, 2}}, {"__nv_bfloat16", {Kind::bf16, 1}}};
  auto vector = vectors.find(launch.type(0));
  if (vector == vectors.end()) return {};
  auto [kind, numbers] = vector->second;
  size_t width = numbers * launch.block.x, heads = launch.block.y, length = launch.grid.x, batch = launch.grid.y;
  size_t matrices = launch.grid.z;
  Numbers input(launch.get<void*>(0), kind), bias(launch.get<void*>(1), kind), output(launch.get<void*>(2), kind);
  return [=] {
    for (size_t m = 0; m < matrices; m++)
      for (size_t b = m * batch; b < (m + 1) * batch; b++)
        for (size_t s = 0; s < length; s++)
          for (size_t n = 0; n < heads; n++)
            for (size_t h = 0; h < width; h++) {
              Wide value = input[((b * length + s) * heads + n) * width + h];
              output.set(((b * heads + n) * length + s) * width + h, value + (bias ? bias[(m * heads + n) * width + h] : 0));
            }
  };
}

Work transpose_matrix(const Launch& launch) {
  // <type, tile>(rows, columns, stride of a batch, input, output)
  long rows = launch.get<int64_t>(0), columns = launch.get<int64_t>(1), stride = launch.get<int64_t>(2), batch = launch.grid.z;
  Numbers input(launch.get<void*>(3), launch.type(0)), output(launch.get<void*>(4), launch.type(0));
  return [=] {
    for (long b = 0; b < batch; b++)
      for (long row = 0; row < rows; row++)
        for (long column = 0; column < columns; column++)
          output.set(size_t(b * stride + column * rows + row), input[size_t(b * stride + row * columns + column)]);
  };
}

Work transpose_half(const Launch& launch) {
  // (output, input, columns, rows), of fp16 alone
  Numbers output(launch.get<void*>(0), Kind::f16), input(launch.get<void*>(1), Kind::f16);
  int columns = launch.get<int>(2), rows = launch.get<int>(3);
  if (launch.name.find("(__half*") == std::string::npos) return {};
  return [=] {
    for (int row = 0; row < rows; row++)
      for (int column = 0; column < columns; column++)
        output.set(size_t(column) * rows + row, input[size_t(row) * columns + column]);
  };
}

Work transpose_blocks(const Launch& launch) {
  // <bytes of an element>(strides, input, strides, output, size of axis 2, N): 16 bytes at a time
  long bytes = std::stol(launch.type(0)), rows = launch.get<int64_t>(4);
  auto from = launch.get<Few<int64_t>>(0), onto = launch.get<Few<int64_t>>(2);
  const char* input = view(launch.get<void*>(1));
  char* output = view(launch.get<void*>(3));
  dim3 grid = launch.grid, block = launch.block;
  auto place = [=](const Few<int64_t>& strides, long a, long b, long c, long d) {
    return ((a * strides.items[0] + b * strides.items[1] + c * strides.items[2]) / (16 / bytes) + d * strides.items[3]) * 16;
  };
  return [=] {
    for (long a = 0; a < grid.z; a++)
      for (long b = 0; b < grid.y; b++)
        for (long c = 0; c < std::min(rows, long(grid.x) * block.y); c++)
          for (long d = 0; d < block.x; d++) memcpy(output + place(onto, a, b, c, d), input + place(from, a, b, c, d), 16);
  };
}

Work transpose_any(const Launch& launch) {
  // <type>(rank, strides of the input, input, strides of the output, output, N)
  int rank = launch.get<int>(0), number = launch.get<int>(5);
  auto from = launch.get<Few<int64_t>>(1);
  auto onto = launch.get<Few<Divisor>>(3);
  Numbers input(launch.get<void*>(2), launch.type(0)), output(launch.get<void*>(4), launch.type(0));
  return [=] {
    for (long at = 0; at < number; at++) {
      long offset = 0, rest = at;
      for (int axis = 0; axis < rank; axis++) {
        offset += rest / onto.items[axis].value * from.items[axis];
        rest %= onto.items[axis].value;
      }
      output.set(at, input[size_t(offset)]);
    }
  };
}

using Parts = Few<void*, 32>;

// (block with the axis, block inside it, size of a part, ...): equal parts, side by side on an axis
Work part(const Launch& launch, const Parts& parts, const void* whole, int number, bool joins) {
  long all = launch.get<Divisor>(0).value, inside = launch.get<Divisor>(1).value, size = launch.get<Divisor>(2).value;
  const std::string type = launch.type(0);
  Numbers together(whole, type);
  std::vector<Numbers> apart;
  for (int index = 0; index < parts.size; index++) apart.emplace_back(parts.items[index], type);
  return [=] {
    for (long at = 0; at < number; at++) {
      long outer = at / all, place = at % all / inside, inner = at % inside;
      size_t of_part = size_t((outer * size + place % size) * inside + inner);
      const Numbers& other = apart[place / size];
      if (joins)
        together.set(at, other[of_part]);
      else
        other.set(of_part, together[at]);
    }
  };
}

Work join_any(const Launch& launch) {
  // <type>(block with the axis, block inside it, where each part ends on the axis, output, inputs, N)
  long all = launch.get<Divisor>(0).value, inside = launch.get<Divisor>(1).value, number = launch.get<int>(5);
  auto ends = launch.get<Few<int64_t, 32>>(2);
  auto parts = launch.get<Parts>(4);
  const std::string type = launch.type(0);
  Numbers output(launch.get<void*>(3), type);
  return [=] {
    for (long at = 0; at < number; at++) {
      long outer = at / all, place = at % all / inside, inner = at % inside, index = 0;
      while (place >= ends.items[index]) index++;
      long begin = index ? ends.items[index - 1] : 0;
      output.set(at, Numbers(parts.items[index], type)[size_t((outer * (ends.items[index] - begin) + place - begin) * inside + inner)]);
    }
  };
}

Work join_rows(const Launch& launch) {
  // <type>(inputs, _, where each begins in a row, length of each in a row, rows, length of a row, output)
  auto parts = launch.get<Parts>(0);
  auto begins = launch.get<Few<int32_t, 32>>(2);
  auto lengths = launch.get<Few<Divisor, 32>>(3);
  size_t rows = size_t(launch.get<int>(4)), length = size_t(launch.get<int>(5)), bytes = size_of(kind_of(launch.type(0)));
  char* output = view(launch.get<void*>(6));
  return [=] {
    for (int index = 0; index < parts.size; index++)
      for (size_t row = 0; row < rows; row++) {
        size_t part = size_t(lengths.items[index].value) * bytes;
        memcpy(output + (row * length + size_t(begins.items[index])) * bytes, view(parts.items[index]) + row * part, part);
      }
  };
}

Work split_rows(const Launch& launch) {
  // <vector>(bytes of each part, input, outputs, bytes of a row, N)
  auto sizes = launch.get<Few<int64_t, 4>>(0);
  auto outputs = launch.get<Few<void*, 4>>(2);
  const char* input = view(launch.get<void*>(1));
  long row_bytes = launch.get<int64_t>(3), step = launch.type(0) == "int4" ? 16 : launch.type(0) == "int2" ? 8 : long(size_of(kind_of(launch.type(0))));
  long rows = launch.get<int>(4) / (row_bytes / step);
  return [=] {
    for (long row = 0; row < rows; row++) {
      const char* at = input + row * row_bytes;
      for (int index = 0; index < sizes.size; index++) {
        memcpy(view(outputs.items[index]) + row * sizes.items[index], at, sizes.items[index]);
        at += sizes.items[index];
      }
    }
  };
}

Work split_any(const Launch& launch) {
  // <type>(block with the axis, block inside it, sizes, where they end, which part a place is of, parts, input, outputs, N)
  long all = launch.get<Divisor>(0).value, inside = launch.get<Divisor>(1).value;
  Numbers sizes(launch.get<void*>(2), Kind::i64), ends(launch.get<void*>(3), Kind::i64), part_of(launch.get<void*>(4), Kind::i64);
  const std::string type = launch.type(0);
  Numbers input(launch.get<void*>(6), type), outputs(launch.get<void*>(7), Kind::u64);
  long number = launch.get<int>(8);
  return [=] {
    for (long at = 0; at < number; at++) {
      long outer = at / all, place = at % all / inside, inner = at % inside, index = long(part_of[place]);
      long begin = index ? long(ends[index - 1]) : 0, size = long(sizes[index]);
      Numbers output(reinterpret_cast<void*>(uint64_t(outputs[index])), type);
      output.set(size_t((outer * size + place - begin) * inside + inner), input[at]);
    }
  };
}

Work reverse_rows(const Launch& launch) {
  // <type>(longest, lengths, size of a step, the same, width, input, output, N): each row backwards, zeros behind its end
  Numbers lengths(launch.get<void*>(1), Kind::i32), input(launch.get<void*>(5), launch.type(0)), output(launch.get<void*>(6), launch.type(0));
  long step = launch.get<int>(2), width = launch.get<Divisor>(4).value, number = launch.get<int>(7);
  return [=] {
    for (long at = 0; at < number; at++) {
      long row = at % step / width, other = long(lengths[row]) - at / step - 1;
      output.set(at, other >= 0 ? input[size_t(other * step + at % step)] : 0);
    }
  };
}

Work part_directions(const Launch& launch) {
  // <type>(seq, batch, width, size of a step, the same, width, input, output, N): [seq, batch, 2, width] to [seq, 2, batch, width]
  long batch = launch.get<int>(1), width = launch.get<int>(2), step = launch.get<int>(3), number = launch.get<int>(8);
  Numbers input(launch.get<void*>(6), launch.type(0)), output(launch.get<void*>(7), launch.type(0));
  return [=] {
    for (long at = 0; at < number; at++) {
      long direction = at % step / width / batch, row = at % step / width % batch;
      output.set(at, input[size_t(at / step * step + (row * 2 + direction) * width + at % width)]);
    }
  };
}

}  // namespace

Work arranging(const Launch& launch) {
  const std::string& base = launch.base;
  if (base == "TransposeQKV" || base == "TransposeCtx") return transpose(launch);
  if (base == "AddBiasTranspose") return add_bias_and_transpose(launch);
  if (base == "TransposeKernel") return transpose_any(launch);
  if (base == "transposeNoOverlap") return transpose_half(launch);
  if (base == "Transpose3DKernel") return transpose_matrix(launch);
  if (base == "Transpose4DKernelParallelizeMultipleElementsPerThreadInInnermostDim") return transpose_blocks(launch);
  if (base == "_ReverseBySequenceKernel") return reverse_rows(launch);
  if (base == "_BidirectionalDataKernel") return part_directions(launch);
  if (base == "_ConcatKernelOutputMajor") return join_any(launch);
  if (base == "_ConcatKernelInputMajor") return join_rows(launch);
  if (base == "_SplitSmallInnerKernel") return split_rows(launch);
  if (base == "_SplitKernel") return split_any(launch);
  if (base == "_SplitKernelSameSplitDim" && launch.type(1).find(", 32>") != std::string::npos)
    return part(launch, launch.get<Parts>(5), launch.get<void*>(4), launch.get<int>(6), false);
  if (base == "_ConcatKernelSameConcatDim" && launch.type(1).find(", 32>") != std::string::npos)
    return part(launch, launch.get<Parts>(4), launch.get<void*>(3), launch.get<int>(5), true);
  return {};
}

}  // namespace standin
