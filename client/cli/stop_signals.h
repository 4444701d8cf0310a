// StopSignals: waits for SIGINT, SIGTERM and SIGHUP synchronously instead of in a handler.
//
// One thread. Construct it before any other thread starts, so that all threads inherit the mask.
#pragma once

#include <signal.h>

#include <ctime>

#include "absl/time/time.h"

namespace cairn {

class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, s);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // True: a signal arrived within the time.
  bool Wait(absl::Duration time) {
    const timespec t = absl::ToTimespec(time);
    return sigtimedwait(&set_, nullptr, &t) > 0;
  }

 private:
  sigset_t set_;
};

}  // namespace cairn
