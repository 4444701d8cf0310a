#include "server/core/partition_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/model/gradient_layout.h"
#include "common/model/initializer.h"
#include "common/model/metric_sums.h"
#include "common/model/optimizer_check.h"
#include "common/model/optimizer_variables.h"
#include "common/model/partition_cut.h"
#include "common/model/spectral.h"
#include "common/model/strategy_check.h"
#include "server/core/dense_partition.h"

namespace cairn {
namespace {

std::vector<Segment> SegmentsOf(const Graph& graph, const v1::Optimizer& optimizer, int64_t begin, int64_t end) {
  std::vector<Segment> segments;
  const WholeUpdates whole(optimizer);
  const auto& all = graph.variables();  // in order of offset
  auto v_at =
      std::partition_point(all.begin(), all.end(), [&](const Variable& v) { return v.offset + v.size <= begin; });
  for (; v_at != all.end() && v_at->offset < end; ++v_at) {
    const Variable& v = *v_at;
    const int64_t from = std::max(v.offset, begin), to = std::min(v.offset + v.size, end);
    const bool average = v.kind == VariableKind::kMovingAverage;
    Segment& s = segments.emplace_back();
    s.begin = from - begin;
    s.end = to - begin;
    s.moving_average = average;
    s.momentum = average ? v.momentum : 0.0f;
    s.decays = v.kind == VariableKind::kTrainable && !ExcludedFromWeightDecay(optimizer, v.name);
    s.frozen = v.kind == VariableKind::kFrozen;
    s.whole = whole.Of(v);
    if (s.whole) s.shape = v.shape;
  }
  return segments;
}

DenseConfig DenseConfigOf(const v1::JobSpec& spec, std::shared_ptr<const Graph> graph, const PartitionConfig& c) {
  DenseConfig dense;
  dense.segments = SegmentsOf(*graph, spec.optimizer(), c.begin, c.end);
  dense.optimizer = OptimizerRule::From(spec.optimizer());
  dense.wire = GradientTypeOf(spec);
  dense.layout = GradientLayoutOf(*graph, spec);
  // An asynchronous push that is clipped by norm already contains the penalty's gradient.
  if (c.mode == UpdateMode::kSynchronous || ClipNormOf(spec.optimizer()) == 0)
    dense.penalties = PenaltyRangesOf(*graph, c.begin, c.end);
  dense.constraints = ConstraintRangesOf(*graph, c.begin, c.end);
  dense.spectral = SpectralRangesOf(*graph, c.begin, c.end);
  dense.initialize = [graph = std::move(graph), seed = spec.seed(), begin = c.begin](absl::Span<float> out) {
    InitializeRange(*graph, seed, begin, out);
  };
  return dense;
}

// Errors name the field.
absl::Status CheckRange(const v1::PartitionRange& range, uint64_t space) {
  if (range.begin() >= range.end() || range.end() > space || range.begin() % kSpaceAlignment != 0 ||
      range.end() % kSpaceAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("range [", range.begin(), ",", range.end(),
                                                   ") does not fit a parameter space of ", space,
                                                   " numbers in steps of ", kSpaceAlignment));
  }
  if ((range.end() - range.begin()) * sizeof(float) > static_cast<uint64_t>(kPartitionBytesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("range [", range.begin(), ",", range.end(), ") is larger than ", kPartitionBytesMax, " bytes"));
  }
  return absl::OkStatus();
}

// Sets how many replicas the ps sees, and what an update consists of.
absl::Status SetMode(const v1::JobSpec& spec, PartitionConfig& c) {
  if (spec.replicas() < 1 || spec.replicas() > kReplicasMax) {
    return absl::InvalidArgumentError(absl::StrCat("replicas: ", spec.replicas(), " is not in [1,", kReplicasMax, "]"));
  }
  c.replicas = static_cast<uint32_t>(spec.replicas());
  if (spec.strategy() == v1::PARAMETER_SERVER) {
    if (const int32_t group = LocalSyncOf(spec); group > 1) {
      if (spec.replicas() % group != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("local_sync: ", group, " does not divide the ", spec.replicas(), " replicas"));
      }
      c.replicas /= static_cast<uint32_t>(group);  // the ps sees a group as one replica
    }
    if (!spec.has_staleness_bound()) {
      c.mode = UpdateMode::kAsynchronous;
    } else if (spec.staleness_bound() > 0) {
      c.mode = UpdateMode::kBoundedStaleness;
      c.staleness_bound = static_cast<uint64_t>(spec.staleness_bound());
    }
  }
  if (c.mode != UpdateMode::kSynchronous) return absl::OkStatus();
  if (spec.backup_replicas() < 0 || spec.backup_replicas() >= spec.replicas()) {
    return absl::InvalidArgumentError(
        absl::StrCat("backup_replicas: ", spec.backup_replicas(), " is not in [0,", spec.replicas(), ")"));
  }
  c.backup_replicas = static_cast<uint32_t>(spec.backup_replicas());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PartitionConfig> MakePartitionConfig(const v1::JobSpec& spec, std::shared_ptr<const Graph> graph,
                                                    const v1::PartitionRange& range, JobId job, Generation generation) {
  PartitionConfig c;
  c.job = job;
  c.partition = PartitionId(range.partition());
  c.generation = generation;
  CAIRN_RETURN_IF_ERROR(Annotate(CheckRange(range, static_cast<uint64_t>(graph->space_size())), c.Name()));
  CAIRN_RETURN_IF_ERROR(Annotate(SetMode(spec, c), c.Name()));
  if (spec.optimizer().kind_case() == v1::Optimizer::KIND_NOT_SET) {
    return absl::InvalidArgumentError(absl::StrCat(c.Name(), ": optimizer: none is given"));
  }
  c.begin = static_cast<int64_t>(range.begin());
  c.end = static_cast<int64_t>(range.end());
  CAIRN_RETURN_IF_ERROR(Annotate(CheckWholeVariables(*graph, spec.optimizer(), c.begin, c.end), c.Name()));
  c.seed = spec.seed();
  c.metrics = MetricSumCount(spec);
  c.durability = spec.durability() == v1::DURABILITY_UNSPECIFIED ? v1::LOGGED : spec.durability();
  c.fsync = spec.fsync() && c.durability != v1::SNAPSHOT && c.durability != v1::REPLICATED;
  if (c.mode == UpdateMode::kSynchronous) {
    c.clip_norm = ClipNormOf(spec.optimizer());
    c.clip_scopes = StepScopesOf(*graph, spec, c.begin, c.end);
  }
  c.loss_scale = LossScaleRuleOf(spec);
  c.backup = range.backup();
  c.kind = std::make_shared<const DenseKind>(DenseConfigOf(spec, std::move(graph), c));
  return c;
}

}  // namespace cairn
