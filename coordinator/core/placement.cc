#include "coordinator/core/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

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

// The ps in the order in which they are chosen for a role: by the bytes of that role in this job, then by those of all,
// then by name.
//
// Invariant: hosts_ has the first ps of each host.
class RoleOrder {
 public:
  explicit RoleOrder(const std::vector<PsLoad>& ps) : places_(ps.size()), host_(ps.size()) {
    std::vector<size_t> by_name(ps.size());
    std::iota(by_name.begin(), by_name.end(), size_t{0});
    std::stable_sort(by_name.begin(), by_name.end(), [&](size_t a, size_t b) { return ps[a].name < ps[b].name; });
    std::map<std::string, size_t> numbers;
    for (size_t i = 0; i < ps.size(); ++i) host_[i] = numbers.try_emplace(ps[i].host, numbers.size()).first->second;
    of_host_.resize(numbers.size());
    for (size_t rank = 0; rank < by_name.size(); ++rank) {
      const size_t i = by_name[rank];
      places_[i] = {0, ps[i].bytes, rank, i};
      of_host_[host_[i]].insert(places_[i]);
    }
    for (size_t host = 0; host < of_host_.size(); ++host) hosts_.emplace(*of_host_[host].begin(), host);
  }

  void Add(size_t i, uint64_t own, uint64_t all) {
    std::set<Place>& places = of_host_[host_[i]];
    hosts_.erase({*places.begin(), host_[i]});
    places.erase(places_[i]);
    places_[i].own += own;
    places_[i].all += all;
    places.insert(places_[i]);
    hosts_.emplace(*places.begin(), host_[i]);
  }

  // The first on a host without a chosen one; if there is none, the first that is not chosen itself.
  size_t Best(const std::vector<size_t>& chosen) const {
    const auto is_taken = [&](size_t host) {
      return std::any_of(chosen.begin(), chosen.end(), [&](size_t c) { return host_[c] == host; });
    };
    for (const auto& [place, host] : hosts_) {
      if (!is_taken(host)) return place.ps;
    }
    std::optional<Place> best;
    for (const std::set<Place>& places : of_host_) {
      const auto first = std::find_if(places.begin(), places.end(), [&](const Place& place) {
        return std::find(chosen.begin(), chosen.end(), place.ps) == chosen.end();
      });
      if (first != places.end() && (!best || *first < *best)) best = *first;
    }
    return best->ps;
  }

 private:
  struct Place {
    uint64_t own = 0, all = 0;
    size_t rank = 0, ps = 0;
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> places_;  // by ps
  std::vector<size_t> host_;   // likewise
  std::vector<std::set<Place>> of_host_;
  std::set<std::pair<Place, size_t>> hosts_;
};

}  // namespace

std::vector<PartitionCopies> PlacePartitions(const std::vector<v1::PartitionRange>& partitions,
                                             const std::vector<PsLoad>& ps, int backups) {
  CAIRN_CHECK(!ps.empty(), "partitions need a ps");
  RoleOrder primaries(ps), backup_copies(ps);
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
    while (chosen.size() < std::min<size_t>(ps.size(), 1 + backups)) {
      const bool primary = chosen.empty();
      const size_t best = (primary ? primaries : backup_copies).Best(chosen);
      primaries.Add(best, primary ? bytes : 0, bytes);
      backup_copies.Add(best, primary ? 0 : bytes, bytes);
      chosen.push_back(best);
    }
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
