// Which devices there are, to which one a thread speaks, and what is theirs.
#include <algorithm>
#include <cstdlib>

#include "device.hpp"

using namespace standin;
#define LOCKED std::lock_guard<std::recursive_mutex> guard(standin::lock)

namespace standin {

namespace {
thread_local int spoken_to = 0;
int watched = -1;
}  // namespace

Device devices[kMostDevices];

int num_devices() {
  static int number = [] {
    const char* asked = getenv("STANDIN_DEVICES");
    return std::min(kMostDevices, std::max(0, asked ? atoi(asked) : 1));
  }();
  return number;
}

int current() { return spoken_to; }

void stray(const std::string& what) {
  counts.strays++;
  log("STRAY %s", what.c_str());
}

Watch::Watch(int device) : guard(lock), before(watched) { watched = device; }
Watch::~Watch() { watched = before; }

void touch(int device) {
  if (watched >= 0 && device >= 0 && device != watched)
    stray("device " + std::to_string(watched) + " touches memory of device " + std::to_string(device));
}

}  // namespace standin

extern "C" {

// What a device has done and holds, for the tests.
const Device* standin_device(int device) { return &devices[device]; }
// Let a device have so many bytes.
void standin_resize(int device, long bytes) {
  LOCKED;
  devices[device].bytes = bytes;
}

cudaError_t cudaGetDeviceCount(int* number) {
  // A machine that asks for no device has no driver.
  if (!(*number = num_devices())) return failed(cudaErrorInsufficientDriver, "no driver");
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = spoken_to;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= num_devices()) return failed(cudaErrorInvalidDevice, "no such device");
  spoken_to = device;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  LOCKED;
  const Device& device = devices[spoken_to];
  *all = size_t(device.bytes);
  *left = size_t(std::max(0L, device.bytes - device.allocated_bytes));
  return cudaSuccess;
}

}  // extern "C"
