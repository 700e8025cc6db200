// One output for one place of the inputs.
#include <algorithm>
#include <map>

#include "numbers.hpp"

namespace standin {

namespace {
using One = Wide (*)(Wide, float);
using Two = Wide (*)(Wide, Wide);

Wide gelu(Wide x) { return x * (1 + erfl(x / sqrtl(2))) / 2; }

// The second is the parameter that a functor may hold.
const std::map<std::string, One> kOnes = {
    {"OP_Abs", [](Wide x, float) -> Wide { return fabsl(x); }},
    {"OP_Cast", [](Wide x, float) -> Wide { return x; }},
    {"OP_Div", [](Wide x, float by) -> Wide { return x / by; }},
    {"OP_Erf", [](Wide x, float) -> Wide { return erfl(x); }},
    {"OP_Exp", [](Wide x, float) -> Wide { return expl(x); }},
    {"OP_Floor", [](Wide x, float) -> Wide { return floorl(x); }},
    {"OP_Gelu", [](Wide x, float) -> Wide { return gelu(x); }},
    {"OP_Log", [](Wide x, float) -> Wide { return logl(x); }},
    {"OP_Neg", [](Wide x, float) -> Wide { return -x; }},
    {"OP_Not", [](Wide x, float) -> Wide { return x == 0; }},
    {"OP_QuickGelu", [](Wide x, float alpha) -> Wide { return x / (1 + expl(-alpha * x)); }},
    {"OP_Reciprocal", [](Wide x, float) -> Wide { return 1 / x; }},
    {"OP_Relu", [](Wide x, float) -> Wide { return x > 0 ? x : 0; }},
    // Of what no int64 holds, the nearest. Of NaN, 0.
    {"OP_SaturatingCastFromDouble",
     [](Wide x, float) -> Wide { return std::isnan(x) ? 0 : std::clamp<Wide>(x, INT64_MIN, INT64_MAX); }},
    {"OP_Sigmoid", [](Wide x, float) -> Wide { return 1 / (1 + expl(-x)); }},
    {"OP_Sqrt", [](Wide x, float) -> Wide { return sqrtl(x); }},
    {"OP_Tanh", [](Wide x, float) -> Wide { return tanhl(x); }},
    {"_IsNan", [](Wide x, float) -> Wide { return std::isnan(x); }},
};
const std::map<std::string, Two> kTwos = {
    {"OP_Add", [](Wide x, Wide y) -> Wide { return x + y; }},
    {"OP_Sub", [](Wide x, Wide y) -> Wide { return x - y; }},
    {"OP_Mul", [](Wide x, Wide y) -> Wide { return x * y; }},
    {"OP_Div", [](Wide x, Wide y) -> Wide { return x / y; }},
    {"OP_Pow", [](Wide x, Wide y) -> Wide { return powl(x, y); }},
    {"OP_And", [](Wide x, Wide y) -> Wide { return x != 0 && y != 0; }},
    {"OP_Or", [](Wide x, Wide y) -> Wide { return x != 0 || y != 0; }},
    {"OP_Max", [](Wide x, Wide y) -> Wide { return x > y ? x : y; }},
    {"OP_Min", [](Wide x, Wide y) -> Wide { return x < y ? x : y; }},
    {"OP_Equal", [](Wide x, Wide y) -> Wide { return x == y; }},
    {"OP_Greater", [](Wide x, Wide y) -> Wide { return x > y; }},
    {"OP_GreaterOrEqual", [](Wide x, Wide y) -> Wide { return x >= y; }},
    {"OP_Less", [](Wide x, Wide y) -> Wide { return x < y; }},
    {"OP_LessOrEqual", [](Wide x, Wide y) -> Wide { return x <= y; }},
};

// onnxruntime::cuda::OP_Add<float, float, float> is OP_Add.
std::string operation(const std::string& type) {
  size_t end = type.find('<'), begin = type.rfind("::", end);
  begin = begin == std::string::npos ? 0 : begin + 2;
  return type.substr(begin, end - begin);
}

template <typename Map>
auto found(const Map& map, const std::string& type) -> typename Map::mapped_type {
  auto at = map.find(operation(type));
  return at == map.end() ? nullptr : at->second;
}

// Where an output's place lies in an input of other strides.
size_t strided(long place, int rank, const Few<Divisor>& output, const Few<int64_t>& strides) {
  size_t offset = 0;
  for (int axis = 0; axis < rank; axis++) {
    long divisor = output.items[axis].value;
    offset += size_t(place / divisor) * size_t(strides.items[axis]);
    place %= divisor;
  }
  return offset;
}

Work unary(const Launch& launch) {
  // (input, output, functor, N)
  One what = found(kOnes, launch.type(2));
  if (!what) return {};
  Numbers input(launch.get<void*>(0), launch.type(0)), output(launch.get<void*>(1), launch.type(1));
  std::string name = operation(launch.type(2));
  float parameter = name == "OP_QuickGelu" || (name == "OP_Div" && launch.type(0) == "float") ? launch.get<float>(2) : 0;
  if (name == "OP_Div" && launch.type(0) != "float") return {};
  long number = launch.get<int64_t>(3);
  return [=] {
    for (long at = 0; at < number; at++) output.set(at, what(input[at], parameter));
  };
}

Work binary(const Launch& launch, int types, const Numbers& left, const Numbers& right, const Numbers& output, long number,
            std::function<size_t(long)> left_place, std::function<size_t(long)> right_place) {
  Two what = found(kTwos, launch.type(types));
  if (!what) return {};
  return [=] {
    for (long at = 0; at < number; at++) output.set(at, what(left[left_place(at)], right[right_place(at)]));
  };
}

// Whether an input has a place for each output, one for all, or strides of its own.
enum class Spread { each, one, strides };
Spread spread_of(const std::string& type) { return Spread(type.back() - '0'); }

Work where(const Launch& launch) {
  const std::string type = launch.type(0);
  bool simple = launch.base == "_TenaryElementWiseSimple";
  // Simple: (condition, x, y, output, N). Else: (rank, then strides before each, strides of the output, output, N)
  auto pointer = [&](int index) { return launch.get<void*>(simple ? index : 2 + 2 * index); };
  Numbers inputs[] = {{pointer(0), Kind::u8}, {pointer(1), type}, {pointer(2), type}};
  Numbers output(launch.get<void*>(simple ? 3 : 8), type);
  int number = launch.get<int>(simple ? 4 : 9), rank = simple ? 0 : int(launch.get<size_t>(0));
  std::function<size_t(long)> places[3];
  for (int index = 0; index < 3; index++) {
    Spread spread = spread_of(launch.type(1 + index));
    if (spread == Spread::each) places[index] = [](long at) { return size_t(at); };
    if (spread == Spread::one) places[index] = [](long) { return size_t(0); };
    if (spread == Spread::strides) {
      auto strides = launch.get<Few<int64_t>>(1 + 2 * index);
      auto shape = launch.get<Few<Divisor>>(7);
      places[index] = [=](long at) { return strided(at, rank, shape, strides); };
    }
  }
  return [=, condition = inputs[0], x = inputs[1], y = inputs[2]] {
    for (long at = 0; at < number; at++)
      output.set(at, condition[places[0](at)] != 0 ? x[places[1](at)] : y[places[2](at)]);
  };
}

Work fast_gelu(const Launch& launch) {
  // [2]<type, threads>(a, b, c, N, size of the bias, input, bias, output): x (a + a tanh(x (c x x + b))). Of 2, all come in pairs.
  bool paired = launch.base.back() == '2';
  const std::string type = paired ? "__half" : launch.type(0);
  auto factor = [&](int index) { return Numbers(launch.arguments[index], type)[0]; };
  auto array = [&](int index) { return Numbers(launch.get<void*>(index), type); };
  Wide a = factor(0), b = factor(1), c = factor(2);
  long number = launch.get<int>(3) * (1 + paired), columns = launch.get<int>(4) * (1 + paired);
  Numbers input = array(5), bias = array(6), output = array(7);
  return [=] {
    for (long at = 0; at < number; at++) {
      Wide x = input[at] + (bias ? bias[at % columns] : 0);
      output.set(at, x * (a + a * tanhl(x * (c * x * x + b))));
    }
  };
}

Work clip(const Launch& launch) {
  // <type>(input, output, least, most, least by default, most by default, N)
  const std::string type = launch.type(0);
  auto array = [&](int index) { return Numbers(launch.get<void*>(index), type); };
  auto by_default = [&](int index) { return Numbers(launch.arguments[index], type)[0]; };
  Numbers input = array(0), output = array(1), least = array(2), most = array(3);
  Wide low = by_default(4), high = by_default(5);
  long number = launch.get<int64_t>(6);
  return [=] {
    for (long at = 0; at < number; at++)
      output.set(at, std::min(std::max(input[at], least ? least[0] : low), most ? most[0] : high));
  };
}

size_t same(long at) { return size_t(at); }
size_t first(long) { return 0; }
}  // namespace

Work elementwise(const Launch& launch) {
  const std::string& base = launch.base;
  if (base == "_UnaryElementWise") return unary(launch);
  if (base == "_TenaryElementWise" || base == "_TenaryElementWiseSimple") return where(launch);
  if (base == "FastGeluKernel" || base == "FastGeluKernel2") return fast_gelu(launch);
  if (base == "_Clip") return clip(launch);
  if (base == "_BinaryElementWiseSimple") {
    // <left moves, right moves, output, left, right, functor>(left, right, output, functor, N)
    Numbers left(launch.get<void*>(0), launch.type(3)), right(launch.get<void*>(1), launch.type(4));
    Numbers output(launch.get<void*>(2), launch.type(2));
    return binary(launch, 5, left, right, output, launch.get<int>(4), launch.type(0) == "true" ? same : first,
                  launch.type(1) == "true" ? same : first);
  }
  if (base == "_BinaryElementWiseRhsPerChannelBatch1" || base == "_BinaryElementWiseRhsPerChannelBatchN") {
    // <output, left, right, functor>(left, right, inner[, channels], output, functor, N)
    bool batched = base.back() == 'N';
    Numbers left(launch.get<void*>(0), launch.type(1)), right(launch.get<void*>(1), launch.type(2));
    Numbers output(launch.get<void*>(batched ? 4 : 3), launch.type(0));
    int inner = launch.get<Divisor>(2).value, channels = batched ? launch.get<Divisor>(3).value : 0;
    auto channel = [=](long at) { return size_t(batched ? at / inner % channels : at / inner); };
    return binary(launch, 3, left, right, output, launch.get<int>(batched ? 6 : 5), same, channel);
  }
  if (base == "_BinaryElementWise") {
    // <output, left, right, functor, left strides, right strides>(rank, strides, left, strides, right, output, ...)
    int rank = launch.get<int>(0);
    auto left_strides = launch.get<Few<int64_t>>(1), right_strides = launch.get<Few<int64_t>>(3);
    auto shape = launch.get<Few<Divisor>>(5);
    Numbers left(launch.get<void*>(2), launch.type(1)), right(launch.get<void*>(4), launch.type(2));
    Numbers output(launch.get<void*>(6), launch.type(0));
    bool left_strided = launch.type(4) == "true", right_strided = launch.type(5) == "true";
    auto left_place = [=](long at) { return left_strided ? strided(at, rank, shape, left_strides) : size_t(at); };
    auto right_place = [=](long at) { return right_strided ? strided(at, rank, shape, right_strides) : size_t(at); };
    return binary(launch, 3, left, right, output, launch.get<int>(8), left_place, right_place);
  }
  if (base == "VectorizedBiasGeluKernel" || base == "BiasGeluKernel") {
    // <type>(columns, input, bias, output): whole rows
    long columns = launch.get<int64_t>(0), rows = launch.grid.x;
    Numbers input(launch.get<void*>(1), launch.type(0)), bias(launch.get<void*>(2), launch.type(0));
    Numbers output(launch.get<void*>(3), launch.type(0));
    return [=] {
      for (long row = 0; row < rows; row++)
        for (long column = 0; column < columns; column++)
          output.set(row * columns + column, gelu(input[row * columns + column] + bias[column]));
    };
  }
  if (base == "FastGeluKernel2" || base == "FastGeluKernel") {
    // <[type]>(three constants, numbers, numbers of the bias, input, bias, output): the first in pairs of halves
    bool in_pairs = base == "FastGeluKernel2";
    const std::string type = in_pairs ? "__half" : launch.type(0);
    long numbers = launch.get<int>(3) * (in_pairs ? 2L : 1L), columns = launch.get<int>(4) * (in_pairs ? 2L : 1L);
    Numbers input(launch.get<void*>(5), type), bias(launch.get<void*>(6), type), output(launch.get<void*>(7), type);
    return [=] {
      for (long at = 0; at < numbers; at++) {
        Wide x = input[at] + (bias ? bias[at % columns] : 0);
        output.set(at, x / 2 * (1 + tanhl(sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x))));
      }
    };
  }
  return {};
}

}  // namespace standin
