// Follower: a backup's side of one partition: from whom it takes updates, and which it has yet to confirm.
//
// Not thread-safe; part of PartitionCore, which keeps and applies the updates. Invariants:
//   1. Updates are taken from one stream alone: the one that brought the image that this copy started from. Any copy
//      that is new, was demoted or restarted has none, and asks for an image.
//   2. In one generation an image is taken from no stream older than that one: what a broken stream still brings never
//      takes the copy back.
//   3. Each request gets one answer; an update's when it is kept, as the job's durability asks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/partition_image.h"

namespace cairn {

class Follower {
 public:
  // OK: an update from this stream fits here (its version is yet to be checked).
  absl::Status CheckSource(const PartitionConfig& config, uint64_t client) const;
  // The image with its last tensor. Errors are to be answered.
  absl::StatusOr<std::optional<Image>> AddTensor(const PartitionConfig& config, uint64_t client, Frame frame);
  bool receiving() const { return receiver_.receiving(); }
  void Started(uint64_t client) { source_ = client; }  // from its image
  // Images of the former generation are refused for that: its primary's streams say nothing about those of the present
  // one, which may be older (a stream serves many partitions).
  void NewGeneration() { newest_ = 0; }

  struct Ack {
    uint64_t client = 0, request_id = 0, version = 0;
  };
  void Owe(Ack ack) { owed_.push_back(ack); }
  // Those that may be given when everything up to `version` is kept.
  std::vector<Ack> TakeUpTo(uint64_t version);

  void ClientGone(uint64_t client);
  // The copy is not a backup any more, or is one anew.
  void Reset();

 private:
  uint64_t source_ = 0;  // 0: no image yet
  uint64_t newest_ = 0;  // the newest stream that brought a tensor
  ImageReceiver receiver_;
  std::deque<Ack> owed_;
};

}  // namespace cairn
