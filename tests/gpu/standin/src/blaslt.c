// libcublasLt.so.13: one algorithm for everything.
#include <string.h>

typedef void* P;

int cublasLtMatmulAlgoGetHeuristic(P handle, P plan, P a, P b, P c, P d, P preference, int asked, char* results, int* count) {
  memset(results, 0, 96);
  *count = 1;
  return 0;
}
