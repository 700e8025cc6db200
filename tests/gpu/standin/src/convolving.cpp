// Graphs of cuDNN's backend: a convolution of pictures is written down. Any other graph is counted as not emulated.
#include <map>
#include <memory>
#include <vector>

#include "dnn.hpp"

using namespace standin;

namespace {

// cudnnBackendDescriptorType_t, cudnnBackendAttributeType_t and cudnnBackendAttributeName_t, as far as they are read here.
enum { kConvolutionForward = 10 };
enum { kHandle = 0, kBoolean = 2, kInt64 = 3, kDouble = 5, kPointer = 6, kDescriptor = 15, kCharacter = 24, kFraction = 26 };
enum {
  kMode = 101,
  kDilations = 102,
  kFilterStrides = 103,
  kPrePaddings = 105,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kPlanConfig = 401,
  kAlpha = 700,
  kBeta = 701,
  kConvolution = 702,
  kW = 703,
  kX = 704,
  kY = 705,
  kOperations = 801,
  kDataType = 901,
  kSizes = 902,
  kStrides = 903,
  kId = 906,
  kIsVirtual = 907,
  kIds = 1000,
  kPointers = 1001,
};

size_t bytes_of(int type) {
  switch (type) {
    case kBoolean:
    case kCharacter:
      return 1;
    case kHandle:
    case kInt64:
    case kDouble:
    case kPointer:
      return 8;
    case kFraction:
      return 16;
    default:
      return 4;
  }
}

// What a descriptor was given. Whoever was given the descriptor holds this, also after the descriptor is destroyed.
struct Given {
  int type;
  std::map<int, std::string> values;
  std::map<int, std::vector<std::shared_ptr<Given>>> others;

  template <typename T>
  std::vector<T> all(int name) const {
    auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> items(found->second.size() / sizeof(T));
    memcpy(items.data(), found->second.data(), items.size() * sizeof(T));
    return items;
  }
  std::shared_ptr<Given> other(int name) const {
    auto found = others.find(name);
    return found == others.end() || found->second.size() != 1 ? nullptr : found->second[0];
  }
  // A factor: float or double.
  double factor(int name) const {
    auto found = values.find(name);
    if (found == values.end()) return NAN;
    return found->second.size() == 8 ? all<double>(name)[0] : double(all<float>(name)[0]);
  }
};
struct Descriptor {
  std::shared_ptr<Given> given;
};

// A tensor of a graph, [batch, channels, height, width], in float32.
struct Picture {
  Numbers numbers{nullptr, Kind::f32};
  std::vector<int64_t> sizes, strides;

  Picture(const Given& tensor, const std::map<int64_t, void*>& pointers) : sizes(tensor.all<int64_t>(kSizes)), strides(tensor.all<int64_t>(kStrides)) {
    auto is_virtual = tensor.all<char>(kIsVirtual);
    auto pointer = pointers.find(tensor.all<int64_t>(kId).at(0));
    if (pointer != pointers.end() && !(is_virtual.size() && is_virtual[0]))
      numbers = Numbers(pointer->second, kind_of_data(tensor.all<int>(kDataType).at(0)));
  }
  bool fits() const { return bool(numbers) && sizes.size() == 4; }
  size_t place(long a, long b, long c, long d) const { return size_t(a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]); }
  std::vector<float> unpacked() const {
    std::vector<float> values;
    for (long a = 0; a < sizes[0]; a++)
      for (long b = 0; b < sizes[1]; b++)
        for (long c = 0; c < sizes[2]; c++)
          for (long d = 0; d < sizes[3]; d++) values.push_back(float(numbers[place(a, b, c, d)]));
    return values;
  }
};

// Each output is the sum over a window of its group's channels. Sums are of float32.
struct Convolution {
  Picture x, w, y;
  std::vector<int64_t> strides, dilations, pads;

