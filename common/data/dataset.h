// Dataset: examples with random access. BatchSource: a replica's batches, decoded ahead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/trace.h"
#include "common/model/step_plan.h"
#include "common/model/target_check.h"
#include "common/tensor/batch.h"
#include "common/tensor/buffer.h"

namespace cairn {

class TextStore;

// Thread-safe after OpenDataset. An example consists of the numbers of its shape (pixels 0..255, channels last) and
// label_size numbers of its label or target.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const v1::DataInfo& info() const = 0;
  virtual int64_t size(v1::Split split) const = 0;
  virtual int64_t example_size() const = 0;  // in numbers
  virtual int64_t label_size() const = 0;
  // The number of values of each of data.inputs if only the data tells it (features of records); else empty. Set by
  // OpenDataset only.
  virtual std::vector<int64_t> input_sizes() const { return {}; }
  // The texts that numbers of an example stand for, and the places of these numbers; null and empty: there are none.
  virtual const TextStore* texts() const { return nullptr; }
  virtual std::vector<int64_t> text_places() const { return {}; }
  // The type of the numbers before they are converted to float32.
  virtual Element element() const { return Element::kFloat; }
  // Why it cannot be trained with, or be evaluated, and what to do; empty: it can. Both can be predicted.
  virtual std::string no_training() const { return ""; }
  virtual std::string no_labels() const { return ""; }
  // Whether examples have weights (data.weight_column).
  virtual bool weighted() const { return false; }
  virtual float Weight(v1::Split /*split*/, int64_t /*index*/) const { return 1; }
  // What the example is in the data: its file relative to the folder, the line of a CSV file, from 1; else its number
  // among the examples of the file or folder, from 0. The same whatever splits are set aside. index: in [0, size).
  virtual std::string NameOf(v1::Split /*split*/, int64_t index) const { return std::to_string(index); }
  // Whether Read only copies from memory, which is cheaper than waiting for another thread to read.
  virtual bool in_memory() const { return false; }
  // Errors: DATA_LOSS names the file and what is wrong with it.
  virtual absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const = 0;
  // The same as bytes; only if element() is kByte.
  virtual absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float* label) const;
  // The same as numbers of type `element`, which must be kFloat or element().
  absl::Status ReadAs(Element element, v1::Split split, int64_t index, uint8_t* example, float* label) const {
    return element == Element::kByte ? ReadBytes(split, index, example, label)
                                     : Read(split, index, reinterpret_cast<float*>(example), label);
  }
};

// input_shape: that of the model, to which pictures are resized ([h, w, c]; c is 1 or 3) if `data` has no size; empty:
// the size must be in `data`. Errors name the path: NOT_FOUND, INVALID_ARGUMENT (unknown format; lists what was looked
// for), DATA_LOSS.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const v1::Data& data, const Shape& input_shape);

// Errors: INVALID_ARGUMENT: there are no examples to train with, or they have no labels.
absl::Status CheckTrains(const Dataset& dataset);
absl::Status CheckLabelled(const Dataset& dataset);

class Augmenter;
class BatchMixer;

struct BatchSourceOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int decode_threads = 1;
  int prefetch = 2;  // batches decoded ahead for each replica: at least this many, more if they are small; 0: none
  std::shared_ptr<const Augmenter> augmenter;  // null: examples are not augmented
  std::shared_ptr<const BatchMixer> mixer;     // null: they are not mixed; then there is an augmenter, too
  // Set if the target is the augmented example as the model sees it; the data set's labels are then not used.
  std::optional<InputScale> input_target;
  // Its position in the labels, if the data set provides the rest of them; -1: it is the whole label.
  int64_t input_target_place = -1;
  TraceRecorder* trace = nullptr;  // gets the times of decoding while `job` is traced; null: none
  JobId job;                       // with `trace`
};

// Batches of the training split by (step, replica), a pure function of (seed, plan, augmenter, mixer). Thread-safe.
class BatchSource {
 public:
  BatchSource(std::shared_ptr<const Dataset> dataset, const StepPlan& plan, const BatchSourceOptions& options);
  ~BatchSource();
  // The element type of all batches: bytes if the data set's examples are bytes and are not augmented.
  Element element() const;
  // Waits until the batch is decoded, and starts decoding the replica's next batches in the background. May return a
  // batch of 0 examples. With gradient accumulation a batch is a piece of the replica's examples of the step
  // (StepPlan::Piece).
  absl::StatusOr<Batch> Get(int64_t step, ReplicaId replica, int32_t piece = 0);
  // Returns what the replica's Get of the step would return, if it is already decoded.
  std::optional<Batch> Peek(int64_t step, ReplicaId replica, int32_t piece = 0);
  // The replica is now computed elsewhere: drops the batches decoded for it.
  void Forget(ReplicaId replica);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The numbers per example in a batch's labels, which are labels [examples, label_size], then weights [examples] if
// there are any.
inline int64_t LabelNumbers(const Dataset& dataset) { return dataset.label_size() + (dataset.weighted() ? 1 : 0); }

// Reads examples places.begin .. places.end - 1 of a split in file order, without weights, for prediction.
absl::StatusOr<Batch> ReadBatch(const Dataset& dataset, v1::Split split, PlaceRange places);

}  // namespace cairn
