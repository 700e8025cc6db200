// Attention over a cache in blocks: lengths, rotation, what goes where, and flash attention, which reads blocks by a table.
#include <algorithm>
#include <vector>

#include "numbers.hpp"

namespace standin {

namespace {

Work lengths(const Launch& launch) {
  // (sums of the keys' lengths, sums of the queries', past, rows)
  auto array = [&](int index) { return Numbers(launch.get<void*>(index), Kind::i32); };
  Numbers sums(array(0)), queries(array(1)), past(array(2));
  int rows = launch.get<int>(3);
  return [=] {
    sums.set(0, 0);
    for (int b = 0; b < rows; b++) sums.set(b + 1, sums[b] + past[b] + queries[b + 1] - queries[b]);
  };
}

struct Strides {
  int token, head, element;
};

// The norm of each head of queries or of keys, and its rotation.
struct Turn {
  Numbers output, input, cosines, sines, past, queries, gain;
  float epsilon;
  int rows, heads, width, rotated;
  bool interleaved;
  Strides from, to;

  void head(int b, int token, int n) const {
    std::vector<Wide> x(width);
    for (int h = 0; h < width; h++) x[h] = input[size_t(token) * from.token + n * from.head + h];
    if (gain) {
      Wide square = 0;
      for (Wide each : x) square += each * each / width;
      for (int h = 0; h < width; h++) x[h] *= gain[h] / sqrtl(square + epsilon);
    }
    std::vector<Wide> old = x;
    int half = rotated / 2;
    size_t at = half ? size_t(past[b] + token - queries[b]) * half : 0;
    for (int pair = 0; pair < half; pair++) {
      int one = interleaved ? 2 * pair : pair, other = interleaved ? 2 * pair + 1 : pair + half;
      x[one] = old[one] * cosines[at + pair] - old[other] * sines[at + pair];
      x[other] = old[other] * cosines[at + pair] + old[one] * sines[at + pair];
    }
    for (int h = 0; h < width; h++) output.set(size_t(token) * to.token + n * to.head + h, x[h]);
  }
};

Work turn(const Launch& launch) {
  // <type>(output, input, cosines, sines, past, sums of the queries' lengths, gain, epsilon, rows, width, rotated, where
  // rotation begins, interleaved, strides of input and of output)
  const std::string type = launch.type(0);
  auto array = [&](int index) { return Numbers(launch.get<void*>(index), type); };
  if (launch.get<int>(11)) return {};
  Turn work{array(0), array(1), array(2), array(3), Numbers(launch.get<void*>(4), Kind::i32),
            Numbers(launch.get<void*>(5), Kind::i32), array(6), launch.get<float>(7), launch.get<int>(8),
            int(launch.grid.y), launch.get<int>(9), launch.get<int>(10), launch.get<bool>(12), launch.get<Strides>(13),
            launch.get<Strides>(14)};
  return [work] {
    for (int b = 0; b < work.rows; b++)
      for (int token = int(work.queries[b]); token < work.queries[b + 1]; token++)
        for (int n = 0; n < work.heads; n++) work.head(b, token, n);
  };
}

Work unpack(const Launch& launch) {
  // <type>(input, output, tokens, width, width of a packed token)
  const std::string type = launch.type(0);
  Numbers input(launch.get<void*>(0), type), output(launch.get<void*>(1), type);
  int tokens = launch.get<int>(2), width = launch.get<int>(3), packed = launch.get<int>(4);
  return [=] {
    for (int token = 0; token < tokens; token++)
      for (int h = 0; h < width; h++) output.set(size_t(token) * width + h, input[size_t(token) * packed + h]);
  };
}

// What a level of a rounded cache stands for: one number for all, or one for each channel. Without them nothing is rounded.
struct Scales {
  Numbers scales;
  bool by_channel;

