// Updates: the path of an update through one copy, from acceptance to application.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Versions have no gaps: updates in flight follow the version of the state, in order.
//   2. Updates are applied in order. The caller decides when (PartitionCore::Advance, Replication::Kept).
//   3. Each (replica, sequence) is accepted once; an accepted update stays, whatever role the copy gets next.
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
    Buffer gradient;  // in the kind's form of sums
    Buffer packed;    // the result of Packed; empty until then
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

  // Fills in the entry's generation, version and type. The update is not persisted yet.
  Update& Accept(v1::LogEntry entry, Buffer gradient);
  // entry: as the primary accepted it; packed: the gradient as received.
  Update& AcceptReplicated(v1::LogEntry entry, Buffer gradient, Buffer packed) {
    return Add(std::move(entry), std::move(gradient), std::move(packed));
  }
  void Persist(Update& update);
  void OnPersisted(uint64_t version);
  // Applies the oldest update, which is persisted.
  void ApplyNext();
  // The copy's state was replaced.
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
