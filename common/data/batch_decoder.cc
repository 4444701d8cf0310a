#include "common/data/batch_decoder.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/data/input_target.h"

namespace cairn {
namespace {

constexpr size_t kCacheLineBytes = 64;

size_t RoundUp(size_t bytes) { return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes; }

}  // namespace

BatchForm BatchForm::Of(const Dataset& dataset, const StepPlan& plan, const BatchSourceOptions& options) {
  const bool augmented = options.augmenter != nullptr;
  const bool target_alone = options.input_target.has_value() && options.input_target_place < 0;
  BatchForm form;
  form.element = augmented ? Element::kFloat : dataset.element();
  form.example_size = augmented ? options.augmenter->input_size() : dataset.example_size();
  form.label_size = target_alone ? form.example_size : dataset.label_size();
  if (options.mixer != nullptr) form.label_size = options.mixer->label_size(form.label_size);
  form.weighted = dataset.weighted();
  form.input_bytes = RoundUp(plan.piece_max() * form.example_size * SizeOf(form.element));
  form.label_bytes = RoundUp(plan.piece_max() * (form.label_size + (form.weighted ? 1 : 0)) * sizeof(float));
  return form;
}

ExampleOrder::ExampleOrder(uint64_t seed, bool shuffle, const StepPlan& plan, int64_t step)
    : shuffle_(shuffle),
      order_(StreamKey(seed, RandomStream::kShuffle), static_cast<uint64_t>(plan.PassOf(step)),
             static_cast<uint64_t>(plan.examples)) {}

BatchDecoder::BatchDecoder(std::shared_ptr<const Dataset> dataset, const StepPlan& plan,
                           const BatchSourceOptions& options)
    : dataset_(std::move(dataset)),
      plan_(plan),
      seed_(options.seed),
      shuffle_(options.shuffle),
      augmenter_(options.augmenter),
      mixer_(options.mixer),
      input_target_(options.input_target),
      input_target_place_(options.input_target_place),
      form_(BatchForm::Of(*dataset_, plan, options)) {}

// The coordinator may have counted the examples on another machine.
absl::Status BatchDecoder::Check(int64_t step, ReplicaId replica, int32_t piece) const {
  if (plan_.examples != dataset_->size(v1::TRAIN)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: has %d training examples on this worker, but the job was planned with %d; give every "
                        "worker the same data",
                        path(), dataset_->size(v1::TRAIN), plan_.examples));
  }
  if (step < 0 || step >= plan_.total_steps || replica.value < 0 || replica.value >= plan_.replicas || piece < 0 ||
      piece >= plan_.pieces) {
    return absl::OutOfRangeError(absl::StrFormat("step %d of replica %d; the job has %d steps and %d replicas", step,
                                                 replica.value, plan_.total_steps, plan_.replicas));
  }
  return absl::OkStatus();
}

absl::StatusOr<Batch> BatchDecoder::Decode(int64_t piece, ReplicaId replica, BlockPool& pool) const {
  const int64_t step = piece / plan_.pieces;
  const PlaceRange places = plan_.Piece(step, replica, static_cast<int32_t>(piece % plan_.pieces));
  const size_t input = form_.example_size * SizeOf(form_.element), label = form_.label_size;
  Batch batch;
  batch.examples = places.size();
  batch.label_size = form_.label_size;
  if (batch.examples == 0) return batch;
  batch.element = form_.element;
  const Buffer block = pool.Take();
  batch.inputs = block.Slice(0, batch.examples * input);
  batch.labels = block.Slice(form_.input_bytes, batch.examples * (label + (form_.weighted ? 1 : 0)) * sizeof(float));
  uint8_t* const inputs = batch.inputs.mutable_data();
  float* const labels = batch.labels.mutable_floats().data();
  const uint64_t pass = static_cast<uint64_t>(plan_.PassOf(step));
  const ExampleOrder order(seed_, shuffle_, plan_, step);
  std::vector<float> unused_label(static_cast<size_t>(target_alone() ? dataset_->label_size() : 0));
  std::vector<float> larger;  // used for an example that augmentation makes smaller
  if (dataset_->example_size() > form_.example_size) larger.resize(static_cast<size_t>(dataset_->example_size()));
  BatchMixer::Place mixed = {pass, static_cast<uint64_t>(piece), static_cast<uint32_t>(replica.value), {}};
  for (int64_t i = 0; i < batch.examples; ++i) {
    const int64_t example = order(places.begin + i);
    uint8_t* const to = inputs + i * input;
    uint8_t* const read = larger.empty() ? to : reinterpret_cast<uint8_t*>(larger.data());
    float* const of_label = target_alone() ? unused_label.data() : labels + i * label;
    CAIRN_RETURN_IF_ERROR(dataset_->ReadAs(form_.element, v1::TRAIN, example, read, of_label));
    if (form_.weighted) labels[batch.examples * label + i] = dataset_->Weight(v1::TRAIN, example);
    if (augmenter_ != nullptr) augmenter_->Apply(pass, static_cast<uint64_t>(example), reinterpret_cast<float*>(read));
    if (read != to) std::memcpy(to, read, input);
    if (mixer_ != nullptr) {
      mixed.examples.push_back(static_cast<uint64_t>(example));
      CAIRN_RETURN_IF_ERROR(Annotate(mixer_->Spread(of_label), absl::StrFormat("%s: example %d", path(), example)));
    }
    if (!input_target_) continue;
    float* const target = labels + i * label + (target_alone() ? 0 : input_target_place_);
    TakeInput(form_.element, to, *input_target_, absl::MakeSpan(target, static_cast<size_t>(form_.example_size)));
  }
  if (mixer_ != nullptr) mixer_->Mix(mixed, reinterpret_cast<float*>(inputs), labels, form_.label_size);
  return batch;
}

}  // namespace cairn
