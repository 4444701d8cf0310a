// A wall clock that a test sets: this program's clock_gettime, which every library in it reads. Include it in one file
// of a program.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace cairn {

inline std::atomic<int64_t> wall_clock_ahead_s{0};  // of the true one; the steady clock stays as it is

}  // namespace cairn

extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += cairn::wall_clock_ahead_s;
  return static_cast<int>(result);
}