  Scales(const Launch& launch, int pointer, int flag)
      : scales(launch.get<void*>(pointer), Kind::f32), by_channel(launch.get<bool>(flag)) {}
  Wide operator[](int channel) const { return scales ? scales[by_channel ? channel : 0] : 1; }
  Wide level(Wide value, int channel) const {
    if (!scales) return value;
    return std::min<Wide>(std::max<Wide>(rintl(value / (*this)[channel]), -128), 127);
  }
};

Work store(const Launch& launch) {
  // <type, cache's type, who knows the places>(keys, values, their caches, their scales, two scales by channel, places, numbers
  // in all, width, strides of keys and of values, places in all)
  const std::string type = launch.type(0);
  const std::string kept = launch.type(1);
  bool is_told = launch.type(2).find("ExplicitSlotResolver") != std::string::npos;
  if ((kept != type && kept != "signed char") || !is_told) return {};
  auto array = [&](int index, const std::string& of) { return Numbers(launch.get<void*>(index), of); };
  Numbers keys(array(0, type)), values(array(1, type)), key_cache(array(2, kept)), value_cache(array(3, kept));
  Scales key_scales(launch, 4, 6), value_scales(launch, 5, 7);
  Numbers slots(launch.get<void*>(8), Kind::i32);
  long numbers = launch.get<long>(9), all = launch.get<long>(13);
  int width = launch.get<int>(10), key_stride = launch.get<int>(11), value_stride = launch.get<int>(12);
  return [=] {
    for (long token = 0; token < numbers / width; token++) {
      long slot = long(slots[token]);
      if (slot < 0 || slot >= all) continue;
      for (int h = 0; h < width; h++) {
        key_cache.set(slot * width + h, key_scales.level(keys[token * key_stride + h], h));
        value_cache.set(slot * width + h, value_scales.level(values[token * value_stride + h], h));
      }
    }
  };
}

// What flash attention is given (Flash_fwd_params in ONNX Runtime's flash.h): seen in 1.31.1 as these words.
struct Flash {
  void *query, *key, *value;
  long query_batch, key_batch, value_batch, query_row, key_row, value_row, query_head, key_head, value_head;
  int heads, kv_heads, group;
  void *output, *partial_output;
  long output_batch, output_row, output_head;
  void *scores, *sums, *partial_sums;
  int rows, most_queries, most_keys, new_keys, width, more[4], tokens;
  float scale, scale_log2, softcap;
  int *query_sums, *key_sums, *used, *mask;
  void* fresh[2];
  long fresh_strides[6];
  void* rotation[2];
  int *cache_rows, *table;
  long table_row;
  int block_tokens, left, right;
  bool is_bf16, is_causal, is_cumulative, is_interleaved;
  int splits;
};

struct Attend {
  Flash given;
  Numbers query, key, value, output, query_sums, key_sums, table;

  size_t place(int b, long position, long batch, long row) const {
    if (!given.table) return (size_t(key_sums[b]) + position) * row;
    long block = long(table[size_t(b) * given.table_row + position / given.block_tokens]);
    return size_t(block) * batch + size_t(position % given.block_tokens) * row;
  }

