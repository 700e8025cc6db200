// Numbers that change their place and nothing else.
#include <vector>

#include "numbers.hpp"

namespace standin {

namespace {

Work fill(const Launch& launch) {
  Numbers output(launch.get<void*>(0), launch.type(0));
  if (launch.base == "_Fill") {
    // <type>(output, value, N); only integers are filled in
    if (size_of(kind_of(launch.type(0))) != 4) return {};
    int value = launch.get<int>(1), number = launch.get<int>(2);
    return [=] {
      for (int at = 0; at < number; at++) output.set(at, value);
    };
  }
  Numbers value(launch.get<void*>(1), launch.type(0));
  int number = launch.get<int>(2);
  return [=] {
    for (int at = 0; at < number; at++) output.set(at, value[0]);
  };
}

Work expand(const Launch& launch) {
  // <type>(N, input, output, columns, stride of rows, stride of columns)
  int number = launch.get<int>(0), columns = launch.get<Divisor>(3).value;
  int by_row = launch.get<int>(4), by_column = launch.get<int>(5);
  Numbers input(launch.get<void*>(1), launch.type(0)), output(launch.get<void*>(2), launch.type(0));
  return [=] {
    for (int at = 0; at < number; at++) output.set(at, input[size_t(at / columns * by_row + at % columns * by_column)]);
  };
}

Work expand_any(const Launch& launch) {
  // <type>(rank, N, input, output, shape of the output, strides of the input)
  int rank = launch.get<int>(0), number = launch.get<int>(1);
  Numbers input(launch.get<void*>(2), launch.type(0)), output(launch.get<void*>(3), launch.type(0));
  auto shape = launch.get<Few<Divisor>>(4);
  auto strides = launch.get<Few<int64_t>>(5);
  return [=] {
    for (long at = 0; at < number; at++) {
      long offset = 0, rest = at;
      for (int axis = 0; axis < rank; axis++) {
        offset += rest / shape.items[axis].value * strides.items[axis];
        rest %= shape.items[axis].value;
      }
      output.set(at, input[size_t(offset)]);
    }
  };
}

Work broadcast_bias(const Launch& launch) {
  // <type, _, scales>(bias, output, N, columns, stride of rows, stride of columns, scale)
  if (launch.type(2) != "false") return {};
  Numbers bias(launch.get<void*>(0), launch.type(0)), output(launch.get<void*>(1), launch.type(0));
  long number = launch.get<int64_t>(2), columns = launch.get<Divisor>(3).value;
  int by_row = launch.get<int>(4), by_column = launch.get<int>(5);
  return [=] {
    for (long at = 0; at < number; at++) output.set(at, bias[size_t(at / columns * by_row + at % columns * by_column)]);
  };
}

Work range(const Launch& launch) {
  // <type>(start, step, count, output)
  bool whole = launch.type(0) == "long";
  if (!whole && launch.type(0) != "float") return {};
  Wide start = whole ? launch.get<int64_t>(0) : launch.get<float>(0), step = whole ? launch.get<int64_t>(1) : launch.get<float>(1);
  long count = launch.get<int64_t>(2);
  Numbers output(launch.get<void*>(3), launch.type(0));
  return [=] {
    for (long at = 0; at < count; at++) output.set(at, start + step * at);
  };
}

Work gather(const Launch& launch) {
  // <type>(block of the input, largest index, block of the output, inner, indices, their size, input, output, N)
  long input_block = launch.get<int64_t>(0), bound = launch.get<int64_t>(1);
  long output_block = launch.get<Divisor>(2).value, inner = launch.get<Divisor>(3).value;
  Numbers indices(launch.get<void*>(4), launch.get<size_t>(5) == 4 ? Kind::i32 : Kind::i64);
  Numbers input(launch.get<void*>(6), launch.type(0)), output(launch.get<void*>(7), launch.type(0));
  int number = launch.get<int>(8);
  return [=] {
    for (long at = 0; at < number; at++) {
      long place = at % output_block;
      long index = long(indices[size_t(place / inner)]);
      if (index < 0) index += bound;
      bool there = index >= 0 && index < bound;
      output.set(at, there ? input[size_t(at / output_block * input_block + index * inner + place % inner)] : 0);
    }
  };
}

Work slice_offsets(const Launch& launch) {
  // <index>(axes before, sizes, slices, slices of a batch, stride of a batch, axes, strides, indices, output): where slices begin
  Few<int64_t> sizes = launch.get<Few<int64_t>>(1), strides = launch.get<Few<int64_t>>(6);
  size_t before = size_t(launch.get<int64_t>(0)), number = launch.get<size_t>(2), of_batch = launch.get<size_t>(3);
  size_t stride = launch.get<size_t>(4), axes = launch.get<size_t>(5);
  Numbers indices(launch.get<void*>(7), launch.type(0)), output(launch.get<void*>(8), Kind::i64);
  return [=] {
    for (size_t slice = 0; slice < number; slice++) {
      long offset = long(slice / of_batch * stride);
      for (size_t axis = 0; axis < axes; axis++) {
        long index = long(indices[slice * axes + axis]);
        offset += (index < 0 ? index + sizes.items[before + axis] : index) * strides.items[axis];
      }
      output.set(slice, offset);
    }
  };
}

Work gather_slices(const Launch& launch) {
  // <type>(slices, input, output, size of a slice, where slices begin)
  size_t number = launch.get<size_t>(0), size = launch.get<size_t>(3);
  Numbers input(launch.get<void*>(1), launch.type(0)), output(launch.get<void*>(2), launch.type(0)), begins(launch.get<void*>(4), Kind::i64);
  return [=] {
    for (size_t at = 0; at < number * size; at++) output.set(at, input[size_t(begins[at / size]) + at % size]);
  };
}

// How GatherElements says where an output's row begins in its input. Of rank 2, or of any.
struct Offsets2 {
  Divisor row;
  int input_row;
  Few<int32_t> strides;
};
struct Offsets {
  int rank;
  Few<Divisor> shape;
  Few<int32_t> input_strides;
  Few<int32_t> strides;
};

Work gather_elements(const Launch& launch) {
  // <type, index, gathers, offsets, assignment>(input, indices, output, bound, stride, offsets, assignment, N)
  if (launch.type(2) != "true" || launch.name.find("FuncAssignment") == std::string::npos) return {};
  Numbers input(launch.get<void*>(0), launch.type(0)), output(launch.get<void*>(2), launch.type(0));
  Numbers indices(launch.get<void*>(1), launch.type(1));
  long bound = launch.get<int64_t>(3), stride = launch.get<int64_t>(4);
  int number = launch.get<int>(7);
  std::function<size_t(long)> begin;
  if (launch.type(3).find("OffsetCalculatorFor2D<") != std::string::npos) {
    bool outer = launch.type(3).find("For2D<true") != std::string::npos;
    if (launch.type(3).find(", true>") != std::string::npos) return {};
    auto offsets = launch.get<Offsets2>(5);
    begin = [=](long at) { return size_t(outer ? at % offsets.row.value : at / offsets.row.value * offsets.input_row); };
  } else {
    if (launch.type(3).find("<true>") != std::string::npos) return {};
    auto offsets = launch.get<Offsets>(5);
    begin = [=](long at) {
      long offset = 0;
      for (int axis = 0; axis < offsets.rank; axis++) {
        offset += at / offsets.shape.items[axis].value * offsets.input_strides.items[axis];
        at %= offsets.shape.items[axis].value;
      }
      return size_t(offset);
    };
  }
  return [=] {
    for (long at = 0; at < number; at++) {
      long index = long(indices[at]);
      if (index < 0) index += bound;
      output.set(at, input[begin(at) + size_t(index * stride)]);
    }
  };
}

Work slice(const Launch& launch) {
  // <grows, axes, type>(starts, steps, strides of the input, strides of the output, input, output, N)
  if (launch.type(0) != "false") return {};
  int axes = std::stoi(launch.type(1)), number = launch.get<int>(6);
  auto starts = launch.get<Few<int64_t>>(0), steps = launch.get<Few<int64_t>>(1), strides = launch.get<Few<int64_t>>(2);
  auto shape = launch.get<Few<Divisor>>(3);
  Numbers input(launch.get<void*>(4), launch.type(2)), output(launch.get<void*>(5), launch.type(2));
  return [=] {
    for (long at = 0; at < number; at++) {
      long offset = 0, rest = at;
      for (int axis = 0; axis < axes; axis++) {
        long divisor = axis < axes - 1 ? shape.items[axis].value : 1;
        offset += (starts.items[axis] + rest / divisor * steps.items[axis]) * (axis < axes - 1 ? strides.items[axis] : 1);
        rest %= divisor;
      }
      output.set(at, input[size_t(offset)]);
    }
  };
}

Work pad(const Launch& launch) {
  // <type, mode 0>(channels, _, height, height out, width, width out, top, left, value, input, output, N)
  if (launch.type(1) != "0") return {};
  long height = launch.get<int64_t>(2), height_out = launch.get<int64_t>(3);
  long width = launch.get<int64_t>(4), width_out = launch.get<int64_t>(5);
  long top = launch.get<int64_t>(6), left = launch.get<int64_t>(7);
  if (launch.type(0) != "float" && launch.type(0) != "__half") return {};
  Wide value = launch.type(0) == "float" ? launch.get<float>(8) : launch.get<_Float16>(8);
  Numbers input(launch.get<void*>(9), launch.type(0)), output(launch.get<void*>(10), launch.type(0));
  long number = launch.get<int64_t>(11);
  return [=] {
    for (long at = 0; at < number; at++) {
      long column = at % width_out - left, row = at / width_out % height_out - top, image = at / width_out / height_out;
      bool inside = row >= 0 && column >= 0 && row < height && column < width;
      output.set(at, inside ? input[size_t((image * height + row) * width + column)] : value);
    }
  };
}

}  // namespace

Work moving(const Launch& launch) {
  const std::string& base = launch.base;
  if (base == "_Fill" || base == "_FillFromDataPtrKernel") return fill(launch);
  if (base == "ExpandKernel2D") return expand(launch);
  if (base == "BroadcastBiasKernel") return broadcast_bias(launch);
  if (base == "ExpandKernel") return expand_any(launch);
  if (base == "RangeKernel") return range(launch);
  if (base == "_GatherKernel") return gather(launch);
  if (base == "_ComputeSliceOffsetsKernel") return slice_offsets(launch);
  if (base == "_GatherNDKernel") return gather_slices(launch);
  if (base == "_GatherScatterElementsKernel") return gather_elements(launch);
  if (base == "_SliceKernel") return slice(launch);
  if (base == "_PadNCHWInputWithPaddingAlongHAndWKernel") return pad(launch);
  return {};
}

}  // namespace standin
