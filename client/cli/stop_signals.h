// SIGINT, SIGTERM and SIGHUP, taken one at a time instead of by a handler.
//
// One thread. Made before any other thread, which then inherits the mask.
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
  // true: one came within the time.
  bool Wait(absl::Duration time) {
    const timespec t = absl::ToTimespec(time);
    return sigtimedwait(&set_, nullptr, &t) > 0;
  }

 private:
  sigset_t set_;
};

}  // namespace cairn
