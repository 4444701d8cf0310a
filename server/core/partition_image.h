// Image: a partition's whole state at one version: it is stored as a base image, starts a backup, and is a part of a
// checkpoint.
//
// Not thread-safe. Invariants:
//   1. An image shares its buffers with the state from which it was made. They are never written to: an update copies
//      shared buffers before it writes. Making an image copies nothing.
//   2. On the wire an image is one request: IMAGE frames with one request_id, tensor 0 .. tensors - 1 in order; the
//      first carries the PartitionImage. The partition's kind defines the tensors (dense: values, each slot, and from
//      primary to backup the values of version - 1 if they are kept).
//   3. A received image fits the partition's configuration: any other gets INVALID_ARGUMENT.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/v1/storage.pb.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "server/core/partition_state.h"

namespace cairn {

Image MakeImage(const PartitionConfig& config, const PartitionState& state, const ImageParts& parts);
// The state that the image holds. Its image_version is the image's version: Persistence::ResetTo stores the image.
PartitionState StateFrom(const PartitionConfig& config, const Image& image);
// The same, at rest: without the contents.
PartitionState StateAtRest(const PartitionConfig& config, const v1::PartitionImage& header);
// One IMAGE frame for each tensor, to be sent in this order with one request_id.
std::vector<Frame> ImageFrames(const PartitionConfig& config, const Image& image, uint64_t request_id);

// Joins the IMAGE frames of one sender. At most one image is received at a time; a first tensor starts over.
class ImageReceiver {
 public:
  // Returns the image with its last tensor, nullopt before. Errors: INVALID_ARGUMENT, it does not fit the partition;
  // FAILED_PRECONDITION, a tensor out of order: begin again. After an error nothing is held.
  absl::StatusOr<std::optional<Image>> Add(const PartitionConfig& config, uint64_t client, Frame frame);
  bool receiving() const { return !image_.tensors.empty(); }
  uint64_t client() const { return client_; }
  void Forget() { image_ = {}; }

 private:
  uint64_t client_ = 0, request_id_ = 0;
  uint32_t tensors_ = 0;
  Image image_;
};

}  // namespace cairn
