// MachinePlaces: a bounded number of things that callers hold, calls that wait for example. One machine has at most a
// part of them, so that others find some when it takes all that it can get.
//
// Thread-safe. Invariants: 1. At most `all_max` places are taken, at most `of_machine_max` of them by one machine. 2. A
// place is taken until the last copy of it is gone, which may be after this object.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace cairn {

class MachinePlaces {
 public:
  using Place = std::shared_ptr<const void>;

  struct Bounds {
    const char* what;  // what is held, for errors: "calls wait"
    size_t all_max;
    size_t of_machine_max;
  };
  explicit MachinePlaces(const Bounds& bounds) : state_(std::make_shared<State>(bounds)) {}

  // machine: as MachineOf has it (common/rpc/peer.h). Errors: RESOURCE_EXHAUSTED, with the bound that is reached.
  absl::StatusOr<Place> Take(const std::string& machine);

 private:
  struct State {
    explicit State(const Bounds& of) : bounds(of) {}
    void GiveBack(const std::string& machine);

    const Bounds bounds;
    absl::Mutex mutex;
    size_t all ABSL_GUARDED_BY(mutex) = 0;
    std::map<std::string, size_t> of_machine ABSL_GUARDED_BY(mutex);  // those that hold some
  };

  const std::shared_ptr<State> state_;  // places that are taken keep it
};

}  // namespace cairn
