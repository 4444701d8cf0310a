// PartitionKind and PartitionContents: what a partition is made of.
//
// Above this seam is what every partition has: versions, sequence numbers, the barrier, exactly-once, replication,
// log, images, moves (partition_core.h, server/storage/persistence.h). There an update has a gradient of some bytes and
// an image has tensors. What these mean is known to the kind alone:
//
//   PartitionKind      how updates, requests and images look; made once, with the configuration
//   PartitionContents  what one copy holds at the version that its PartitionState says
//
// There is one kind: a range of the parameter space, as numbers (dense_partition.h). Another one derives from both
// classes and is named in MakePartitionConfig.
//
// PartitionKind: any thread. PartitionContents: not thread-safe. Invariants:
//   1. The same entries make the same contents of equal ones: at the primary, at a backup and at recovery.
//   2. Bytes that were handed out (Read, AddTo) are not written to any more: replies and images share them.
//   3. An image holds all that the entries after it need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/v1/storage.pb.h"
#include "common/base/status.h"
#include "common/model/clip_norm.h"
#include "common/tensor/buffer.h"
#include "common/tensor/frame.h"
#include "common/tensor/summation_tree.h"
#include "server/core/partition_settings.h"

namespace cairn {

// A partition's whole state at one version (partition_image.h).
struct Image {
  v1::PartitionImage header;    // without checksums
  std::vector<Buffer> tensors;  // as the partition's kind has them; nobody writes to them
  size_t bytes() const;
};

// What of the contents an image has beside the values themselves.
struct ImageParts {
  bool training = true;   // what an update needs: slots
  bool previous = false;  // the values of version - 1, where they are kept
};

// What a client wants to see.
struct ValuesQuery {
  v1::DataType dtype = v1::FLOAT32;
  bool previous = false;  // those of version - 1; has_previous()
  Buffer asked;           // PartitionKind::TakeQuery
};

class PartitionContents {
 public:
  virtual ~PartitionContents() = default;

  // ---- updates ----
  // The gradient of a sum or push with what the values add to it (regularizers): log, backups and images know that one
  // alone. It is empty where there are no examples.
  virtual Buffer AddPenalties(const PartitionSettings& settings, uint64_t examples, Buffer gradient) const = 0;
  // A checked entry, the next one. step: which update of the optimizer it is, from 1. The gradient is as the kind sums
  // it (empty where entry.examples() == 0), and is consumed. What was there before are the previous values.
  virtual void Apply(const PartitionSettings& settings, const v1::LogEntry& entry, uint64_t step, Buffer gradient) = 0;
  // They are whole, and of the partition's size: an update can be applied.
  virtual bool trainable(const PartitionSettings& settings) const = 0;

  // ---- answers ----
  virtual Buffer Read(const ValuesQuery& query) = 0;
  virtual bool has_previous() const = 0;
  virtual void ForgetPrevious() = 0;

  // ---- images ----
  // Adds the tensors, and what the header says of them. Copies nothing.
  virtual void AddTo(const ImageParts& parts, Image& image) const = 0;
  virtual size_t image_bytes() const = 0;  // of the values and what an update needs

  // ---- rest ----
  virtual bool empty() const = 0;  // the values are on the disk alone
  virtual void Clear() = 0;
};

class PartitionKind {
 public:
  virtual ~PartitionKind() = default;

  // ---- gradients as clients push them; examples > 0 ----
  // Type and payload. Errors: INVALID_ARGUMENT, which names the field.
  virtual absl::Status CheckPayload(const PartitionSettings& settings, const Frame& push) const = 0;
  // Of a checked push, as the kind sums gradients. Takes the payload.
  virtual Buffer TakeGradient(const PartitionSettings& settings, Frame& push) const = 0;
  // The gradient of `node` from those of its two sides. Writes into the memory of a side that nobody shares.
  virtual Buffer Merge(const PartitionSettings& settings, uint64_t sequence, const TreeNode& node, Buffer left,
                       Buffer right) const = 0;
  virtual NormRecord Measure(const ClipScope& scope, const Buffer& gradient, uint64_t examples) const = 0;
  virtual void Scale(const ClipScope& scope, double factor, Buffer& gradient) const = 0;  // not shared
  virtual bool keeps_average() const = 0;                                                 // ema_overwrite makes sense

  // ---- gradients as they are logged and sent to backups ----
  virtual v1::DataType LogDtype(const PartitionSettings& settings) const = 0;
  // The message goes on after "its gradient ".
  virtual absl::Status CheckPacked(const PartitionSettings& settings, v1::DataType dtype, size_t bytes) const = 0;
  // Shared, not copied, where the two forms are the same. An empty gradient stays empty.
  virtual Buffer Pack(const PartitionSettings& settings, const v1::LogEntry& entry, const Buffer& gradient) const = 0;
  virtual Buffer Unpack(const PartitionSettings& settings, const v1::LogEntry& entry, Buffer packed) const = 0;
  virtual size_t PackedBytes(const PartitionSettings& settings, const v1::LogEntry& entry,
                             const Buffer& gradient) const = 0;

  // ---- requests ----
  // What the request names of the partition; nothing: all of it. Errors: INVALID_ARGUMENT.
  virtual absl::StatusOr<Buffer> TakeQuery(const PartitionSettings& settings, Frame& pull) const = 0;

  // ---- contents ----
  virtual std::unique_ptr<PartitionContents> MakeInitial(const PartitionSettings& settings) const = 0;  // of version 0
  virtual std::unique_ptr<PartitionContents> MakeEmpty() const = 0;
  // A checked image with all its tensors.
  virtual std::unique_ptr<PartitionContents> MakeFrom(const PartitionSettings& settings, const Image& image) const = 0;

  // ---- images that were stored or received ----
  // What the header says of the tensors, and their number. The message names the field.
  virtual absl::Status CheckHeader(const PartitionSettings& settings, const v1::PartitionImage& header,
                                   size_t tensors) const = 0;
  // The message says what is expected: "32 FLOAT32 numbers".
  virtual absl::Status CheckTensor(const PartitionSettings& settings, size_t tensor, size_t bytes) const = 0;
  virtual ImageParts PartsOf(const v1::PartitionImage& header, size_t tensors) const = 0;
};

}  // namespace cairn
