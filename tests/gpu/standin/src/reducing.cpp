// Norms, softmax, sums and the best of a row.
#include <algorithm>
#include <numeric>
#include <vector>

#include "numbers.hpp"

namespace standin {

namespace {

Work layer_norm(const Launch& launch) {
  // <type, sums, output, RMS>(output, mean, deviation, input, rows, columns, epsilon, gamma, beta, _, skip, bias, sum)
  const std::string type = launch.type(0);
  bool is_rms = launch.type(3) == "true";
  Numbers output(launch.get<void*>(0), launch.type(2)), input(launch.get<void*>(3), type);
  Numbers mean_out(launch.get<void*>(1), launch.type(1)), deviation_out(launch.get<void*>(2), launch.type(1));
  int rows = launch.get<int>(4), columns = launch.get<int>(5);
  float epsilon = launch.get<float>(6);
  Numbers gamma(launch.get<void*>(7), launch.type(2)), beta(launch.get<void*>(8), launch.type(2));
  int broadcast = launch.get<int>(9);
  Numbers skip(launch.get<void*>(10), type), bias(launch.get<void*>(11), type), sum(launch.get<void*>(12), type);
  if (broadcast > 1) return {};
  return [=] {
    std::vector<Wide> row(columns);
    for (int r = 0; r < rows; r++) {
      Wide mean = 0, square = 0;
      for (int c = 0; c < columns; c++) {
        size_t at = size_t(r) * columns + c;
        row[c] = input[at] + (skip ? skip[at] : 0) + (bias ? bias[c] : 0);
        if (sum) sum.set(at, row[c]);
        mean += row[c] / columns;
        square += row[c] * row[c] / columns;
      }
      Wide variance = 0;
      for (Wide x : row) variance += (x - mean) * (x - mean) / columns;
      Wide scale = 1 / sqrtl((is_rms ? square : variance) + epsilon);
      for (int c = 0; c < columns; c++) {
        Wide value = (row[c] - (is_rms ? 0 : mean)) * scale * (gamma ? gamma[c] : 1) + (beta ? beta[c] : 0);
        output.set(size_t(r) * columns + c, value);
      }
      if (mean_out) mean_out.set(r, mean);
      if (deviation_out) deviation_out.set(r, scale);
    }
  };
}

Work skip_layer_norm(const Launch& launch) {
  // <type, _, _, RMS>(output, sum, input, skip, bias, gamma, beta, epsilon, columns, size of skip): a block is a row
  const std::string type = launch.type(0);
  bool is_rms = launch.types.find("true") != std::string::npos;
  auto array = [&](int index) { return Numbers(launch.get<void*>(index), type); };
  Numbers output = array(0), sum = array(1), input = array(2), skip = array(3), bias = array(4), gamma = array(5), beta = array(6);
  bool wide = launch.name.find("float, int, int)") != std::string::npos;
  Wide epsilon = wide ? Wide(launch.get<float>(7)) : Numbers(launch.arguments[7], type)[0];
  int columns = launch.get<int>(8), skipped = launch.get<int>(9), rows = int(launch.grid.x);
  return [=] {
    std::vector<Wide> row(columns);
    for (int r = 0; r < rows; r++) {
      Wide mean = 0, spread = 0;
      for (int c = 0; c < columns; c++) {
        size_t at = size_t(r) * columns + c;
        row[c] = input[at] + skip[at % skipped] + (bias ? bias[c] : 0);
        if (sum) sum.set(at, row[c]);
        mean += row[c] / columns;
      }
      if (is_rms) mean = 0;
      for (Wide x : row) spread += (x - mean) * (x - mean) / columns;
      for (int c = 0; c < columns; c++)
        output.set(size_t(r) * columns + c, (row[c] - mean) / sqrtl(spread + epsilon) * gamma[c] + (beta ? beta[c] : 0));
    }
  };
}

Work matrix_sum(const Launch& launch) {
  // Over rows: <type>(input, output, rows, columns). Over columns: <type>(rows, columns, input, output, ...)
  bool over_rows = launch.base == "reduce_matrix_rows_kernel";
  if (!over_rows && launch.types.find("Identity, ") == std::string::npos) return {};
  Numbers input(launch.get<void*>(over_rows ? 0 : 2), launch.type(0)), output(launch.get<void*>(over_rows ? 1 : 3), launch.type(1));
  int rows = launch.get<int>(over_rows ? 2 : 0), columns = launch.get<int>(over_rows ? 3 : 1);
  return [=] {
    for (int at = 0; at < (over_rows ? columns : rows); at++) {
      Wide total = 0;
      for (int each = 0; each < (over_rows ? rows : columns); each++)
        total += input[over_rows ? size_t(each) * columns + at : size_t(at) * columns + each];
      output.set(at, total);
    }
  };
}

void softmax_row(const Numbers& input, const Numbers& output, size_t from, size_t onto, int columns, bool logarithm) {
  Wide most = input[from], total = 0;
  for (int c = 1; c < columns; c++) most = std::max(most, input[from + c]);
  for (int c = 0; c < columns; c++) total += expl(input[from + c] - most);
  for (int c = 0; c < columns; c++) {
    Wide x = input[from + c] - most;
    output.set(onto + c, logarithm ? x - logl(total) : expl(x) / total);
  }
}

Work softmax(const Launch& launch) {
  if (launch.base == "softmax_block_forward") {
    // <_, input, sums, output, epilogue>(output, input, columns, stride in, stride out): a block is a row
    Numbers output(launch.get<void*>(0), launch.type(3)), input(launch.get<void*>(1), launch.type(1));
    int columns = launch.get<int>(2), from = launch.get<int>(3), onto = launch.get<int>(4), rows = int(launch.grid.x);
    bool logarithm = launch.type(4).find("LogSoftMax") != std::string::npos;
    return [=] {
      for (int r = 0; r < rows; r++) softmax_row(input, output, size_t(r) * from, size_t(r) * onto, columns, logarithm);
    };
  }
  // <input, output, sums, _, logarithm>(output, input, rows, stride, columns)
  Numbers output(launch.get<void*>(0), launch.type(1)), input(launch.get<void*>(1), launch.type(0));
  int rows = launch.get<int>(2), stride = launch.get<int>(3), columns = launch.get<int>(4);
  bool logarithm = launch.type(4) == "true";
  return [=] {
    for (int r = 0; r < rows; r++) softmax_row(input, output, size_t(r) * stride, size_t(r) * stride, columns, logarithm);
  };
}

Work biased_softmax(const Launch& launch) {
  // <input, output, sums, _, a bias serves neighbours>(output, input, bias, columns, rows, rows of a bias)
  Numbers output(launch.get<void*>(0), launch.type(1)), input(launch.get<void*>(1), launch.type(0));
  Numbers bias(launch.get<void*>(2), launch.type(0));
  int columns = launch.get<int>(3), rows = launch.get<int>(4), shared = launch.get<Divisor>(5).value;
  bool inner = launch.type(4) == "true";
  return [=] {
    std::vector<Wide> row(columns);
    for (int r = 0; r < rows; r++) {
      size_t of_bias = size_t(inner ? r / shared : r % shared) * columns, at = size_t(r) * columns;
      Wide most = -INFINITY, total = 0;
      for (int c = 0; c < columns; c++) most = std::max(most, row[c] = input[at + c] + bias[of_bias + c]);
      for (Wide& each : row) total += each = expl(each - most);
      for (int c = 0; c < columns; c++) output.set(at + c, row[c] / total);
    }
  };
}

Work best(const Launch& launch) {
  // <type>(input, values, places, shape, rank, axis, k[, aligned], largest, sorted, columns, ...): of the last axis
  bool bitonic = launch.base == "BitonicTopK";
  size_t rank = launch.get<size_t>(4);
  if (launch.get<int>(5) != int(rank) - 1) return {};
  Numbers input(launch.get<void*>(0), launch.type(0)), values(launch.get<void*>(1), launch.type(0));
  Numbers places(launch.get<void*>(2), Kind::i64);
  long k = launch.get<int64_t>(6);
  int next = bitonic ? 8 : 7;
  bool largest = launch.get<int64_t>(next) == 1;
  long columns = launch.get<int64_t>(next + 2), rows = launch.grid.x;
  return [=] {
    std::vector<size_t> order(columns);
    for (long r = 0; r < rows; r++) {
      std::iota(order.begin(), order.end(), 0);
      auto before = [&](size_t one, size_t other) {
        Wide x = input[size_t(r) * columns + one], y = input[size_t(r) * columns + other];
        return x == y ? one < other : (x > y) == largest;
      };
      std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
      for (long at = 0; at < k; at++) {
        values.set(size_t(r * k + at), input[size_t(r) * columns + order[at]]);
        places.set(size_t(r * k + at), Wide(order[at]));
      }
    }
  };
}

// The best of many columns are found in three kernels: those of each part of a row, the best of all parts, and what they
// are. Buffers hold [rows, parts, K].
struct Best {
  Wide score;
  long place;
};

// The K best of these, the lower place first where scores are equal, at the places of `row`.
void put_best(std::vector<Best> all, size_t row, long k, Numbers& scores, Numbers& places) {
  std::sort(all.begin(), all.end(), [](const Best& one, const Best& other) {
    return one.score == other.score ? one.place < other.place : one.score > other.score;
  });
  all.resize(k, Best{-INFINITY, INT32_MAX});
  for (long at = 0; at < k; at++) {
    scores.set(row * k + at, all[at].score);
    places.set(row * k + at, Wide(all[at].place));
  }
}

Work best_of_parts(const Launch& launch) {
  // <type, columns of a part, K>(input, scores, places, columns, parts)
  Numbers input(launch.get<void*>(0), launch.type(0)), scores(launch.get<void*>(1), Kind::f32);
  Numbers places(launch.get<void*>(2), Kind::i32);
  long width = std::stol(launch.type(1)), k = std::stol(launch.type(2)), rows = launch.grid.y;
  long columns = launch.get<int>(3), parts = launch.get<int>(4);
  return [=]() mutable {
    for (long part = 0; part < rows * parts; part++) {
      std::vector<Best> all;
      long first = part % parts * width;
      for (long c = first; c < std::min(first + width, columns); c++) all.push_back({input[part / parts * columns + c], c});
      put_best(std::move(all), part, k, scores, places);
    }
  };
}

Work best_of_all(const Launch& launch) {
  // <K, threads, three factors>(places, scores, other places, other scores, parts): a step for each factor over 1 divides the
  // parts by it, from one pair of buffers to the other
  long k = std::stol(launch.type(0)), parts = launch.get<int>(4), rows = launch.grid.y;
  int steps = 0;
  for (int factor : {2, 3, 4}) steps += launch.type(factor) != "1";
  Numbers places(launch.get<void*>(0), Kind::i32), scores(launch.get<void*>(1), Kind::f32);
  int end = steps % 2 ? 2 : 0;
  Numbers last_places(launch.get<void*>(end), Kind::i32), last_scores(launch.get<void*>(end + 1), Kind::f32);
  return [=]() mutable {
    // Row behind row: where the buffers are the same, a row ends before the parts of the next one begin.
    for (long row = 0; row < rows; row++) {
      std::vector<Best> all;
      for (long at = row * parts * k; at < (row + 1) * parts * k; at++) all.push_back({scores[at], long(places[at])});
      put_best(std::move(all), row, k, last_scores, last_places);
    }
  };
}

Work what_is_best(const Launch& launch) {
  // <type>(input, places, values, places of the answer, rows, columns, K, K). Of fewer there are other kernels.
  if (launch.get<int>(6) != launch.get<int>(7)) return {};
  Numbers input(launch.get<void*>(0), launch.type(0)), places(launch.get<void*>(1), Kind::i32);
  Numbers values(launch.get<void*>(2), launch.type(0)), found(launch.get<void*>(3), Kind::i64);
  long rows = launch.get<int>(4), columns = launch.get<int>(5), k = launch.get<int>(6);
  return [=]() mutable {
    for (long at = 0; at < rows * k; at++) {
      long place = long(places[at]);
      values.set(at, input[at / k * columns + place]);
      found.set(at, Wide(place));
    }
  };
}

struct Sums {
  int outputs, reductions;  // how many axes, after neighbours are joined
  int64_t output_sizes[16], output_strides[16], reduction_sizes[16], reduction_strides[16];
  int64_t output_count, reduction_count;
};

size_t place(long at, int axes, const int64_t* sizes, const int64_t* strides) {
  size_t offset = 0;
  for (int axis = axes - 1; axis >= 0; axis--) {
    offset += size_t(at % sizes[axis]) * size_t(strides[axis]);
    at /= sizes[axis];
  }
  return offset;
}

Work sum(const Launch& launch) {
  Numbers input(launch.get<void*>(0), launch.type(0)), output(launch.get<void*>(1), launch.type(0));
  auto sums = launch.get<Sums>(2);
  return [=] {
    for (long at = 0; at < sums.output_count; at++) {
      size_t begin = place(at, sums.outputs, sums.output_sizes, sums.output_strides);
      Wide total = 0;
      for (long each = 0; each < sums.reduction_count; each++)
        total += input[begin + place(each, sums.reductions, sums.reduction_sizes, sums.reduction_strides)];
      output.set(at, total);
    }
  };
}

Work running_sum(const Launch& launch) {
  // Of any type: (input, columns, stride, output, size, exclusive, reverse). Of int64: (input, output, columns, stride,
  // exclusive, reverse), a block for each sum. Columns are along the axis, and a stride apart.
  bool blocks = launch.base == "_CumSumInt64BlockKernel";
  Kind kind = blocks ? Kind::i64 : kind_of(launch.type(0));
  Numbers input(launch.get<void*>(0), kind), output(launch.get<void*>(blocks ? 1 : 3), kind);
  long columns = blocks ? launch.get<int>(2) : launch.get<Divisor>(1).value;
  long stride = blocks ? launch.get<int>(3) : launch.get<Divisor>(2).value;
  bool exclusive = launch.get<bool>(blocks ? 4 : 5), reverse = launch.get<bool>(blocks ? 5 : 6);
  long rows = blocks ? launch.grid.x : launch.get<int64_t>(4) / columns;
  return [=] {
    for (long row = 0; row < rows; row++) {
      Wide total = 0;
      for (long each = 0; each < columns; each++) {
        size_t at = size_t(row / stride * columns + (reverse ? columns - 1 - each : each)) * stride + row % stride;
        Wide next = total + input[at];
        output.set(at, exclusive ? total : next);
        total = next;
      }
    }
  };
}

}  // namespace

Work reducing(const Launch& launch) {
  const std::string& base = launch.base;
  if (base == "cuApplyLayerNorm") return layer_norm(launch);
  if (base == "softmax_block_forward" || base == "softmax_warp_forward") return softmax(launch);
  if (base == "BiasSoftmaxWarpForward") return biased_softmax(launch);
  if (base == "RadixTopK" || base == "BitonicTopK") return best(launch);
  if (base == "FindPartitionTopK") return best_of_parts(launch);
  if (base == "CooperativeReduce") return best_of_all(launch);
  if (base == "WriteOutput") return what_is_best(launch);
  if (base == "SkipLayerNormKernelSmall" || base == "SkipLayerNormKernel") return skip_layer_norm(launch);
  if (base == "reduce_matrix_rows_kernel" || base == "reduce_matrix_columns_kernel") return matrix_sum(launch);
  if (base == "reduce_sum_nd_kernel") return sum(launch);
  if (base == "_CumSumKernel" || base == "_CumSumInt64BlockKernel") return running_sum(launch);
  return {};
}

}  // namespace standin
