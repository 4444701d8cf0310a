// Image: a partition's whole state at one version: what is stored as a base image, what starts a backup, and what a
// checkpoint is made of.
//
// Not thread-safe. Invariants:
//   1. An image shares its buffers with the state that it was made of, and nobody writes to them: an update copies what
//      is shared before it writes. Making an image copies nothing.
//   2. On the wire an image is one request: IMAGE frames with one request_id, tensor 0 .. tensors - 1 in order; the
//      first carries the PartitionImage. Which tensors there are the partition's kind says (dense: values, each slot,
//      and where the values of version - 1 are kept, primary to backup, those).
//   3. A received image fits the partition's configuration: what does not gets INVALID_ARGUMENT.
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
// The state that the image holds; image_version is its version: Persistence::ResetTo stores it.
PartitionState StateFrom(const PartitionConfig& config, const Image& image);
// The same, at rest: without the contents.
PartitionState StateAtRest(const PartitionConfig& config, const v1::PartitionImage& header);
// One IMAGE frame a tensor, to be sent in this order with one request_id.
std::vector<Frame> ImageFrames(const PartitionConfig& config, const Image& image, uint64_t request_id);

// Joins the IMAGE frames of one sender. At most one image is being received; a first tensor starts over.
class ImageReceiver {
 public:
  // The image, with its last tensor; nothing before. Errors: INVALID_ARGUMENT does not fit the partition;
  // FAILED_PRECONDITION a tensor that does not follow the one before: begin again. After an error nothing is held.
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
