// Numbers of a device's memory, by the name that C++ gives their type.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "device.hpp"

namespace standin {

// It holds an int64, a double and all smaller ones exactly.
using Wide = long double;

enum class Kind { f16, bf16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64 };

inline Kind kind_of(const std::string& name) {
  if (name == "__half" || name == "onnxruntime::MLFloat16") return Kind::f16;
  if (name == "__nv_bfloat16" || name == "onnxruntime::BFloat16") return Kind::bf16;
  if (name == "float") return Kind::f32;
  if (name == "double") return Kind::f64;
  if (name == "signed char" || name == "char") return Kind::i8;
  if (name == "unsigned char" || name == "bool") return Kind::u8;
  if (name == "short") return Kind::i16;
  if (name == "unsigned short") return Kind::u16;
  if (name == "int") return Kind::i32;
  if (name == "unsigned int") return Kind::u32;
  if (name == "long") return Kind::i64;
  if (name == "unsigned long") return Kind::u64;
  throw std::invalid_argument("no number is called " + name);
}

inline size_t size_of(Kind kind) {
  switch (kind) {
    case Kind::i8:
    case Kind::u8:
      return 1;
    case Kind::f16:
    case Kind::bf16:
    case Kind::i16:
    case Kind::u16:
      return 2;
    case Kind::f32:
    case Kind::i32:
    case Kind::u32:
      return 4;
    default:
      return 8;
  }
}

inline float from_bf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

// To the nearest, ties to even.
inline uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (std::isnan(value)) return 0x7fff;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// An array in the device's memory. A null one is falsy.
class Numbers {
 public:
  Numbers(const void* pointer, Kind kind) : data_(pointer ? view(pointer) : nullptr), kind_(kind) {}
  Numbers(const void* pointer, const std::string& type) : Numbers(pointer, kind_of(type)) {}
  explicit operator bool() const { return data_ != nullptr; }

  Wide operator[](size_t index) const {
    const char* at = data_ + index * size_of(kind_);
    switch (kind_) {
      case Kind::f16: return read<_Float16>(at);
      case Kind::bf16: return from_bf16(read<uint16_t>(at));
      case Kind::f32: return read<float>(at);
      case Kind::f64: return read<double>(at);
      case Kind::i8: return read<int8_t>(at);
      case Kind::u8: return read<uint8_t>(at);
      case Kind::i16: return read<int16_t>(at);
      case Kind::u16: return read<uint16_t>(at);
      case Kind::i32: return read<int32_t>(at);
      case Kind::u32: return read<uint32_t>(at);
      case Kind::i64: return read<int64_t>(at);
      default: return read<uint64_t>(at);
    }
  }

  void set(size_t index, Wide value) const {
    char* at = data_ + index * size_of(kind_);
    switch (kind_) {
      case Kind::f16: return write(at, _Float16(float(value)));
      case Kind::bf16: return write(at, to_bf16(float(value)));
      case Kind::f32: return write(at, float(value));
      case Kind::f64: return write(at, double(value));
      case Kind::i8: return write(at, int8_t(value));
      case Kind::u8: return write(at, uint8_t(value));
      case Kind::i16: return write(at, int16_t(value));
      case Kind::u16: return write(at, uint16_t(value));
      case Kind::i32: return write(at, int32_t(value));
      case Kind::u32: return write(at, uint32_t(value));
      case Kind::i64: return write(at, int64_t(value));
      default: return write(at, uint64_t(value));
    }
  }

 private:
  template <typename T>
  static T read(const char* at) {
    T value;
    memcpy(&value, at, sizeof value);
    return value;
  }
  template <typename T>
  static void write(char* at, T value) {
    memcpy(at, &value, sizeof value);
  }
  char* data_;
  Kind kind_;
};

// How ONNX Runtime passes small arrays and divisors to a kernel.
template <typename T, int N = 8>
struct Few {
  int32_t size;
  T items[N];
};
struct Divisor {
  int value;
  uint32_t magic;
  int shift;
};

}  // namespace standin
