// Calls that fail because a test asks for it, as they do on a GPU that has no room left.
#include <map>

#include "device.hpp"

namespace standin {

namespace {
// How many calls of a kind succeed before one fails. None: no call fails.
std::map<std::string, long> left;
}  // namespace

bool fails(const char* kind) {
  auto found = left.find(kind);
  if (found == left.end() || found->second-- > 0) return false;
  left.erase(found);
  log("FAILS %s", kind);
  return true;
}

}  // namespace standin

// Let a call of a kind (allocation, launch, replay) fail, once so many have succeeded. Less than 0: none.
extern "C" void standin_fail(const char* kind, long after) {
  std::lock_guard<std::recursive_mutex> guard(standin::lock);
  if (after < 0)
    standin::left.erase(kind);
  else
    standin::left[kind] = after;
}
