// Dataset: examples with random access. BatchSource: a replica's batches, decoded ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/data.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/model/step_plan.h"
#include "common/model/target_check.h"
#include "common/tensor/batch.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Thread-safe after OpenDataset. An example is its shape's numbers (pixels 0..255, channels last) and label_size
// numbers of its label or target.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const v1::DataInfo& info() const = 0;
  virtual int64_t size(v1::Split split) const = 0;
  virtual int64_t example_size() const = 0;  // numbers
  virtual int64_t label_size() const = 0;
  // Numbers of each of data.inputs where only the data tells them (features of records); else empty. Of OpenDataset's.
  virtual std::vector<int64_t> input_sizes() const { return {}; }
  virtual Element element() const { return Element::kFloat; }  // what the numbers are before they become float32
  // Examples have weights (data.weight_column).
  virtual bool weighted() const { return false; }
  virtual float Weight(v1::Split /*split*/, int64_t /*index*/) const { return 1; }
  // Read is a copy from memory: cheaper than waiting for another thread that reads.
  virtual bool in_memory() const { return false; }
  // Errors: DATA_LOSS names the file and what is wrong with it.
  virtual absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const = 0;
  // The same where element() is kByte: the numbers as bytes.
  virtual absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float* label) const;
  // As numbers of `element`, which is kFloat or element().
  absl::Status ReadAs(Element element, v1::Split split, int64_t index, uint8_t* example, float* label) const {
    return element == Element::kByte ? ReadBytes(split, index, example, label)
                                     : Read(split, index, reinterpret_cast<float*>(example), label);
  }
};

// input_shape: of the model, to resize pictures to ([h, w, c]; c is 1 or 3) where `data` gives no size; empty: as
// `data` says. Errors name the path: NOT_FOUND, INVALID_ARGUMENT (cannot tell the format; what was looked for),
// DATA_LOSS.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const v1::Data& data, const Shape& input_shape);

class Augmenter;

struct BatchSourceOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int decode_threads = 1;
  int prefetch = 2;  // batches decoded ahead for each replica: at least so many, more where they are small; 0: none
  std::shared_ptr<const Augmenter> augmenter;  // null: examples as they are
  // The target is the augmented example as the model sees it; labels of the data set are left alone.
  std::optional<InputScale> input_target;
  int64_t input_target_place = -1;  // where it stands in the labels, the rest of which the data set gives; -1: alone
};

// Batches of the training split by (step, replica), which are a pure function of (seed, plan, augmenter). Thread-safe.
class BatchSource {
 public:
  BatchSource(std::shared_ptr<const Dataset> dataset, const StepPlan& plan, const BatchSourceOptions& options);
  ~BatchSource();
  // Of all batches: bytes where the data set's examples are, unless augmentation makes others of them.
  Element element() const;
  // Waits until it is decoded; starts decoding the replica's next batches in the background. May return a batch of 0
  // examples. With gradient accumulation a batch is a piece of the replica's examples of the step (StepPlan::Piece).
  absl::StatusOr<Batch> Get(int64_t step, ReplicaId replica, int32_t piece = 0);
  // What the replica's Get of the step will return, if it is decoded by now.
  std::optional<Batch> Peek(int64_t step, ReplicaId replica, int32_t piece = 0);
  // The replica is computed elsewhere now: drop what was decoded for it.
  void Forget(ReplicaId replica);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Numbers of an example in a batch's labels: these are labels [examples, label_size], then any weights [examples].
inline int64_t LabelNumbers(const Dataset& dataset) { return dataset.label_size() + (dataset.weighted() ? 1 : 0); }

// Examples places.begin .. places.end - 1 of a split in file order, for prediction: without weights.
absl::StatusOr<Batch> ReadBatch(const Dataset& dataset, v1::Split split, PlaceRange places);

}  // namespace cairn
