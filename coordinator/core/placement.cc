#include "coordinator/core/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace cairn {
namespace {

// Divides `total` items in proportion to slots. Each share is the exact quota rounded down or up, and they sum to
// `total`. Units that remain after rounding down go first to workers that already hold more (fewest moves), then by
// largest remainder, then by order.
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
    if (remainder[i] == 0) continue;  // its quota is an integer
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

// Distributes the replicas in `orphans` (ascending) in contiguous runs: want[i] of them to workers[i], larger runs
// first.
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

std::vector<PartitionCopies> PlacePartitions(const std::vector<v1::PartitionRange>& partitions, std::vector<PsLoad> ps,
                                             int backups) {
  CAIRN_CHECK(!ps.empty(), "partitions need a ps");
  std::vector<uint64_t> primary_bytes(ps.size(), 0), backup_bytes(ps.size(), 0);  // those of this job
  const auto bytes_of = [&](size_t partition) {
    return (partitions[partition].end() - partitions[partition].begin()) * sizeof(float);
  };
  std::vector<size_t> order(partitions.size());  // large ones first, so that small ones even out the difference
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes_of(a) > bytes_of(b); });
  std::vector<PartitionCopies> placed(partitions.size());
  for (const size_t partition : order) {
    const uint64_t bytes = bytes_of(partition);
    std::vector<size_t> chosen;
    // The best ps for this role by `own` bytes, among those that have no copy yet.
    auto choose = [&](std::vector<uint64_t>& own) {
      auto cost = [&](size_t i) {
        const bool host_taken =
            std::any_of(chosen.begin(), chosen.end(), [&](size_t c) { return ps[c].host == ps[i].host; });
        return std::tuple(host_taken, own[i], ps[i].bytes, ps[i].name);
      };
      size_t best = ps.size();
      for (size_t i = 0; i < ps.size(); ++i) {
        if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) continue;
        if (best == ps.size() || cost(i) < cost(best)) best = i;
      }
      own[best] += bytes;
      ps[best].bytes += bytes;
      chosen.push_back(best);
    };
    choose(primary_bytes);
    while (chosen.size() < std::min<size_t>(ps.size(), 1 + backups)) choose(backup_bytes);
    PartitionCopies& copies = placed[partition];
    copies.primary = ps[chosen[0]].name;
    for (size_t k = 1; k < chosen.size(); ++k) copies.backups.push_back(ps[chosen[k]].name);
  }
  return placed;
}

NodeName PickCopy(const std::vector<NodeName>& holders, const std::vector<std::string>& holder_hosts,
                  const std::vector<PsLoad>& ps) {
  const PsLoad* best = nullptr;
  auto cost = [&](const PsLoad& load) {
    const bool host_taken = std::find(holder_hosts.begin(), holder_hosts.end(), load.host) != holder_hosts.end();
    return std::tuple(host_taken, load.bytes, load.name);
  };
  for (const PsLoad& load : ps) {
    if (std::find(holders.begin(), holders.end(), load.name) != holders.end()) continue;
    if (best == nullptr || cost(load) < cost(*best)) best = &load;
  }
  return best == nullptr ? NodeName() : best->name;
}

std::optional<PrimaryMove> NextPrimaryMove(const std::vector<uint64_t>& bytes,
                                           const std::vector<PartitionCopies>& copies, const std::vector<PsLoad>& ps) {
  if (ps.size() < 2) return std::nullopt;
  std::map<NodeName, uint64_t> own;
  std::map<NodeName, std::string> host;
  for (const PsLoad& load : ps) {
    own[load.name] = 0;
    host[load.name] = load.host;
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    if (auto it = own.find(copies[i].primary); it != own.end()) it->second += bytes[i];
  }
  const auto [least, most] =
      std::minmax_element(own.begin(), own.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const uint64_t gap = most->second - least->second;
  // A partition smaller than the gap brings both ends closer. One near half of the gap needs the fewest moves. If the
  // target is already a follower, only roles change; a follower on the same host is less desirable.
  std::optional<PrimaryMove> best;
  std::tuple<bool, bool, uint64_t> best_cost;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].primary != most->first || bytes[i] >= gap) continue;
    bool follows = false, host_taken = false;
    for (const NodeName& backup : copies[i].backups) {
      follows = follows || backup == least->first;
      if (auto it = host.find(backup); it != host.end() && backup != least->first)
        host_taken = host_taken || it->second == host[least->first];
    }
    const uint64_t off = bytes[i] > gap / 2 ? bytes[i] - gap / 2 : gap / 2 - bytes[i];
    const std::tuple cost(host_taken, !follows, off);
    if (best && best_cost <= cost) continue;
    best = PrimaryMove{i, least->first};
    best_cost = cost;
  }
  return best;
}

std::optional<BackupMove> NextBackupMove(const std::vector<uint64_t>& bytes, const std::vector<PartitionCopies>& copies,
                                         const std::vector<PsLoad>& ps) {
  std::map<NodeName, uint64_t> own;
  std::map<NodeName, std::string> host;
  for (const PsLoad& load : ps) {
    own[load.name] = 0;
    host[load.name] = load.host;
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    for (const NodeName& backup : copies[i].backups) {
      if (auto it = own.find(backup); it != own.end()) it->second += bytes[i];
    }
  }
  std::vector<std::pair<uint64_t, NodeName>> order;  // those with the least bytes first
  order.reserve(own.size());
  for (const auto& [name, sum] : own) order.emplace_back(sum, name);
  std::sort(order.begin(), order.end());
  // The widest gap that a partition can reduce, and of such partitions the one nearest to half of the gap: fewest
  // moves.
  std::optional<BackupMove> best;
  uint64_t best_gap = 0, best_off = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    const std::vector<NodeName>& backups = copies[i].backups;
    for (const NodeName& from : backups) {
      const auto most = own.find(from);
      if (most == own.end()) continue;
      const auto shares_host = [&](const NodeName& name) {
        const auto same = [&](const NodeName& other) {
          auto it = host.find(other);
          return other != from && other != name && it != host.end() && it->second == host[name];
        };
        return same(copies[i].primary) || std::any_of(backups.begin(), backups.end(), same);
      };
      const auto to = std::find_if(order.begin(), order.end(), [&](const auto& candidate) {
        const NodeName& name = candidate.second;
        return name != copies[i].primary && std::find(backups.begin(), backups.end(), name) == backups.end() &&
               (!shares_host(name) || shares_host(from));
      });
      if (to == order.end() || most->second <= to->first) continue;
      const uint64_t gap = most->second - to->first;
      const uint64_t off = bytes[i] > gap / 2 ? bytes[i] - gap / 2 : gap / 2 - bytes[i];
      if (bytes[i] >= gap || gap < best_gap || (gap == best_gap && best && off >= best_off)) continue;
      best = BackupMove{i, from, to->second};
      best_gap = gap;
      best_off = off;
    }
  }
  return best;
}

std::vector<WorkerCapacity> OfOneDevice(std::vector<WorkerCapacity> workers, const std::vector<v1::Device>& preferred,
                                        size_t at_least) {
  for (const v1::Device device : preferred) {
    const auto has_it = [&](const WorkerCapacity& w) { return w.device == device; };
    if (static_cast<size_t>(std::count_if(workers.begin(), workers.end(), has_it)) < at_least) continue;
    std::erase_if(workers, std::not_fn(has_it));
    return workers;
  }
  return {};
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
      // Compares (load + 1) / slots without division.
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
