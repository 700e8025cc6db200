// Kernels: found by the name that the provider registers, demangled.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "device.hpp"

using namespace standin;
#define LOCKED std::lock_guard<std::recursive_mutex> guard(standin::lock)

namespace {
std::unordered_map<const void*, std::string> names;

std::string demangled(const std::string& name) {
  int status;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text ? text : name;
  free(text);
  return result;
}

// Where the bracket that opens at `start` closes.
size_t closing(const std::string& text, size_t start) {
  int depth = 0;
  for (size_t at = start; at < text.size(); at++) {
    if (strchr("<(", text[at])) depth++;
    if (strchr(">)", text[at]) && --depth == 0) return at;
  }
  return text.size();
}

// "void onnxruntime::cuda::_Fill<int, 256, 4>(int*, int, int)" has the base _Fill and the types "int, 256, 4".
Launch described(const std::string& full) {
  Launch launch{};
  std::string text = full.rfind("void ", 0) == 0 ? full.substr(5) : full;
  const std::string nameless = "(anonymous namespace)::";
  for (size_t at; (at = text.find(nameless)) != std::string::npos;) text.erase(at, nameless.size());
  size_t end = text.find_first_of("<(");
  size_t begin = text.rfind("::", end);
  launch.name = full;
  launch.base = text.substr(begin == std::string::npos ? 0 : begin + 2, end - (begin == std::string::npos ? 0 : begin + 2));
  if (end != std::string::npos && text[end] == '<') launch.types = text.substr(end + 1, closing(text, end) - end - 1);
  return launch;
}

cudaError_t run(const void* function, dim3 grid, dim3 block, void** arguments, cudaStream_t stream) {
  LOCKED;
  counts.kernels++;
  Launch launch = described(names.count(function) ? names[function] : "a kernel without a name");
  launch.grid = grid;
  launch.block = block;
  launch.arguments = arguments;
  bool fits = grid.x && grid.y && grid.z && grid.y < 65536 && grid.z < 65536 && block.x && block.x * block.y * block.z <= 1024;
  if (!fits) {
    counts.violations++;
    return failed(cudaErrorInvalidConfiguration, launch.name.c_str());
  }
  Watch watch(home_of(stream_of(stream)));
  if (fails("launch")) return failed(cudaErrorLaunchOutOfResources, launch.name.c_str());
  Work work = emulated(launch);
  if (!work) {
    counts.unemulated++;
    standin::log("UNEMULATED %s", launch.name.c_str());
    work = [] {};
  }
  return enqueue(stream_of(stream), launch.name, std::move(work));
}
}  // namespace

namespace standin {
std::string Launch::type(int index) const {
  size_t start = 0;
  int depth = 0;
  for (size_t at = 0; at <= types.size(); at++) {
    if (at < types.size() && strchr("<(", types[at])) depth++;
    if (at < types.size() && strchr(">)", types[at])) depth--;
    if (at == types.size() || (types[at] == ',' && depth == 0)) {
      if (index-- == 0) return types.substr(start, at - start);
      start = at + 2;
    }
  }
  return "";
}

Work emulated(const Launch& launch) {
  for (auto family : {elementwise, moving, arranging, reducing, attending, paging, in_blocks})
    if (Work work = family(launch)) return work;
  return {};
}
}  // namespace standin

extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return new void*[1]{binary}; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*, void*, int*) {
  LOCKED;
  names[function] = demangled(name);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
static thread_local std::vector<Configuration> configurations;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t stream) {
  return run(kernel, grid, block, arguments, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t stream) {
  return run(function, grid, block, arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t stream) {
  return run(function, grid, block, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function, void** arguments) {
  return run(function, configuration->gridDim, configuration->blockDim, arguments, configuration->stream);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  LOCKED;
  return enqueue(stream_of(stream), "a function of the host", [=] { function(data); });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 64;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* number, const void*, int, size_t, unsigned) {
  *number = 2;
  return cudaSuccess;
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**, unsigned) {
  *library = reinterpret_cast<cudaLibrary_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) {
  LOCKED;
  *kernel = reinterpret_cast<cudaKernel_t>(new char);
  names[*kernel] = demangled(name);
  return cudaSuccess;
}
cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }

// For the libraries beside this one: work that they issue, or that nobody wrote down.
void standin_unemulated(cudaStream_t stream, const char* what) {
  LOCKED;
  counts.kernels++;
  counts.unemulated++;
  standin::log("UNEMULATED %s", what);
  enqueue(stream_of(stream), what, [] {});
}

}  // extern "C"
