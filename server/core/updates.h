// Updates: the way of an update through one copy, from its acceptance to its application.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Versions have no gaps: those under way follow that of the state, in order.
//   2. Updates are applied in order. When one may be is not decided here (PartitionCore::Advance, Replication::Kept).
//   3. Each (replica, sequence) is accepted once; what is accepted stays, whatever role the copy has next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "server/core/copy_context.h"
#include "server/core/stored_images.h"

namespace cairn {

class Updates {
 public:
  struct Update {
    v1::LogEntry entry;
    Buffer gradient;  // as the partition's kind sums it
    Buffer packed;    // Packed; empty until then
    // The gradient as it is logged and replicated.
    const Buffer& Packed(const PartitionConfig& config);
  };

  Updates(CopyContext& copy, StoredImages& images)
      : copy_(copy), images_(images), persisted_(copy.state.version), sequences_(copy.state.sequences) {}

  uint64_t accepted_version() const { return copy_.state.version + under_way_.size(); }
  uint64_t persisted_version() const { return persisted_; }
  bool empty() const { return under_way_.empty(); }
  size_t size() const { return under_way_.size(); }
  std::deque<Update>& under_way() { return under_way_; }
  const std::deque<Update>& under_way() const { return under_way_; }
  const std::vector<uint64_t>& sequences() const { return sequences_; }  // last accepted, by replica

  // The entry lacks generation, version and type. Not persisted yet.
  Update& Accept(v1::LogEntry entry, Buffer gradient);
  // As its primary accepted it; packed: as it came.
  Update& AcceptReplicated(v1::LogEntry entry, Buffer gradient, Buffer packed) {
    return Add(std::move(entry), std::move(gradient), std::move(packed));
  }
  void Persist(Update& update);
  void OnPersisted(uint64_t version);
  // The oldest one, which is persisted.
  void ApplyNext();
  // Another state took the place of the copy's.
  void StateReplaced();

 private:
  Update& Add(v1::LogEntry entry, Buffer gradient, Buffer packed);

  CopyContext& copy_;
  StoredImages& images_;
  std::deque<Update> under_way_;
  uint64_t persisted_;  // entries up to it are in the store
  std::vector<uint64_t> sequences_;
};

}  // namespace cairn
