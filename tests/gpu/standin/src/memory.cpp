// Device memory: one mapping that the host may not touch, and a view of it for the stand-in alone.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "device.hpp"

namespace standin {

namespace {
// Of each device. Reserved, not used: pages come when they are written.
constexpr size_t kBytes = size_t(24) << 30;
constexpr size_t kAll = kBytes * kMostDevices;
constexpr size_t kAlignment = 512;
// What fresh memory holds: NaN as fp16, bf16 and fp32, and a large negative integer.
constexpr int kPoison = 0xff;

char* device = nullptr;
char* seen = nullptr;
std::map<size_t, size_t> taken, left;  // offset to bytes

void reserve() {
  if (device) return;
  int file = memfd_create("standin", 0);
  if (file < 0 || ftruncate(file, kAll)) abort();
  auto map = [&](int access) { return static_cast<char*>(mmap(nullptr, kAll, access, MAP_SHARED | MAP_NORESERVE, file, 0)); };
  device = map(PROT_NONE);
  seen = map(PROT_READ | PROT_WRITE);
  if (device == MAP_FAILED || seen == MAP_FAILED) abort();
  for (int each = 0; each < kMostDevices; each++) left[each * kBytes] = kBytes;
}
}  // namespace

bool on_device(const void* pointer) {
  auto at = static_cast<const char*>(pointer);
  return device && at >= device && at < device + kAll;
}

int home_of(const void* pointer) {
  return on_device(pointer) ? int(size_t(static_cast<const char*>(pointer) - device) / kBytes) : -1;
}

char* view(const void* pointer) {
  if (!on_device(pointer)) return static_cast<char*>(const_cast<void*>(pointer));
  touch(home_of(pointer));
  return seen + (static_cast<const char*>(pointer) - device);
}

void* allocate(size_t bytes) {
  reserve();
  bytes = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  Device& home = devices[current()];
  if (home.allocated_bytes + long(bytes) > home.bytes) return nullptr;
  for (auto hole = left.begin(); hole != left.end(); ++hole) {
    auto [offset, size] = *hole;
    if (size < bytes || int(offset / kBytes) != current()) continue;
    left.erase(hole);
    if (size > bytes) left[offset + bytes] = size - bytes;
    taken[offset] = bytes;
    counts.allocated_bytes += long(bytes);
    home.allocated_bytes += long(bytes);
    memset(seen + offset, kPoison, bytes);
    return device + offset;
  }
  return nullptr;
}

bool release(void* pointer) {
  if (!pointer) return true;
  auto block = taken.find(size_t(static_cast<char*>(pointer) - device));
  if (block == taken.end()) return false;
  auto [offset, bytes] = *block;
  taken.erase(block);
  counts.allocated_bytes -= long(bytes);
  devices[home_of(pointer)].allocated_bytes -= long(bytes);
  auto hole = left.emplace(offset, bytes).first;
  auto next = std::next(hole);
  if (next != left.end() && hole->first + hole->second == next->first && next->first % kBytes) {
    hole->second += next->second;
    left.erase(next);
  }
  if (hole != left.begin()) {
    auto before = std::prev(hole);
    if (before->first + before->second == hole->first && hole->first % kBytes) {
      before->second += hole->second;
      left.erase(hole);
    }
  }
  return true;
}

}  // namespace standin
