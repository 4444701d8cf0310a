#include "coordinator/node/machine_places.h"

#include "absl/strings/str_format.h"

namespace cairn {

absl::StatusOr<MachinePlaces::Place> MachinePlaces::Take(const std::string& machine) {
  const Bounds& bounds = state_->bounds;
  {
    absl::MutexLock lock(&state_->mutex);
    if (state_->all >= bounds.all_max)
      return absl::ResourceExhaustedError(absl::StrFormat("too many %s; try again later", bounds.what));
    const auto held = state_->of_machine.find(machine);
    if (held != state_->of_machine.end() && held->second >= bounds.of_machine_max) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%d %s from your machine, the most there can be; end some, or try again later", held->second, bounds.what));
    }
    ++state_->all;
    ++state_->of_machine[machine];
  }
  return Place(state_.get(), [state = state_, machine](const void*) { state->GiveBack(machine); });
}

void MachinePlaces::State::GiveBack(const std::string& machine) {
  absl::MutexLock lock(&mutex);
  --all;
  const auto held = of_machine.find(machine);
  if (--held->second == 0) of_machine.erase(held);
}

}  // namespace cairn
