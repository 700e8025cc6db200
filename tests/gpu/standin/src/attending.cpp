// Attention, as the provider computes it without a fused kernel: lengths, rotation and append, masked softmax. The products
// are cuBLAS's.
#include <algorithm>
#include <vector>

#include "numbers.hpp"

namespace standin {

namespace {

Work lengths(const Launch& launch) {
  // (totals less one, past, total, padded, of a window: past, total, evicted; batch, seq, is the first prompt, ...)
  Numbers given(launch.get<void*>(0), Kind::i32), past(launch.get<void*>(1), Kind::i32);
  Numbers total(launch.get<void*>(2), Kind::i32), padded(launch.get<void*>(3), Kind::i32);
  if (launch.get<void*>(4)) return {};  // a cache of a window
  int batch = launch.get<int>(7), length = launch.get<int>(8);
  bool first = launch.get<bool>(9);
  return [=] {
    for (int b = 0; b < batch; b++) {
      Wide all = std::max(given[b], Wide(0)) + 1;
      total.set(b, all);
      past.set(b, first ? 0 : std::max(all - length, Wide(0)));
      if (padded) padded.set(b, first ? length : 0);
    }
  };
}

struct Append {
  Numbers packed, query, key, value, query_out, key_cache, value_cache, cosines, sines, positions, query_norm, key_norm;
  Numbers past;
  int heads, kv_heads, width, row, capacity, rotated, batch, length;
  bool interleaved, heads_first;
  float epsilon;

  Wide read(int b, int s, int head, int h) const {
    size_t token = size_t(b) * length + s;
    if (packed) return packed[token * row + size_t(head) * width + h];
    if (head < heads) return query[(token * heads + head) * width + h];
    int n = (head - heads) % kv_heads;
    return (head < heads + kv_heads ? key : value)[(token * kv_heads + n) * width + h];
  }

  void normalize(std::vector<Wide>& x, const Numbers& gamma) const {
    Wide square = 0;
    for (Wide each : x) square += each * each / width;
    for (int h = 0; h < width; h++) x[h] *= gamma[h] / sqrtl(square + epsilon);
  }

  void rotate(std::vector<Wide>& x, long position) const {
    int half = rotated / 2;
    std::vector<Wide> old = x;
    for (int pair = 0; pair < half; pair++) {
      int one = interleaved ? 2 * pair : pair, other = interleaved ? 2 * pair + 1 : pair + half;
      Wide cosine = cosines[size_t(position) * half + pair], sine = sines[size_t(position) * half + pair];
      x[one] = old[one] * cosine - old[other] * sine;
      x[other] = old[other] * cosine + old[one] * sine;
    }
  }

