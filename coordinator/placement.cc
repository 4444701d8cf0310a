#include "coordinator/placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace cairn {
namespace {

// Quotas of `total` items by slots: every share is the exact quota rounded down or up, their sum is `total`. Units left
// after rounding down go to those that hold more than that already (fewest moves), then by largest remainder, then by
// order.
std::vector<int32_t> Shares(int32_t total, const std::vector<WorkerCapacity>& workers,
                            const std::vector<int32_t>& held) {
  const int64_t slots = std::accumulate(workers.begin(), workers.end(), int64_t{0},
                                        [](int64_t sum, const WorkerCapacity& w) { return sum + w.slots; });
  std::vector<int32_t> shares(workers.size());
  std::vector<int64_t> remainder(workers.size());
  int32_t left = total;
  for (size_t i = 0; i < workers.size(); ++i) {
    const int64_t scaled = int64_t{total} * workers[i].slots;
    shares[i] = static_cast<int32_t>(scaled / slots);
    remainder[i] = scaled % slots;
    left -= shares[i];
  }
  std::vector<size_t> order(workers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool a_holds = held[a] > shares[a], b_holds = held[b] > shares[b];
    return std::tuple(!a_holds, -remainder[a]) < std::tuple(!b_holds, -remainder[b]);
  });
  for (size_t i : order) {
    if (left == 0) break;
    if (remainder[i] == 0) continue;  // its quota is a whole number
    ++shares[i];
    --left;
  }
  CAIRN_CHECK(left == 0, "fewer than one unit is left for each remainder");
  return shares;
}

std::map<NodeName, size_t> IndexOf(const std::vector<WorkerCapacity>& workers) {
  std::map<NodeName, size_t> index;
  for (size_t i = 0; i < workers.size(); ++i) {
    CAIRN_CHECK(workers[i].slots >= 1, "a worker without slots cannot be given replicas");
    index[workers[i].name] = i;
  }
  return index;
}

// Gives the replicas in `orphans` (ascending) out in contiguous runs: want[i] of them to workers[i], larger runs first.
void HandOut(const std::vector<size_t>& orphans, const std::vector<WorkerCapacity>& workers,
             const std::vector<int32_t>& want, std::vector<NodeName>& owners) {
  std::vector<size_t> order(workers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return want[a] > want[b]; });
  size_t next = 0;
  for (size_t i : order) {
    for (int32_t k = 0; k < want[i]; ++k) owners[orphans[next++]] = workers[i].name;
  }
  CAIRN_CHECK(next == orphans.size(), "every orphan gets an owner");
}

}  // namespace

std::vector<NodeName> PlacePartitions(const std::vector<v1::PartitionRange>& partitions, std::vector<PsLoad> ps) {
  CAIRN_CHECK(!ps.empty(), "partitions need a ps");
  std::vector<uint64_t> own(ps.size(), 0);  // bytes of this job
  std::vector<NodeName> owners;
  owners.reserve(partitions.size());
  for (const v1::PartitionRange& range : partitions) {
    size_t best = 0;
    for (size_t i = 1; i < ps.size(); ++i) {
      if (std::tie(own[i], ps[i].bytes, ps[i].name) < std::tie(own[best], ps[best].bytes, ps[best].name)) best = i;
    }
    const uint64_t bytes = (range.end() - range.begin()) * sizeof(float);
    own[best] += bytes;
    ps[best].bytes += bytes;
    owners.push_back(ps[best].name);
  }
  return owners;
}

std::vector<NodeName> PlaceReplicas(int32_t replicas, std::vector<WorkerCapacity> workers) {
  CAIRN_CHECK(!workers.empty(), "replicas need a worker");
  std::sort(workers.begin(), workers.end(),
            [](const auto& a, const auto& b) { return a.slots != b.slots ? a.slots > b.slots : a.name < b.name; });
  return RebalanceReplicas(std::vector<NodeName>(replicas), workers);
}

std::vector<NodeName> AdoptOrphans(std::vector<NodeName> owners, const std::vector<WorkerCapacity>& workers) {
  const auto index = IndexOf(workers);
  std::vector<int32_t> load(workers.size(), 0), want(workers.size(), 0);
  std::vector<size_t> orphans;
  for (size_t r = 0; r < owners.size(); ++r) {
    if (auto it = index.find(owners[r]); it != index.end()) {
      ++load[it->second];
    } else {
      owners[r].clear();
      orphans.push_back(r);
    }
  }
  if (workers.empty()) return owners;
  for (size_t k = 0; k < orphans.size(); ++k) {
    size_t best = 0;
    for (size_t i = 1; i < workers.size(); ++i) {
      // (load + 1) / slots, compared without division
      const int64_t a = int64_t{load[i] + 1} * workers[best].slots, b = int64_t{load[best] + 1} * workers[i].slots;
      if (a < b) best = i;
    }
    ++load[best];
    ++want[best];
  }
  HandOut(orphans, workers, want, owners);
  return owners;
}

std::vector<NodeName> RebalanceReplicas(std::vector<NodeName> owners, const std::vector<WorkerCapacity>& workers) {
  const auto index = IndexOf(workers);
  std::vector<int32_t> held(workers.size(), 0);
  for (const NodeName& owner : owners) {
    if (auto it = index.find(owner); it != index.end()) ++held[it->second];
  }
  if (workers.empty()) return std::vector<NodeName>(owners.size());
  const std::vector<int32_t> share = Shares(static_cast<int32_t>(owners.size()), workers, held);
  std::vector<int32_t> kept(workers.size(), 0), want(workers.size(), 0);
  std::vector<size_t> orphans;
  for (size_t r = 0; r < owners.size(); ++r) {
    auto it = index.find(owners[r]);
    if (it != index.end() && kept[it->second] < share[it->second]) {
      ++kept[it->second];
    } else {
      orphans.push_back(r);
    }
  }
  for (size_t i = 0; i < workers.size(); ++i) want[i] = share[i] - kept[i];
  HandOut(orphans, workers, want, owners);
  return owners;
}

std::string ReplicaListText(const std::vector<int32_t>& replicas) {
  std::string text;
  for (size_t i = 0; i < replicas.size();) {
    size_t j = i;
    while (j + 1 < replicas.size() && replicas[j + 1] == replicas[j] + 1) ++j;
    if (!text.empty()) text += ",";
    if (j == i) {
      absl::StrAppend(&text, replicas[i]);
    } else {
      absl::StrAppend(&text, replicas[i], j == i + 1 ? "," : "-", replicas[j]);
    }
    i = j + 1;
  }
  return text;
}

}  // namespace cairn
