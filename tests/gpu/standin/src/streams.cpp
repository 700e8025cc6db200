// Streams, events and graphs. Nothing runs when it is issued, but when something waits for it: what forgets to wait reads
// what was there before.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "device.hpp"

namespace standin {

std::recursive_mutex lock;
Counts counts;

void log(const char* format, ...) {
  static FILE* file = getenv("STANDIN_LOG") ? fopen(getenv("STANDIN_LOG"), "a") : nullptr;
  if (!file) return;
  va_list values;
  va_start(values, format);
  vfprintf(file, format, values);
  va_end(values);
  fputc('\n', file);
  fflush(file);
}

struct Operation {
  std::string what;
  std::function<void()> work;
};
struct Graph {
  std::vector<Operation> operations;
};
struct Stream {
  int id;
  bool blocking;  // waits for the default stream of its device, and lets it wait
  int device;
  std::deque<Operation> waiting;
  long issued = 0, done = 0;
  pthread_t issuer = pthread_self();  // the thread that gave it something last
  Graph* graph = nullptr;  // while it captures
  cudaStreamCaptureMode mode{};
  pthread_t capturer{};
};
struct Event {
  Stream* stream = nullptr;
  long at = 0;
};

namespace {
static_assert(kMostDevices == 4);
Stream default_streams[kMostDevices]{{0, true, 0}, {-1, true, 1}, {-2, true, 2}, {-3, true, 3}};
std::vector<Stream*> streams{&default_streams[0], &default_streams[1], &default_streams[2], &default_streams[3]};
int next_id = 1;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<int> linger_ms{0};

void run_to(Stream* stream, long issued) {
  while (stream->done < issued && !stream->waiting.empty()) {
    Operation operation = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    stream->done++;
    log("runs %s", operation.what.c_str());
    Watch watch(stream->device);
    operation.work();
  }
}

void violated(const std::string& what) {
  counts.violations++;
  log("VIOLATION %s", what.c_str());
  fprintf(stderr, "stand-in: a capture forbids %s\n", what.c_str());
}

// Two streams know nothing of each other, but for the default stream and those that wait for it.
bool ordered(Stream* one, Stream* other) {
  return one == other || (is_default(one) && other->blocking) || (is_default(other) && one->blocking);
}

bool captures_globally(Stream* stream) {
  if (!stream->graph) return false;
  if (stream->mode == cudaStreamCaptureModeGlobal) return true;
  return stream->mode == cudaStreamCaptureModeThreadLocal && pthread_equal(stream->capturer, pthread_self());
}
}  // namespace

Stream* stream_of(cudaStream_t handle) {
  bool is_legacy = handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  return is_legacy ? &default_streams[current()] : reinterpret_cast<Stream*>(handle);
}

bool captures(Stream* stream) { return stream->graph != nullptr; }
bool is_default(Stream* stream) { return stream == &default_streams[stream->device]; }
int home_of(Stream* stream) { return stream->device; }

cudaError_t failed(cudaError_t error, const char* why) {
  last_error = error;
  log("ERROR %d %s", int(error), why);
  return error;
}

bool forbidden(const char* what) {
  if (std::none_of(streams.begin(), streams.end(), captures_globally)) return false;
  violated(what);
  return true;
}

void finish(Stream* stream) {
  if (is_default(stream))
    for (Stream* each : streams)
      if (each->blocking && each != stream && each->device == stream->device) run_to(each, each->issued);
  run_to(stream, stream->issued);
}

void finish_all(int device) {
  for (Stream* each : streams)
    if (device < 0 || each->device == device) run_to(each, each->issued);
}

cudaError_t enqueue(Stream* stream, const std::string& what, std::function<void()> work) {
  devices[stream->device].operations++;
  if (stream->device != current()) stray(what + ", given to device " + std::to_string(stream->device));
  if (stream->graph) {
    stream->graph->operations.push_back({what, std::move(work)});
    log("captured by s%d: %s", stream->id, what.c_str());
    return cudaSuccess;
  }
  for (Stream* other : streams) {
    if (other->done == other->issued || other->device != stream->device || ordered(stream, other)) continue;
    // Two lanes, or a lane and an explanation, work beside each other in memory of their own.
    if (!pthread_equal(other->issuer, pthread_self())) continue;
    counts.hazards++;
    log("HAZARD s%d: %s, while s%d has still to do %s", stream->id, what.c_str(), other->id, other->waiting.back().what.c_str());
  }
  auto is_captured = [&](Stream* each) { return each->graph && each->blocking && each->device == stream->device; };
  if (is_default(stream) && std::any_of(streams.begin(), streams.end(), is_captured)) {
    violated("the default stream: " + what);
    return failed(cudaErrorStreamCaptureImplicit, "the default stream in a capture");
  }
  log("s%d: %s", stream->id, what.c_str());
  stream->waiting.push_back({what, std::move(work)});
  stream->issuer = pthread_self();
  stream->issued++;
  return cudaSuccess;
}

}  // namespace standin

