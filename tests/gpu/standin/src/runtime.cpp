// The rest of the CUDA runtime's functions: memory, copies, what a device says of itself.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "device.hpp"

using namespace standin;
#define LOCKED std::lock_guard<std::recursive_mutex> guard(standin::lock)

namespace {
std::set<void*> pinned;

cudaError_t copy(Stream* stream, void* target, const void* source, size_t bytes, bool returns_at_once) {
  if (!bytes) return cudaSuccess;
  Watch watch(home_of(stream));
  bool onto = on_device(target), from = on_device(source);
  char what[64];
  snprintf(what, sizeof what, "copy %s%s of %zu bytes", from ? "device" : "host", onto ? " to device" : " to host", bytes);
  char *to = view(target), *at = view(source);
  // CUDA allows it. But a replay repeats it, on memory of the host that may be another's by then.
  if (captures(stream) && !(onto && from)) forbidden(what);
  if (onto && from) {
    counts.within++;
    counts.within_bytes += long(bytes);
    return enqueue(stream, what, [=] { memmove(to, at, bytes); });
  }
  if (onto) {
    counts.to_device++;
    counts.to_device_bytes += long(bytes);
    bool reads_later = captures(stream) || (returns_at_once && pinned.count(const_cast<void*>(source)));
    if (reads_later) return enqueue(stream, what, [=] { memcpy(to, at, bytes); });
    // Pageable memory is read before the call returns.
    auto kept = std::make_shared<std::string>(at, bytes);
    return enqueue(stream, what, [=] { memcpy(to, kept->data(), bytes); });
  }
  counts.to_host++;
  counts.to_host_bytes += long(bytes);
  if (cudaError_t error = enqueue(stream, what, [=] { memcpy(to, at, bytes); })) return error;
  bool comes_later = captures(stream) || (returns_at_once && pinned.count(target));
  if (!comes_later) finish(stream);
  return cudaSuccess;
}
}  // namespace

extern "C" {

const Counts* standin_counts() { return &counts; }
void standin_mark(const char* text) { standin::log("=== %s", text); }

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  LOCKED;
  counts.allocations++;
  if (fails("allocation")) return failed(cudaErrorMemoryAllocation, "a test asked for it");
  if (forbidden("an allocation")) return failed(cudaErrorStreamCaptureUnsupported, "allocation in a capture");
  *pointer = allocate(bytes);
  standin::log("allocate %zu at %p", bytes, *pointer);
  return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation, "out of memory");
}
cudaError_t cudaFree(void* pointer) {
  LOCKED;
  counts.frees++;
  if (pointer && forbidden("a release of memory")) return failed(cudaErrorStreamCaptureUnsupported, "release in a capture");
  if (pointer) finish_all();
  standin::log("free %p", pointer);
  return release(pointer) ? cudaSuccess : failed(cudaErrorInvalidValue, "release of what is not allocated");
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  LOCKED;
  *pointer = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  pinned.insert(*pointer);
  counts.pinned = long(pinned.size());
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return cudaMallocHost(pointer, bytes); }
cudaError_t cudaFreeHost(void* pointer) {
  LOCKED;
  pinned.erase(pointer);
  counts.pinned = long(pinned.size());
  free(pointer);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  LOCKED;
  memset(attributes, 0, sizeof *attributes);
  bool is_pinned = pinned.count(const_cast<void*>(pointer));
  attributes->type = on_device(pointer) ? cudaMemoryTypeDevice : is_pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  if (on_device(pointer)) attributes->devicePointer = const_cast<void*>(pointer);
  attributes->device = std::max(0, home_of(pointer));
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  LOCKED;
  return copy(stream_of(nullptr), target, source, bytes, false);
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  LOCKED;
  return copy(stream_of(stream), target, source, bytes, true);
}
cudaError_t cudaMemcpy2DAsync(void* target, size_t onto, const void* source, size_t from, size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
  LOCKED;
  counts.within++;
  counts.within_bytes += long(width * height);
  Watch watch(home_of(stream_of(stream)));
  char *to = view(target), *at = view(source);
  return enqueue(stream_of(stream), "copy of rows", [=] {
    for (size_t row = 0; row < height; row++) memcpy(to + row * onto, at + row * from, width);
  });
}
cudaError_t cudaMemcpyFromSymbol(void* target, const void*, size_t bytes, size_t, cudaMemcpyKind) {
  LOCKED;
  if (forbidden("a read of a symbol")) return failed(cudaErrorStreamCaptureUnsupported, "symbol in a capture");
  // The only symbols that are read are sizes of shared memory that a kernel of attention wants.
  memset(target, 0, bytes);
  if (bytes == 4) *static_cast<int*>(target) = 143360;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  LOCKED;
  counts.memsets++;
  Watch watch(home_of(stream_of(stream)));
  char* to = view(target);
  return enqueue(stream_of(stream), "fill", [=] { memset(to, value, bytes); });
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) { return cudaMemsetAsync(target, value, bytes, nullptr); }

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = reinterpret_cast<cudaMemPool_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<unsigned long long*>(value) = 0;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t, cudaStream_t) {
  LOCKED;
  counts.allocations++;
  *pointer = allocate(bytes);
  return *pointer ? cudaSuccess : failed(cudaErrorMemoryAllocation, "out of memory");
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  LOCKED;
  counts.frees++;
  return enqueue(stream_of(stream), "release", [=] { release(pointer); });
}

// --- the device: what an H100 says
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) {
  memset(device, 0, sizeof *device);
  strcpy(device->name, "Stand-in for an H100");
  device->major = 9;
  device->totalGlobalMem = size_t(kMemory);
  device->sharedMemPerBlock = 49152;
  device->sharedMemPerBlockOptin = 232448;
  device->sharedMemPerMultiprocessor = 233472;
  device->reservedSharedMemPerBlock = 1024;
  device->regsPerBlock = device->regsPerMultiprocessor = 65536;
  device->warpSize = 32;
  device->maxThreadsPerBlock = 1024;
  device->maxThreadsPerMultiProcessor = 2048;
  device->maxBlocksPerMultiProcessor = 32;
  device->maxThreadsDim[0] = device->maxThreadsDim[1] = 1024;
  device->maxThreadsDim[2] = 64;
  device->maxGridSize[0] = 2147483647;
  device->maxGridSize[1] = device->maxGridSize[2] = 65535;
  device->multiProcessorCount = 132;
  device->l2CacheSize = 52428800;
  device->unifiedAddressing = device->managedMemory = device->canMapHostMemory = device->concurrentKernels = 1;
  device->cooperativeLaunch = device->clusterLaunch = device->memoryPoolsSupported = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 232448; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 233472; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrL2CacheSize: *value = 52428800; break;
    default: *value = 1;
  }
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[48];
  snprintf(text, sizeof text, "CUDA error %d of the stand-in", int(error));
  return text;
}
const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(+[] { return 0; });
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

}  // extern "C"