  float sum(const std::vector<float>& from, const std::vector<float>& weights, long image, long channel, long row, long column) const {
    long group = channel / (w.sizes[0] / (x.sizes[1] / w.sizes[1]));
    float total = 0;
    for (long c = 0; c < w.sizes[1]; c++)
      for (long i = 0; i < w.sizes[2]; i++)
        for (long j = 0; j < w.sizes[3]; j++) {
          long at = row * strides[0] - pads[0] + i * dilations[0], across = column * strides[1] - pads[1] + j * dilations[1];
          if (at < 0 || across < 0 || at >= x.sizes[2] || across >= x.sizes[3]) continue;
          size_t source = ((image * x.sizes[1] + group * w.sizes[1] + c) * x.sizes[2] + at) * x.sizes[3] + across;
          total += from[source] * weights[((channel * w.sizes[1] + c) * w.sizes[2] + i) * w.sizes[3] + j];
        }
    return total;
  }

  void operator()() const {
    std::vector<float> from = x.unpacked(), weights = w.unpacked();
    for (long image = 0; image < y.sizes[0]; image++)
      for (long channel = 0; channel < y.sizes[1]; channel++)
        for (long row = 0; row < y.sizes[2]; row++)
          for (long column = 0; column < y.sizes[3]; column++)
            y.numbers.set(y.place(image, channel, row, column), sum(from, weights, image, channel, row, column));
  }
};

// The work of a plan on these pointers, or nothing.
Work planned(const Given& plan, const Given& pack) {
  auto config = plan.other(kPlanConfig);
  auto graph = config ? config->other(kHeuristicGraph) : nullptr;
  auto operation = graph ? graph->other(kOperations) : nullptr;
  if (!operation || operation->type != kConvolutionForward || operation->factor(kAlpha) != 1 || operation->factor(kBeta) != 0) return {};
  std::map<int64_t, void*> pointers;
  auto ids = pack.all<int64_t>(kIds);
  auto places = pack.all<void*>(kPointers);
  for (size_t at = 0; at < ids.size() && at < places.size(); at++) pointers[ids[at]] = places[at];
  auto how = operation->other(kConvolution), x = operation->other(kX), w = operation->other(kW), y = operation->other(kY);
  if (!how || !x || !w || !y || how->all<int>(kMode) != std::vector<int>{1}) return {};
  Convolution work{{*x, pointers}, {*w, pointers}, {*y, pointers}, how->all<int64_t>(kFilterStrides), how->all<int64_t>(kDilations), how->all<int64_t>(kPrePaddings)};
  bool fits = work.x.fits() && work.w.fits() && work.y.fits() && work.strides.size() == 2 && work.dilations.size() == 2 && work.pads.size() == 2;
  return fits ? Work(work) : Work();
}

}  // namespace

extern "C" {

int cudnnBackendCreateDescriptor(int type, Descriptor** made) {
  *made = new Descriptor{std::make_shared<Given>()};
  (*made)->given->type = type;
  return 0;
}
int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, int64_t count, const void* items) {
  Given& given = *descriptor->given;
  if (type != kDescriptor) {
    given.values[name] = std::string(static_cast<const char*>(items), size_t(count) * bytes_of(type));
    return 0;
  }
  auto& others = given.others[name];
  others.clear();
  for (int64_t at = 0; at < count; at++) others.push_back(static_cast<Descriptor* const*>(items)[at]->given);
  return 0;
}
// There is one engine for any graph. It is told the graph, and all else that is asked is 0.
int cudnnBackendGetAttribute(Descriptor* descriptor, int name, int type, int64_t asked, int64_t* count, void* out) {
  bool is_wide = type == kInt64 || type == kDouble || type == kPointer;
  if (out && asked && type != kDescriptor) memset(out, 0, is_wide ? 8 : asked == 1 ? 4 : 0);
  if (out && name == kHeuristicResults)
    for (int64_t at = 0; at < asked; at++)
      static_cast<Descriptor**>(out)[at]->given->others[kHeuristicGraph] = descriptor->given->others[kHeuristicGraph];
  if (count) *count = is_wide || type == kDescriptor ? (asked ? asked : 1) : asked == 1;
  return 0;
}
int cudnnBackendExecute(Handle* handle, Descriptor* plan, Descriptor* pack) {
  if (Work work = planned(*plan->given, *pack->given)) return issue(handle, "convolution", work);
  standin_unemulated(handle->stream, "cudnnBackendExecute");
  return 0;
}

}  // extern "C"
