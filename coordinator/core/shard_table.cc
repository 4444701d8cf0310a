#include "coordinator/core/shard_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cairn {
namespace {

// How long a shard's first worker has to answer.
constexpr absl::Duration kShardTimeout = absl::Minutes(1);

}  // namespace

void ShardTable::Open(uint32_t end) {
  for (end = std::min(end, count_); next_ < end; ++next_) open_[next_];
}

int64_t ShardTable::LoadOf(const NodeName& worker) const {
  return std::count_if(open_.begin(), open_.end(), [&](const auto& s) { return s.second.worker == worker; });
}

std::vector<ShardTable::Handout> ShardTable::HandOut(const std::vector<NodeName>& workers, absl::Time now) {
  std::vector<Handout> handouts;
  for (auto& [number, shard] : open_) {
    if (!shard.worker.empty() && now >= shard.until) {
      // Another worker must be idle: if all are slow, duplicate work makes them slower.
      const bool another = std::any_of(workers.begin(), workers.end(), [&, &shard = shard](const NodeName& worker) {
        return LoadOf(worker) == 0 && !shard.slow.contains(worker) && !shard.failed_on.contains(worker);
      });
      if (another) shard.slow.insert(std::exchange(shard.worker, {}));
    }
    if (!shard.worker.empty()) continue;
    const NodeName* best = nullptr;
    const auto cost = [&, &shard = shard](const NodeName& worker) {
      return std::tuple(shard.failed_on.contains(worker), shard.slow.contains(worker), LoadOf(worker));
    };
    for (const NodeName& worker : workers) {
      if (best == nullptr || cost(worker) < cost(*best)) best = &worker;
    }
    if (best == nullptr) break;
    shard.worker = *best;
    shard.until = now + kShardTimeout * (1 << std::min(shard.asked++, 6));
    if (shard.slow.erase(*best) == 0) handouts.push_back({number, *best});  // otherwise it is computing it
  }
  return handouts;
}

ShardTable::Shard* ShardTable::AskedOf(uint32_t number, const NodeName& worker) {
  const auto open = open_.find(number);
  return open == open_.end() || !open->second.IsAskedOf(worker) ? nullptr : &open->second;
}

bool ShardTable::Release(const NodeName& worker) {
  bool any = false;
  for (auto& [number, shard] : open_) {
    shard.slow.erase(worker);
    if (shard.worker != worker) continue;
    shard.worker.clear();
    shard.block.reset();
    any = true;
  }
  return any;
}

bool ShardTable::Fail(Shard& shard, const NodeName& worker) {
  if (shard.slow.erase(worker) > 0) {
    shard.failed_on.insert(worker);
    ++shard.failures;
    return false;
  }
  shard.worker.clear();
  shard.block.reset();
  return true;
}

ShardTable::Shard ShardTable::Finish(uint32_t number) {
  ++done_;
  return std::move(open_.extract(number).mapped());
}

}  // namespace cairn
