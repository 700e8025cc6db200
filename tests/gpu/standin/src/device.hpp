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
  long kernels, unemulated, to_device, to_device_bytes, to_host, to_host_bytes, within, within_bytes, memsets, syncs;
  long allocations, frees, allocated_bytes, captures, launches, launched_operations, hazards, violations;
  // What is there now.
  long streams, events, graphs, pinned;
};
extern Counts counts;

void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

// --- memory.cpp: memory that the host cannot touch, seen by the stand-in through a second view
bool on_device(const void* pointer);
char* view(const void* pointer);
void* allocate(size_t bytes);
bool release(void* pointer);

// --- streams.cpp: what a stream was given runs when something waits for it
struct Stream;
Stream* stream_of(cudaStream_t handle);
cudaError_t enqueue(Stream* stream, const std::string& what, std::function<void()> work);
void finish(Stream* stream);
void finish_all();
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

}  // namespace standin
