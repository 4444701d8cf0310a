// StepOutput: what a Step of ReplicaCore leaves behind: effects in their order, and when the core must be called again.
//
// Part of Context. Invariants:
//   1. Fail is emitted once.
//   2. A SetTimer is emitted only for a time before that of the last one that is still to come.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "worker/core/replica_core.h"

namespace cairn::replica {

class StepOutput {
 public:
  // A Step begins.
  void Begin(absl::Time now) {
    now_ = now;
    effects_.clear();
  }
  absl::Time now() const { return now_; }

  void Emit(Effect effect) { effects_.push_back(std::move(effect)); }
  // The job cannot go on here.
  void Fail(std::string message) {
    if (std::exchange(failed_, true)) return;
    effects_.emplace_back(replica::Fail{std::move(message)});
  }
  bool failed() const { return failed_; }
  // The effects so far, in order.
  Effects Take() { return std::exchange(effects_, {}); }

  // Something is to be tried again at this time.
  void WakeBy(absl::Time at) { wake_ = std::min(wake_, at); }
  absl::Time wake() const { return wake_; }
  // Whether that time has come; then all who wait must say again by when they want to be woken.
  bool TakeWake() {
    if (now_ < wake_) return false;
    wake_ = absl::InfiniteFuture();
    return true;
  }
  // A Timer event arrived.
  void OnTimer() {
    if (now_ >= armed_) armed_ = absl::InfiniteFuture();
  }
  // Emits a SetTimer for the earlier of wake() and `deadline`, if none comes early enough.
  void ArmTimer(absl::Time deadline) {
    const absl::Time at = std::min(wake_, deadline);
    if (at >= armed_) return;
    armed_ = at;
    effects_.emplace_back(SetTimer{at});
  }

 private:
  absl::Time now_;
  Effects effects_;
  bool failed_ = false;
  absl::Time wake_ = absl::InfiniteFuture();
  absl::Time armed_ = absl::InfiniteFuture();  // of the last SetTimer
};

}  // namespace cairn::replica
