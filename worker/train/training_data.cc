#include "worker/train/training_data.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/data/augment.h"
#include "common/data/batch_mixer.h"
#include "common/data/middle_crop.h"
#include "common/data/output_targets.h"
#include "common/data/remote_data.h"
#include "common/data/text_dataset.h"
#include "common/model/data_check.h"
#include "common/model/inputs_check.h"
#include "common/model/job_outputs.h"
#include "common/model/mixed_labels.h"
#include "common/model/model_inputs.h"
#include "common/model/target_check.h"
#include "worker/limits.h"

namespace cairn {
namespace {

using Examples = absl::StatusOr<std::shared_ptr<const Dataset>>;

// As long as the job wants it.
Examples OpenWhileWanted(DatasetCache& datasets, const v1::Data& data, const Shape& shape, DatasetCache::How how,
                         const std::atomic<bool>& dropped) {
  absl::Time told = absl::Now();
  while (true) {
    const absl::Time begin = absl::Now();
    Examples examples = datasets.Open(data, shape, how, kFetchLookPause);
    if (!absl::IsUnavailable(examples.status()) || !datasets.IsRemote(data)) return examples;
    if (dropped) return absl::CancelledError("the job was dropped");
    if (begin - told >= kFetchTellPause) {
      LogWarning("a job waits for its data: %s", examples.status().message());
      told = begin;
    }
    absl::SleepFor(begin + kFetchLookPause - absl::Now());  // where it did not wait itself
  }
}

// In the version that the job was checked with, if its data set has versions.
Examples OpenExamples(DatasetCache& datasets, const v1::Data& data, const Shape& shape, const v1::DataInfo& info,
                      const std::atomic<bool>& dropped) {
  const auto another = [&](const Examples& examples) {
    return examples.ok() && AreOtherVersions(info.path(), (*examples)->info().path());
  };
  Examples examples = OpenWhileWanted(datasets, data, shape, DatasetCache::How::kShared, dropped);
  if (another(examples))  // what was open may be older
    examples = OpenWhileWanted(datasets, data, shape, DatasetCache::How::kAnew, dropped);
  if (!another(examples)) return examples;
  return absl::InvalidArgumentError(absl::StrCat("data.path: ", data.path(), " has other objects on this worker (",
                                                 (*examples)->info().path(), ") than where the job was checked (",
                                                 info.path(), "): they were changed; submit the job again"));
}

}  // namespace

absl::StatusOr<TrainingData> OpenTrainingData(std::shared_ptr<const JobModel> model, const v1::DataInfo& checked,
                                              DatasetCache& datasets, const std::atomic<bool>& dropped) {
  TrainingData out;
  out.model = std::move(model);
  const v1::JobSpec& spec = out.model->spec;
  const Graph &graph = *out.model->graph, &given = *out.model->given;
  const Shape shape = ExampleShape(spec.data(), ModelInputShape(given));
  CAIRN_ASSIGN_OR_RETURN(out.examples, OpenExamples(datasets, spec.data(), shape, checked, dropped));
  CAIRN_RETURN_IF_ERROR(CheckTrains(*out.examples));
  CAIRN_RETURN_IF_ERROR(CheckInputSizes(given, spec.data(), out.examples->input_sizes()));
  CAIRN_ASSIGN_OR_RETURN(out.examples, WithTexts(std::move(out.examples), given));
  out.dataset =
      WithJobTargets(AsModelInput(out.examples, spec.data(), ModelInputShape(graph)), spec.data(), spec, graph);
  if (out.dataset->example_size() != NumElements(ModelInputShape(graph))) {
    return absl::InvalidArgumentError(absl::StrCat("data.path: an example has ", out.dataset->example_size(),
                                                   " numbers, the model's input is ",
                                                   ToString(ModelInputShape(graph))));
  }
  return out;
}

absl::StatusOr<TrainingBatches> MakeTrainingBatches(const TrainingData& data, BatchSourceOptions options) {
  const v1::JobSpec& spec = data.model->spec;
  const Graph& graph = *data.model->graph;
  options.seed = spec.seed();
  options.shuffle = !spec.data().has_shuffle() || spec.data().shuffle();
  if (spec.data().has_prefetch()) options.prefetch = spec.data().prefetch();
  CAIRN_ASSIGN_OR_RETURN(options.augmenter, Augmenter::Make(spec.data(), ModelInputShape(graph), spec.seed()));
  options.mixer = BatchMixer::Make(spec.data(), ModelInputShape(graph), MixedClasses(spec, graph), spec.seed());
  TrainingBatches out;
  out.plan = StepPlan::Of(spec, data.dataset->size(v1::TRAIN));
  if (const int input = InputTargetOf(spec.data()); input >= 0) {
    options.input_target = ScaleOfInput(graph);
    if (TrainsOutputs(spec)) options.input_target_place = TargetPlace(spec.data(), input);
  }
  const bool alone = options.input_target && options.input_target_place < 0;
  out.source = std::make_shared<BatchSource>(
      alone ? data.examples : WithJobTargets(data.examples, spec.data(), spec, graph), out.plan, options);
  out.model = WithInputs(*data.model, out.source->element());
  return out;
}

}  // namespace cairn
