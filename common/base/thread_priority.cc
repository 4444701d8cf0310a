#include "common/base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace cairn {

void LowerThreadPriority() {
  // On Linux niceness is per thread, by its id. Niceness 10 has weight 110, niceness 0 has 1024 (sched(7)).
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

}  // namespace cairn
