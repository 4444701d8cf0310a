#include "common/base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace cairn {

void LowerThreadPriority() {
  // Linux: the niceness of one thread, by its id. 10 weighs 110 beside the 1024 of niceness 0 (sched(7)).
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

}  // namespace cairn