  void head(int b, int s, int index) const {
    std::vector<Wide> x(width);
    for (int h = 0; h < width; h++) x[h] = read(b, s, index, h);
    bool is_query = index < heads, is_value = index >= heads + kv_heads;
    if (!is_value && query_norm) normalize(x, is_query ? query_norm : key_norm);
    long before = long(past[b]);
    long position = positions ? long(positions[size_t(b) * length + s]) : before + s;
    if (!is_value && rotated > 0) rotate(x, position);
    if (is_query) {
      for (int h = 0; query_out && h < width; h++) query_out.set(((size_t(b) * length + s) * heads + index) * width + h, x[h]);
      return;
    }
    const Numbers& cache = is_value ? value_cache : key_cache;
    long n = (index - heads) % kv_heads, at = before + s;
    if (at >= capacity || !cache) return;
    size_t row_of = heads_first ? (size_t(b) * kv_heads + n) * capacity + at : (size_t(b) * capacity + at) * kv_heads + n;
    for (int h = 0; h < width; h++) cache.set(row_of * width + h, x[h]);
  }
};

Work append(const Launch& launch) {
  // <type, cache's type>(packed, query, key, value, query out, key cache, value cache, three scales; heads, kv heads, width,
  // row, capacity, capacity of positions; past, past of the cache, cosines, sines, rotated, positions, interleaved,
  // heads first, scales by channel, norms of query and key, epsilon)
  const std::string type = launch.type(0);
  bool has_scales = launch.get<void*>(7) || launch.get<void*>(8) || launch.get<void*>(9);
  if (launch.type(1) != type || has_scales) return {};
  auto array = [&](int index) { return Numbers(launch.get<void*>(index), type); };
  auto integer = [&](int index) { return launch.get<int>(index); };
  Append work{array(0), array(1), array(2), array(3), array(4), array(5), array(6), array(18), array(19),
              Numbers(launch.get<void*>(21), Kind::i64), array(25), array(26), Numbers(launch.get<void*>(16), Kind::i32),
              integer(10), integer(11), integer(12), integer(13), integer(14), integer(20), int(launch.grid.z),
              int(launch.grid.x), launch.get<bool>(22), launch.get<bool>(23), launch.get<float>(27)};
  return [work] {
    for (int b = 0; b < work.batch; b++)
      for (int s = 0; s < work.length; s++)
        for (int head = 0; head < work.heads + 2 * work.kv_heads; head++) work.head(b, s, head);
  };
}

Work masked_softmax(const Launch& launch) {
  // <type>(seq, total, heads, scores, bias, has it, its batch and its heads are one, lengths, causal, window, past, scale,
  // softcap, output): a block is a row
  const std::string type = launch.type(0);
  int length = launch.get<int>(0), total = launch.get<int>(1), heads = launch.get<int>(2);
  Numbers scores(launch.get<void*>(3), Kind::f32), bias(launch.get<void*>(4), type), output(launch.get<void*>(15), type);
  bool has_bias = launch.get<bool>(5), one_batch = launch.get<bool>(6), one_head = launch.get<bool>(7);
  Numbers known(launch.get<void*>(8), Kind::i32);
  bool causal = launch.get<bool>(9);
  int window = launch.get<int>(10), given_past = launch.get<int>(11), batch = int(launch.grid.y);
  float scale = launch.get<float>(12), softcap = launch.get<float>(13);
  return [=] {
    std::vector<Wide> row(total);
    for (int b = 0; b < batch; b++)
      for (int n = 0; n < heads; n++)
        for (int q = 0; q < length; q++) {
          int end = known ? std::clamp(int(known[b]), 0, total) : total;
          int position = (known ? end - length : given_past) + q;
          if (causal) end = std::clamp(position + 1, 0, end);
          int start = window >= 0 ? std::clamp(position - window, 0, end) : 0;
          size_t at = ((size_t(b) * heads + n) * length + q) * total;
          size_t bias_at = ((size_t(one_batch ? 0 : b) * (one_head ? 1 : heads) + (one_head ? 0 : n)) * length + q) * total;
          Wide most = -INFINITY, sum = 0;
          for (int k = start; k < end; k++) {
            row[k] = scores[at + k] * scale;
            if (softcap > 0) row[k] = softcap * tanhl(row[k] / softcap);
            if (has_bias) row[k] += bias[bias_at + k];
            most = std::max(most, row[k]);
          }
          for (int k = start; k < end; k++) sum += expl(row[k] - most);
          for (int k = 0; k < total; k++) {
            bool seen = k >= start && k < end && most > -INFINITY;
            output.set(at + k, seen ? expl(row[k] - most) / sum : 0);
          }
        }
  };
}

Work encoder_softmax(const Launch& launch, bool masked) {
  // <type>(total, seq[, ends, starts], bias, its batch and its heads are one, scores, output, causal): a block is a row
  const std::string type = launch.type(0);
  int total = launch.get<int>(0), length = launch.get<int>(1), batch = int(launch.grid.y), rows = int(launch.grid.x);
  int next = masked ? 4 : 2;
  Numbers ends(masked ? launch.get<void*>(2) : nullptr, Kind::i32), starts(masked ? launch.get<void*>(3) : nullptr, Kind::i32);
  Numbers bias(launch.get<void*>(next), type), scores(launch.get<void*>(next + 3), type), output(launch.get<void*>(next + 4), type);
  bool one_batch = launch.get<bool>(next + 1), one_head = launch.get<bool>(next + 2), causal = launch.get<bool>(next + 5);
  return [=] {
    for (int b = 0; b < batch; b++)
      for (int row = 0; row < rows; row++) {
        int start = starts ? std::max(int(starts[b]), 0) : 0, end = ends ? std::min(int(ends[b]), total) : total;
        if (start >= end) start = 0, end = total;
        if (causal) end = std::min(end, total - length + row % length + 1);
        size_t at = (size_t(b) * rows + row) * total;
        size_t bias_at = (size_t(one_batch ? 0 : b) * (one_head ? length : rows) + (one_head ? row % length : row)) * total;
        auto score = [&](int k) { return scores[at + k] + (bias ? bias[bias_at + k] : 0); };
        Wide most = -INFINITY, sum = 0;
        for (int k = start; k < end; k++) most = std::max(most, score(k));
        for (int k = start; k < end; k++) sum += expl(score(k) - most);
        std::vector<Wide> shares(total);
        for (int k = start; k < end; k++) shares[k] = expl(score(k) - most) / sum;
        for (int k = 0; k < total; k++) output.set(at + k, shares[k]);
      }
  };
}

}  // namespace

Work attending(const Launch& launch) {
  const std::string& base = launch.base;
  if (base == "GetSequenceLengths") return lengths(launch);
  if (base == "UnpackRoPEAppend") return append(launch);
  if (base == "MaskedSoftmaxKernelSmall") return encoder_softmax(launch, true);
  if (base == "SoftmaxKernelSmall") return encoder_softmax(launch, false);
  if (base == "UnfusedSoftmaxKernel") return masked_softmax(launch);
  return {};
}

}  // namespace standin
