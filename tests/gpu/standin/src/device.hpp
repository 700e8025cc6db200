// What the parts of the stand-in say to each other. See ../README.md.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace standin {

// One lock for all: the stand-in proves order, not speed.
extern std::recursive_mutex lock;

// What happened since the process began. `standin.py` reads it by the order of these lines.
struct Counts {
  // Work of one device that touches another's memory, or that a thread issues while it speaks to another.
  long strays;
  long kernels, unemulated, to_device, to_device_bytes, to_host, to_host_bytes, within, within_bytes, memsets, syncs;
  long allocations, frees, allocated_bytes, captures, launches, launched_operations, hazards, violations;
  // What is there now.
  long streams, events, graphs, pinned;
};
extern Counts counts;

void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

// --- devices.cpp: which devices there are, and to which one a thread speaks
constexpr int kMostDevices = 4;
constexpr long kMemory = 80L << 30;
struct Device {
  long operations = 0, allocated_bytes = 0, bytes = kMemory;
};
extern Device devices[kMostDevices];
int num_devices();
int current();
void stray(const std::string& what);
// As long as it lives, whatever is seen of device memory has to be of one device.
struct Watch {
  explicit Watch(int device);
  ~Watch();
  std::lock_guard<std::recursive_mutex> guard;
  int before;
};
// Memory of a device, or of the host (-1), is seen.
void touch(int device);

// --- memory.cpp: memory that the host cannot touch, seen by the stand-in through a second view
bool on_device(const void* pointer);
int home_of(const void* pointer);  // its device, or -1
char* view(const void* pointer);
void* allocate(size_t bytes);
bool release(void* pointer);

// --- streams.cpp: what a stream was given runs when something waits for it
struct Stream;
Stream* stream_of(cudaStream_t handle);
cudaError_t enqueue(Stream* stream, const std::string& what, std::function<void()> work);
void finish(Stream* stream);
void finish_all(int device = -1);  // of one device, or of all
int home_of(Stream* stream);
bool captures(Stream* stream);
bool is_default(Stream* stream);
cudaError_t failed(cudaError_t error, const char* why);
// A call that a capture forbids: it breaks the capture on a GPU.
bool forbidden(const char* what);

// --- faults.cpp: whether this call is the one that fails
bool fails(const char* kind);

// --- launches.cpp: what a kernel was given
struct Launch {
  std::string name;       // demangled, without its arguments: onnxruntime::cuda::_Fill<int, 256, 4>
  std::string base;       // _Fill
  std::string types;      // int, 256, 4
  dim3 grid, block;
  void** arguments;

  template <typename T>
  T get(int index) const {
    return *static_cast<T*>(arguments[index]);
  }
  // The template's argument of this place.
  std::string type(int index) const;
};

// What the kernel does, with all it needs copied from the launch. Empty: nobody wrote it down.
using Work = std::function<void()>;
Work emulated(const Launch& launch);
Work elementwise(const Launch& launch);
Work moving(const Launch& launch);
Work arranging(const Launch& launch);
Work reducing(const Launch& launch);
Work attending(const Launch& launch);
Work paging(const Launch& launch);
Work in_blocks(const Launch& launch);

}  // namespace standin
