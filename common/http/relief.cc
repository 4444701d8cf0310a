#include "common/http/relief.h"

#include <algorithm>

namespace cairn {
namespace {

bool WaitsForItsClient(const Slot& slot, absl::Time now) {
  if (slot.broken) return false;
  if (slot.stage == Stage::kHead) return now - slot.since >= kHeadPatience;
  if (slot.stage == Stage::kBody) return now - slot.since >= kBodyPatience;
  return slot.stage == Stage::kAnswer && now - slot.since >= kAnswerPatience;
}

}  // namespace

size_t ThreadsWanted(const std::vector<Slot>& slots, size_t waiting) {
  const auto soon = static_cast<size_t>(std::count_if(slots.begin(), slots.end(), [](const Slot& s) {
    return s.stage == Stage::kFree || s.stage == Stage::kLeave || s.broken;
  }));
  return waiting > soon ? waiting - soon : 0;
}

std::vector<size_t> ToEnd(const std::vector<Slot>& slots, size_t waiting, absl::Time now) {
  std::vector<size_t> found;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (WaitsForItsClient(slots[i], now)) found.push_back(i);
  }
  std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) { return slots[a].since < slots[b].since; });
  found.resize(std::min(found.size(), ThreadsWanted(slots, waiting)));
  return found;
}

}  // namespace cairn
