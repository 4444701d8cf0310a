// Goal: only the calling thread gets a lower priority.
#include "common/base/thread_priority.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

namespace cairn {
namespace {

int Niceness() { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }

TEST(ThreadPriority, OfTheCallingThreadAlone) {
  const int before = Niceness();
  int lowered = 0;
  std::thread([&] {
    LowerThreadPriority();
    lowered = Niceness();
  }).join();
  EXPECT_EQ(lowered, 10);
  EXPECT_EQ(Niceness(), before);
}

}  // namespace
}  // namespace cairn
