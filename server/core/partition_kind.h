// PartitionKind and PartitionContents: what a partition is made of.
//
// Above this interface is what all kinds share: versions, sequence numbers, the barrier, exactly-once, replication,
// log, images, moves (partition_core.h, server/storage/persistence.h). There an update has a gradient of some bytes and
// an image has tensors. Only the kind knows what these mean:
//
//   PartitionKind      the form of updates, requests and images; made once, with the configuration
//   PartitionContents  what one copy holds at the version of its PartitionState
//
// There is one kind: a range of the parameter space, as numbers (dense_partition.h). Another kind derives from both
// classes and is chosen in MakePartitionConfig.
//
// PartitionKind: any thread. PartitionContents: not thread-safe. Invariants:
//   1. Equal contents stay equal under the same entries: at the primary, at a backup and in recovery.
//   2. Bytes that were handed out (Read, AddTo) are never written to again: replies and images share them.
//   3. An image holds everything that the entries after it need.
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
  std::vector<Buffer> tensors;  // defined by the partition's kind; never written to
  size_t bytes() const;
};

// The parts of the contents that an image has besides the values themselves.
struct ImageParts {
  bool training = true;   // the state that an update needs: slots
  bool previous = false;  // the values of version - 1, if they are kept
};

// The values that a client asks for.
struct ValuesQuery {
  v1::DataType dtype = v1::FLOAT32;
  bool previous = false;  // those of version - 1; has_previous()
  Buffer asked;           // PartitionKind::TakeQuery
};

class PartitionContents {
 public:
  virtual ~PartitionContents() = default;

  // ---- updates ----
  // The gradient of a sum or push plus the gradients of penalties on the values (regularizers). The log, backups and
  // images only see the result. It is empty if there are no examples.
  virtual Buffer AddPenalties(const PartitionSettings& settings, uint64_t examples, Buffer gradient) const = 0;
  // Applies the next entry, which is checked. step: the number of the optimizer's update, from 1. The gradient is in
  // the kind's form of sums (empty if entry.examples() == 0), and is consumed. The old values become the previous ones.
  virtual void Apply(const PartitionSettings& settings, const v1::LogEntry& entry, uint64_t step, Buffer gradient) = 0;
  // Whether the contents are complete and of the partition's size, so that an update can be applied.
  virtual bool trainable(const PartitionSettings& settings) const = 0;

  // ---- answers ----
  virtual Buffer Read(const PartitionSettings& settings, const ValuesQuery& query) = 0;
  virtual bool has_previous() const = 0;
  virtual void ForgetPrevious() = 0;

  // ---- images ----
  // Adds the tensors, and the header's fields about them. Copies nothing.
  virtual void AddTo(const ImageParts& parts, Image& image) const = 0;
  virtual size_t image_bytes() const = 0;  // of the values and the state that an update needs

  // ---- rest ----
  virtual bool empty() const = 0;  // the values are only on the disk
  virtual void Clear() = 0;
};

class PartitionKind {
 public:
  virtual ~PartitionKind() = default;

  // ---- gradients as clients push them; examples > 0 ----
  // Checks type and payload. Errors: INVALID_ARGUMENT names the field.
  virtual absl::Status CheckPayload(const PartitionSettings& settings, const Frame& push) const = 0;
  // The gradient of a checked push, in the kind's form of sums. Takes the payload.
  virtual Buffer TakeGradient(const PartitionSettings& settings, Frame& push) const = 0;
  // The gradient of `node` from those of its two sides. Reuses the memory of a side that is not shared.
  virtual Buffer Merge(const PartitionSettings& settings, uint64_t sequence, const TreeNode& node, Buffer left,
                       Buffer right) const = 0;
  virtual NormRecord Measure(const ClipScope& scope, const Buffer& gradient, uint64_t examples) const = 0;
  virtual void Scale(const ClipScope& scope, double factor, Buffer& gradient) const = 0;  // not shared
  virtual bool keeps_average() const = 0;                                                 // ema_overwrite makes sense

  // ---- gradients as they are logged and sent to backups ----
  virtual v1::DataType LogDtype(const PartitionSettings& settings) const = 0;
  // The error message continues "its gradient ".
  virtual absl::Status CheckPacked(const PartitionSettings& settings, v1::DataType dtype, size_t bytes) const = 0;
  // Shared, not copied, if both forms are the same. An empty gradient stays empty.
  virtual Buffer Pack(const PartitionSettings& settings, const v1::LogEntry& entry, const Buffer& gradient) const = 0;
  virtual Buffer Unpack(const PartitionSettings& settings, const v1::LogEntry& entry, Buffer packed) const = 0;
  virtual size_t PackedBytes(const PartitionSettings& settings, const v1::LogEntry& entry,
                             const Buffer& gradient) const = 0;

  // ---- requests ----
  // The part of the partition that the request names; empty: all of it. Errors: INVALID_ARGUMENT.
  virtual absl::StatusOr<Buffer> TakeQuery(const PartitionSettings& settings, Frame& pull) const = 0;

  // ---- contents ----
  virtual std::unique_ptr<PartitionContents> MakeInitial(const PartitionSettings& settings) const = 0;  // of version 0
  virtual std::unique_ptr<PartitionContents> MakeEmpty() const = 0;
  // image: checked, with all its tensors.
  virtual std::unique_ptr<PartitionContents> MakeFrom(const PartitionSettings& settings, const Image& image) const = 0;

  // ---- images that were stored or received ----
  // Checks the header's fields about tensors, and their number. The error message names the field.
  virtual absl::Status CheckHeader(const PartitionSettings& settings, const v1::PartitionImage& header,
                                   size_t tensors) const = 0;
  // The error message says what is expected: "32 FLOAT32 numbers".
  virtual absl::Status CheckTensor(const PartitionSettings& settings, size_t tensor, size_t bytes) const = 0;
  virtual ImageParts PartsOf(const v1::PartitionImage& header, size_t tensors) const = 0;
};

}  // namespace cairn
