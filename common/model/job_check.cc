#include "common/model/job_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/model/callback_check.h"
#include "common/model/data_check.h"
#include "common/model/external_check.h"
#include "common/model/fault_check.h"
#include "common/model/given.h"
#include "common/model/inputs_check.h"
#include "common/model/job_outputs.h"
#include "common/model/limits.h"
#include "common/model/loss_check.h"
#include "common/model/metric_sums.h"
#include "common/model/mixed_labels.h"
#include "common/model/model_inputs.h"
#include "common/model/optimizer_check.h"
#include "common/model/outputs_check.h"
#include "common/model/partition_cut.h"
#include "common/model/spectral.h"
#include "common/model/step_check.h"
#include "common/model/strategy_check.h"
#include "common/model/target_check.h"
#include "common/model/type_text.h"
#include "common/model/weights_digest.h"
#include "common/tensor/gradient_rounding.h"

namespace cairn {
namespace {

absl::Status NotNegative(const char* field, int64_t value, const char* what_to_do) {
  if (value >= 0) return absl::OkStatus();
  return Bad(field, ": ", value, " is negative; ", what_to_do);
}

absl::Status CheckName(v1::JobSpec* spec) {
  if (spec->name().empty()) spec->set_name("job");
  const bool plain = std::all_of(spec->name().begin(), spec->name().end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (plain && spec->name().size() <= kJobNameBytesMax) {
    // Commands would parse these as a job's number, or as a flag.
    const bool number =
        std::all_of(spec->name().begin(), spec->name().end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
    if (!number && spec->name()[0] != '-') return absl::OkStatus();
    return Bad("name: \"", spec->name(), "\" would be taken for ", number ? "a job's number" : "a flag",
               "; put a letter before it");
  }
  return Bad("name: it may have letters, digits, '-', '_' and '.', at most ", kJobNameBytesMax, "; choose another");
}

absl::Status CheckData(v1::Data* data) {
  if (data->has_external()) return CheckExternalData(data);
  if (data->path().empty()) return Bad("data.path: missing; give the file or directory as the workers see it");
  if (data->path().size() > kPathBytesMax)
    return Bad("data.path: longer than ", kPathBytesMax, " bytes; use a shorter one");
  if (!v1::Data::Format_IsValid(data->format())) {
    return Bad("data.format: ", static_cast<int>(data->format()),
               " is not known; use IDX, CIFAR10, IMAGE_FOLDER, CSV, TFRECORD, TEXT_FOLDER, or AUTO");
  }
  const float validation = data->validation_split(), test = data->test_split();
  if (!(validation >= 0 && validation < 1)) {
    return Bad("data.validation_split: ", validation, " is outside [0, 1); use a share such as 0.1");
  }
  if (!(test >= 0 && test < 1)) return Bad("data.test_split: ", test, " is outside [0, 1); use a share such as 0.1");
  if (validation + test >= 1) {
    return Bad("data.validation_split: with data.test_split it takes ", validation + test,
               " of the examples and leaves none to train on; make their sum less than 1");
  }
  if ((data->image_height() == 0) != (data->image_width() == 0)) {
    return Bad("data.image_height: image_height and image_width go together; set both or none");
  }
  for (int32_t side : {data->image_height(), data->image_width()}) {
    if (side < 0 || side > kImageSideMax) {
      return Bad("data.image_height, image_width: ", data->image_height(), " x ", data->image_width(),
                 " pixels are not within 1 .. ", kImageSideMax, " each; use a size such as 128 x 128");
    }
  }
  CAIRN_RETURN_IF_ERROR(AtLeastOne("data.cache_mib", data->has_cache_mib(), data->cache_mib(), "1024"));
  if (!data->has_cache_mib()) data->set_cache_mib(1024);
  if (data->label_column().empty() && data->targets().empty()) data->set_label_column("-1");
  if (!data->has_shuffle()) data->set_shuffle(true);
  return absl::OkStatus();
}

absl::Status CheckImageSize(const v1::Data& data, const Graph& graph) {
  const Shape& input = ModelInputShape(graph);
  const bool image = input.size() == 3 && (input[2] == 1 || input[2] == 3);
  if (data.format() == v1::Data::IMAGE_FOLDER && !image) {
    return Bad("model.layers[0].input.shape: ", ToString(input),
               " cannot hold pictures; use [height, width, 3], or 1 for grey ones");
  }
  if (data.image_height() == 0) return absl::OkStatus();
  const bool cropped = std::any_of(data.augmentation().begin(), data.augmentation().end(),
                                   [](const v1::Augmentation& step) { return step.has_random_crop(); });
  if (!image || (ExampleShape(data, input) != input && !cropped)) {
    return Bad("data.image_height: pictures are resized to ", data.image_height(), " x ", data.image_width(),
               ", but the model's input is ", ToString(input),
               "; make them equal, or leave image_height and image_width out");
  }
  return absl::OkStatus();
}

absl::Status CheckTrains(const Graph& graph) {
  if (graph.trainable_parameters() > 0) return absl::OkStatus();
  if (graph.output().kind == LayerKind::kExternal) {
    return Bad("model.external.variables: nothing is trained; give one of them kind: TRAINABLE");
  }
  for (const Variable& v : graph.variables()) {
    if (v.kind != VariableKind::kFrozen) continue;
    return Bad(
        "model.layers: nothing is trained; leave `trainable: false` out at one layer with variables, such as the "
        "last");
  }
  return Bad("model.layers: no layer has anything to train; add a dense or conv2d layer");
}

absl::Status CheckOutputs(const Graph& graph) {
  if (graph.outputs().size() > 1) {
    return Bad("model.outputs: the model has ", graph.outputs().size(),
               " outputs; say in the job what each one's loss is, as outputs { output: \"",
               graph.nodes()[static_cast<size_t>(graph.outputs()[0])].name,
               "\" loss { ... } }, instead of `loss` and `metrics`");
  }
  return absl::OkStatus();
}

absl::Status CheckStrategy(v1::JobSpec* spec) {
  if (!v1::Strategy_IsValid(spec->strategy())) {
    return Bad("strategy: ", static_cast<int>(spec->strategy()),
               " is not known; use MIRRORED, MULTI_WORKER_MIRRORED, CENTRAL_STORAGE or PARAMETER_SERVER");
  }
  if (spec->strategy() == v1::STRATEGY_UNSPECIFIED) spec->set_strategy(v1::MULTI_WORKER_MIRRORED);
  if (!spec->has_staleness_bound()) return absl::OkStatus();
  if (spec->strategy() != v1::PARAMETER_SERVER) {
    return Bad("staleness_bound: only for strategy PARAMETER_SERVER, not ", v1::Strategy_Name(spec->strategy()),
               "; leave it out or change the strategy");
  }
  return NotNegative("staleness_bound", spec->staleness_bound(), "use 0 or more, or leave it out for no bound");
}

// Checks the numbers of examples, steps and replicas.
absl::Status CheckCounts(v1::JobSpec* spec) {
  CAIRN_RETURN_IF_ERROR(AtLeastOne("batch_size", spec->has_batch_size(), spec->batch_size(), "32"));
  if (!spec->has_batch_size()) spec->set_batch_size(32);
  if (spec->batch_size() > kBatchSizeMax) {
    return Bad("batch_size: ", spec->batch_size(), " is above the limit of ", kBatchSizeMax, "; use a smaller one");
  }
  CAIRN_RETURN_IF_ERROR(AtLeastOne("epochs", spec->has_epochs(), spec->epochs(), "1"));
  if (!spec->has_epochs()) spec->set_epochs(1);
  CAIRN_RETURN_IF_ERROR(AtLeastOne("replicas", spec->has_replicas(), spec->replicas(), "one for each worker slot"));
  if (spec->replicas() > kReplicasMax) {
    return Bad("replicas: ", spec->replicas(), " is above the limit of ", kReplicasMax, "; use fewer");
  }
  if (spec->replicas() > spec->batch_size()) {
    return Bad("batch_size: ", spec->batch_size(), " is less than the ", spec->replicas(),
               " replicas that share each batch; use a larger batch_size or fewer replicas");
  }
  CAIRN_RETURN_IF_ERROR(
      AtLeastOne("steps_per_epoch", spec->has_steps_per_epoch(), spec->steps_per_epoch(), "all batches of the data"));
  CAIRN_RETURN_IF_ERROR(AtLeastOne("validation_freq", spec->has_validation_freq(), spec->validation_freq(), "1"));
  if (!spec->has_validation_freq()) spec->set_validation_freq(1);
  if (spec->validation_by() == v1::VALIDATION_BY_UNSPECIFIED) spec->set_validation_by(v1::BY_REPLICAS);
  return absl::OkStatus();
}

absl::Status CheckPartitions(const v1::JobSpec& spec, const Graph& graph) {
  CAIRN_RETURN_IF_ERROR(CheckWholeVariables(graph, spec.optimizer()));
  if (!spec.has_partition_bytes()) return absl::OkStatus();
  const int64_t bytes = spec.partition_bytes();
  if (bytes % (kSpaceAlignment * 4) != 0 || bytes < kPartitionBytesMin || bytes > kPartitionBytesMax) {
    return Bad("partition_bytes: ", bytes, " is not a multiple of ", kSpaceAlignment * 4, " within ",
               kPartitionBytesMin, " .. ", kPartitionBytesMax, "; use 4194304 or leave it out");
  }
  const int64_t partitions = (graph.space_size() * 4 + bytes - 1) / bytes;
  if (partitions <= kPartitionsMax) return absl::OkStatus();
  return Bad("partition_bytes: ", bytes, " cuts the model into ", partitions, " partitions, above the limit of ",
             kPartitionsMax, "; use a larger one or leave it out");
}

absl::Status CheckWireTypes(v1::JobSpec* spec) {
  if (!v1::DataType_IsValid(spec->wire_dtype())) {
    return Bad("wire_dtype: ", static_cast<int>(spec->wire_dtype()),
               " is not known; use FLOAT32, BFLOAT16, FLOAT16, INT8, INT4 or INT2");
  }
  if (spec->values_wire_dtype() != v1::DATA_TYPE_UNSPECIFIED && !IsValuesType(spec->values_wire_dtype())) {
    return Bad("values_wire_dtype: ", TypeText(spec->values_wire_dtype()),
               " is not a type of values; use FLOAT32, BFLOAT16, FLOAT16 or INT8, or leave it out");
  }
  if (spec->wire_dtype() == v1::DATA_TYPE_UNSPECIFIED) spec->set_wire_dtype(v1::FLOAT32);
  return absl::OkStatus();
}

absl::Status CheckCluster(v1::JobSpec* spec) {
  CAIRN_RETURN_IF_ERROR(CheckWireTypes(spec));
  CAIRN_RETURN_IF_ERROR(
      AtLeastOne("threads_per_replica", spec->has_threads_per_replica(), spec->threads_per_replica(), "1"));
  if (spec->threads_per_replica() > kThreadsPerReplicaMax) {
    return Bad("threads_per_replica: ", spec->threads_per_replica(), " is not within 1 .. ", kThreadsPerReplicaMax,
               "; use 1, unless a worker has more cores than slots");
  }
  if (!spec->has_threads_per_replica()) spec->set_threads_per_replica(1);
  CAIRN_RETURN_IF_ERROR(AtLeastOne("min_workers", spec->has_min_workers(), spec->min_workers(), "1"));
  if (!spec->has_min_workers()) spec->set_min_workers(1);
  CAIRN_RETURN_IF_ERROR(NotNegative("max_workers", spec->max_workers(), "use 1 or more, or 0 for no limit"));
  if (spec->strategy() == v1::MIRRORED) {
    if (spec->min_workers() > 1 || spec->max_workers() > 1) {
      return Bad(spec->min_workers() > 1 ? "min_workers" : "max_workers",
                 ": more than 1, but strategy MIRRORED runs on one "
                 "worker; use 1, or strategy MULTI_WORKER_MIRRORED");
    }
    spec->set_max_workers(1);
  }
  if (spec->max_workers() != 0 && spec->max_workers() < spec->min_workers()) {
    return Bad("max_workers: ", spec->max_workers(), " is less than min_workers ", spec->min_workers(),
               "; raise it or lower min_workers");
  }
  if (spec->replicas() != 0 && spec->min_workers() > spec->replicas()) {
    return Bad("min_workers: ", spec->min_workers(), " is more than the ", spec->replicas(),
               " replicas, so that some would have no work; use fewer, or more replicas");
  }
  if (spec->min_workers() > spec->batch_size()) {
    return Bad("min_workers: ", spec->min_workers(), " is more than batch_size ", spec->batch_size(),
               ", so that some would have no work; use fewer, or a larger batch_size");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckedJob> CheckJob(const v1::JobSpec& spec) {
  CheckedJob job;
  job.spec = spec;
  CAIRN_RETURN_IF_ERROR(CheckName(&job.spec));
  CAIRN_ASSIGN_OR_RETURN(job.graph, Graph::Build(spec.model()));
  CAIRN_RETURN_IF_ERROR(CheckTrains(job.graph));
  CAIRN_RETURN_IF_ERROR(CheckExternalJob(job.spec, job.graph));
  CAIRN_RETURN_IF_ERROR(CheckData(job.spec.mutable_data()));
  CAIRN_RETURN_IF_ERROR(CheckImageSize(job.spec.data(), job.graph));
  CAIRN_RETURN_IF_ERROR(CheckInputSources(&job.spec, job.graph));
  if (ExternalOf(job.spec) != nullptr) {
    // The program has the loss and the figures.
  } else if (TrainsOutputs(job.spec)) {
    CAIRN_RETURN_IF_ERROR(CheckOutputLosses(&job.spec, job.graph, &job.warnings));
    CAIRN_RETURN_IF_ERROR(CheckTargetsOfOutputs(&job.spec, job.graph));
    CAIRN_RETURN_IF_ERROR(CheckJoined(job.graph, job.spec));
  } else {
    CAIRN_RETURN_IF_ERROR(CheckOutputs(job.graph));
    CAIRN_RETURN_IF_ERROR(CheckLoss(job.spec.mutable_loss(), job.graph));
    WarnOfLoss(job.spec.loss(), job.graph, &job.warnings);
    CAIRN_RETURN_IF_ERROR(CheckTargets(&job.spec, job.graph));
    CAIRN_RETURN_IF_ERROR(CheckMetrics(&job.spec, job.graph));
  }
  CAIRN_RETURN_IF_ERROR(CheckDataPipeline(&job.spec, job.graph));
  CAIRN_RETURN_IF_ERROR(CheckMixedLabels(job.spec, job.graph));
  CAIRN_RETURN_IF_ERROR(ResolveOptimizer(job.spec.mutable_optimizer(), &job.warnings));
  CAIRN_RETURN_IF_ERROR(CheckOptimizerAgainstJob(job.spec, job.graph));
  CAIRN_RETURN_IF_ERROR(CheckStrategy(&job.spec));
  CAIRN_RETURN_IF_ERROR(CheckCounts(&job.spec));
  CAIRN_RETURN_IF_ERROR(ResolveStep(&job.spec));
  CAIRN_RETURN_IF_ERROR(CheckSpectral(job.spec, job.graph));
  CAIRN_RETURN_IF_ERROR(CheckPartitions(job.spec, job.graph));
  CAIRN_RETURN_IF_ERROR(CheckCluster(&job.spec));
  CAIRN_RETURN_IF_ERROR(CheckCallbacks(&job.spec, &job.warnings));
  CAIRN_RETURN_IF_ERROR(CheckFaultTolerance(&job.spec, &job.warnings));
  CAIRN_RETURN_IF_ERROR(CheckDigestEverySteps(job.spec));
  CAIRN_RETURN_IF_ERROR(CheckStrategyOptions(job.spec));
  return job;
}

// A server's second partition is summed and updated while the first one is, and is pushed before the whole backward
// pass is done. From this size on that is more than what its frames cost.
constexpr int64_t kWorthItsOwnFrames = int64_t{128} << 10;

int64_t DefaultPartitionBytes(int64_t space_size, int ps) {
  const int64_t unit = kSpaceAlignment * 4;
  const int64_t servers = std::max(ps, 1);
  const int64_t bytes = std::max<int64_t>(space_size * 4, unit);
  const int64_t fewest = (bytes + kPartitionBytesDefault - 1) / kPartitionBytesDefault;
  int64_t partitions = (fewest + servers - 1) / servers * servers;  // the same number for every server
  if (bytes >= 2 * servers * kWorthItsOwnFrames) partitions = std::max(partitions, 2 * servers);
  const int64_t each = (bytes + partitions - 1) / partitions;
  return std::min(kPartitionBytesDefault, (each + unit - 1) / unit * unit);
}

std::string MetricName(const v1::JobSpec& spec, int metric) {
  CAIRN_CHECK(metric >= 0 && metric < FigureCount(spec), "a metric of the job");
  return MetricNameOf(FiguresOfJob(spec)[static_cast<size_t>(metric)]);
}

double MetricValue(const v1::JobSpec& spec, int metric, const v1::MetricSums& sums) {
  CAIRN_CHECK(metric >= 0 && metric < FigureCount(spec), "a metric of the job");
  const std::vector<v1::Metric> metrics = FiguresOfJob(spec);
  const v1::Metric& own = metrics[static_cast<size_t>(metric)];
  const int begin = MetricSumCount(absl::MakeSpan(metrics.data(), static_cast<size_t>(metric)));
  const int count = MetricSumCount(own);
  if (begin + count > sums.metrics_size()) return std::numeric_limits<double>::quiet_NaN();
  return MetricFigure(own, absl::MakeSpan(sums.metrics().data() + begin, static_cast<size_t>(count)), sums.examples());
}

}  // namespace cairn
