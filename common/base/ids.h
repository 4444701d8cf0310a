// Identifiers as types of their own, so that a partition is never passed where a replica is meant.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>

namespace cairn {

template <typename Tag, typename Rep>
struct Id {
  Rep value{};

  Id() = default;
  constexpr explicit Id(Rep v) : value(v) {}
  auto operator<=>(const Id&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value);
  }
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.value; }
};

using JobId = Id<struct JobIdTag, uint64_t>;
using PartitionId = Id<struct PartitionIdTag, uint32_t>;
using ReplicaId = Id<struct ReplicaIdTag, int32_t>;

// The fencing token of an assignment (docs/architecture.md#words).
using Generation = Id<struct GenerationTag, uint64_t>;

// A node's name, unique in the cluster.
using NodeName = std::string;

}  // namespace cairn