  void head(int b, long first, long total, long position, int n) const {
    long token = long(query_sums[b]) + position - first;
    long start = given.left >= 0 ? std::max(position - given.left, 0L) : 0;
    long end = given.is_causal || given.right >= 0 ? std::min(position + std::max(given.right, 0) + 1, total) : total;
    // Of a row that is longer than its caller said, a kernel may leave keys out.
    end = std::min(end, long(given.most_keys));
    size_t asks = size_t(token) * given.query_row + size_t(n) * given.query_head;
    int kept = n / given.group;
    std::vector<Wide> scores, mixed(given.width);
    Wide most = -INFINITY, sum = 0;
    for (long k = start; k < end; k++) {
      size_t at = place(b, k, given.key_batch, given.key_row) + size_t(kept) * given.key_head;
      Wide score = 0;
      for (int h = 0; h < given.width; h++) score += query[asks + h] * key[at + h];
      // With a cap, its caller gives the cap as the scale, and the scale over the cap beside it.
      scores.push_back(given.softcap > 0 ? given.scale * tanhl(score * given.softcap) : score * given.scale);
      most = std::max(most, scores.back());
    }
    for (Wide& score : scores) sum += score = expl(score - most);
    for (long k = start; k < end; k++) {
      size_t at = place(b, k, given.value_batch, given.value_row) + size_t(kept) * given.value_head;
      for (int h = 0; h < given.width; h++) mixed[h] += scores[k - start] / sum * value[at + h];
    }
    size_t to = size_t(token) * given.output_row + size_t(n) * given.output_head;
    for (int h = 0; h < given.width; h++) output.set(to + h, mixed[h]);
  }
};

Work attend(const Launch& launch) {
  // <traits, ...>(Flash)
  Flash given = launch.get<Flash>(0);
  bool is_known = given.query_sums && given.key_sums && given.is_cumulative && given.splits <= 1;
  if (!is_known || given.fresh[0] || given.rotation[0] || given.used) return {};
  Kind kind = given.is_bf16 ? Kind::bf16 : Kind::f16;
  auto integers = [](int* pointer) { return Numbers(pointer, Kind::i32); };
  Attend work{given, Numbers(given.query, kind), Numbers(given.key, kind), Numbers(given.value, kind), Numbers(given.output, kind),
              integers(given.query_sums), integers(given.key_sums), integers(given.table)};
  return [work] {
    for (int b = 0; b < work.given.rows; b++) {
      long total = long(work.key_sums[b + 1] - work.key_sums[b]);
      long first = total - long(work.query_sums[b + 1] - work.query_sums[b]);
      for (long position = first; position < total; position++)
        for (int n = 0; n < work.given.heads; n++) work.head(b, first, total, position, n);
    }
  };
}

// All that rows hold, one behind the other, as numbers again.
Work gather(const Launch& launch) {
  // <type, cache's type>(keys, values, wide keys, wide values, their scales, two scales by channel, table, sums of the keys'
  // lengths, rows, heads, kept heads, width, block's tokens, blocks of a row, numbers in all)
  const std::string type = launch.type(0);
  if (launch.type(1) != "signed char") return {};
  Numbers keys(launch.get<void*>(0), Kind::i8), values(launch.get<void*>(1), Kind::i8);
  Numbers wide_keys(launch.get<void*>(2), type), wide_values(launch.get<void*>(3), type);
  Scales key_scales(launch, 4, 6), value_scales(launch, 5, 7);
  Numbers table(launch.get<void*>(8), Kind::i32), sums(launch.get<void*>(9), Kind::i32);
  int rows = launch.get<int>(10), heads = launch.get<int>(11), kept = launch.get<int>(12), width = launch.get<int>(13);
  int block = launch.get<int>(14), blocks = launch.get<int>(15);
  long numbers = launch.get<long>(16);
  return [=] {
    for (int b = 0; b < rows; b++)
      for (long token = long(sums[b]); token < long(sums[b + 1]) && token < numbers / (heads * width); token++) {
        long place = token - long(sums[b]);
        long slot = long(table[size_t(b) * blocks + place / block]) * block + place % block;
        for (int n = 0; n < heads; n++)
          for (int h = 0; h < width; h++) {
            int channel = n / (heads / kept) * width + h;
            size_t from = size_t(slot) * kept * width + channel, to = (size_t(token) * heads + n) * width + h;
            wide_keys.set(to, keys[from] * key_scales[channel]);
            wide_values.set(to, values[from] * value_scales[channel]);
          }
      }
  };
}

// A row's levels as they lie. What a share of its places weighs goes to arrays that `reduce_rounded` puts together.
Work attend_rounded(const Launch& launch) {
  // <type, cache's type>(queries, keys, values, scales of keys, sums of the queries' lengths and of the keys', table, sums of
  // values, largest scores, sums of weights, rows, heads, kept heads, width, block's tokens, blocks of a row, tokens, shares,
  // scale, cap, window, scales by channel)
  if (launch.type(1) != "signed char") return {};
  auto integers = [&](int index) { return Numbers(launch.get<void*>(index), Kind::i32); };
  auto floats = [&](int index) { return Numbers(launch.get<void*>(index), Kind::f32); };
  Numbers queries(launch.get<void*>(0), launch.type(0)), keys(launch.get<void*>(1), Kind::i8), values(launch.get<void*>(2), Kind::i8);
  Scales scales(launch, 3, 21);
  Numbers asked(integers(4)), held(integers(5)), table(integers(6)), mixed(floats(7)), most(floats(8)), sums(floats(9));
  int rows = launch.get<int>(10), heads = launch.get<int>(11), kept = launch.get<int>(12), width = launch.get<int>(13);
  int block = launch.get<int>(14), blocks = launch.get<int>(15), tokens = launch.get<int>(16), shares = launch.get<int>(17);
  float scale = launch.get<float>(18), cap = launch.get<float>(19);
  int window = launch.get<int>(20);
  return [=] {
    for (int b = 0; b < rows; b++)
      for (long token = long(asked[b]); token < long(asked[b + 1]); token++)
        for (int n = 0; n < heads; n++)
          for (int share = 0; share < shares; share++) {
            long length = long(held[b + 1] - held[b]) - long(asked[b + 1]) + token + 1, each = (length + shares - 1) / shares;
            long begin = share * each, end = std::min(length, begin + each);
            if (window > 0) begin = std::max(begin, length - window);
            size_t at = (size_t(share) * tokens + token) * heads + n;
            most.set(at, -3.4028234663852886e38L);
            sums.set(at, 0);
            if (begin >= end) continue;
            int head = n / (heads / kept);
            auto place = [&](long k) {
              long slot = long(table[size_t(b) * blocks + k / block]) * block + k % block;
              return (size_t(slot) * kept + head) * width;
            };
            std::vector<Wide> scores;
            for (long k = begin; k < end; k++) {
              Wide score = 0;
              for (int h = 0; h < width; h++)
                score += queries[(size_t(token) * heads + n) * width + h] * scales[head * width + h] * keys[place(k) + h];
              scores.push_back(cap > 0 ? cap * tanhl(score * scale / cap) : score * scale);
            }
            Wide largest = *std::max_element(scores.begin(), scores.end()), sum = 0;
            std::vector<Wide> out(width);
            for (long k = begin; k < end; k++) {
              Wide weight = expl(scores[k - begin] - largest);
              sum += weight;
              for (int h = 0; h < width; h++) out[h] += weight * values[place(k) + h];
            }
            most.set(at, largest);
            sums.set(at, sum);
            for (int h = 0; h < width; h++) mixed.set(at * width + h, out[h]);
          }
  };
}

Work reduce_rounded(const Launch& launch) {
  // <type>(output, sums of values, largest scores, sums of weights, scales of values, sink, heads, kept heads, width, tokens,
  // shares, scales by channel, is smooth)
  if (launch.get<void*>(5) || launch.get<bool>(12)) return {};
  Numbers output(launch.get<void*>(0), launch.type(0));
  auto floats = [&](int index) { return Numbers(launch.get<void*>(index), Kind::f32); };
  Numbers mixed(floats(1)), most(floats(2)), sums(floats(3));
  Scales scales(launch, 4, 11);
  int heads = launch.get<int>(6), kept = launch.get<int>(7), width = launch.get<int>(8), tokens = launch.get<int>(9);
  int shares = launch.get<int>(10);
  return [=] {
    for (size_t row = 0; row < size_t(tokens) * heads; row++) {
      Wide largest = -INFINITY, sum = 0;
      auto at = [&](int share) { return size_t(share) * tokens * heads + row; };
      for (int share = 0; share < shares; share++)
        if (sums[at(share)] > 0) largest = std::max(largest, most[at(share)]);
      std::vector<Wide> out(width);
      for (int share = 0; share < shares; share++) {
        if (!(sums[at(share)] > 0)) continue;
        Wide weight = expl(most[at(share)] - largest);
        sum += sums[at(share)] * weight;
        for (int h = 0; h < width; h++) out[h] += mixed[at(share) * width + h] * weight;
      }
      int head = int(row % heads) / (heads / kept);
      for (int h = 0; h < width; h++) output.set(row * width + h, sum > 0 ? out[h] / sum * scales[head * width + h] : 0);
    }
  };
}

}  // namespace

Work paging(const Launch& launch) {
  const std::string& base = launch.base;
  if (base == "GetCumulativeSeqlensKV") return lengths(launch);
  if (base == "QkNormRotaryTNH") return turn(launch);
  if (base == "UnpackV") return unpack(launch);
  if (base == "ReshapeAndCache") return store(launch);
  if (base == "flash_fwd_splitkv_kernel" || base == "flash_fwd_kernel") return attend(launch);
  if (base == "GatherAndExpandPagedKVCache") return gather(launch);
  if (base == "PagedDecodeSplitKV") return attend_rounded(launch);
  if (base == "PagedDecodeReduce") return reduce_rounded(launch);
  return {};
}

}  // namespace standin