using namespace standin;
#define LOCKED std::lock_guard<std::recursive_mutex> guard(standin::lock)

extern "C" {

cudaError_t cudaGetLastError() {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  LOCKED;
  auto* stream = new Stream{next_id++, !(flags & cudaStreamNonBlocking), current()};
  streams.push_back(stream);
  counts.streams++;
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithFlags(handle, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  LOCKED;
  Stream* stream = stream_of(handle);
  finish(stream);
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  counts.streams--;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  LOCKED;
  Stream* stream = stream_of(handle);
  counts.syncs++;
  if (stream->graph) {
    violated("a wait for the stream that captures");
    return failed(cudaErrorStreamCaptureUnsupported, "wait for a capture");
  }
  log("wait for s%d", stream->id);
  finish(stream);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  LOCKED;
  counts.syncs++;
  if (forbidden("a wait for the device")) return failed(cudaErrorStreamCaptureUnsupported, "wait for the device");
  finish_all(current());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  LOCKED;
  *status = captures(stream_of(handle)) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  LOCKED;
  counts.events++;
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  LOCKED;
  counts.events--;
  delete reinterpret_cast<Event*>(handle);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  LOCKED;
  auto* event = reinterpret_cast<Event*>(handle);
  event->stream = stream_of(stream);
  event->at = event->stream->issued;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) { return cudaEventRecord(event, stream); }
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  LOCKED;
  auto* event = reinterpret_cast<Event*>(handle);
  counts.syncs++;
  if (event->stream) run_to(event->stream, event->at);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t waited, unsigned) {
  LOCKED;
  auto event = *reinterpret_cast<Event*>(waited);
  if (!event.stream) return cudaSuccess;
  return enqueue(stream_of(handle), "wait for an event", [event] { run_to(event.stream, event.at); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  LOCKED;
  Stream* stream = stream_of(handle);
  if (is_default(stream)) return failed(cudaErrorStreamCaptureUnsupported, "capture of the default stream");
  stream->graph = new Graph;
  stream->mode = mode;
  stream->capturer = pthread_self();
  counts.captures++;
  log("s%d captures", stream->id);
  return cudaSuccess;
}
// Let each capture last so many milliseconds longer, for what other threads may do meanwhile.
void standin_linger(int milliseconds) { linger_ms = milliseconds; }
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  usleep(1000 * linger_ms);
  LOCKED;
  Stream* stream = stream_of(handle);
  if (!stream->graph) return failed(cudaErrorStreamCaptureInvalidated, "no capture");
  *graph = reinterpret_cast<cudaGraph_t>(stream->graph);
  counts.graphs++;
  stream->graph = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* launched, cudaGraph_t graph, unsigned long long) {
  LOCKED;
  *launched = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  counts.graphs++;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  LOCKED;
  counts.graphs--;
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t launched) {
  LOCKED;
  finish_all();  // it may be under way
  counts.graphs--;
  delete reinterpret_cast<Graph*>(launched);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  LOCKED;
  if (fails("replay")) return failed(cudaErrorLaunchOutOfResources, "a test asked for it");
  auto* graph = reinterpret_cast<Graph*>(handle);
  counts.launches++;
  counts.launched_operations += long(graph->operations.size());
  return enqueue(stream_of(stream), "graph of " + std::to_string(graph->operations.size()), [graph] {
    for (auto& operation : graph->operations) operation.work();
  });
}

}  // extern "C"
