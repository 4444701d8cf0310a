#include "common/model/epoch_figures.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/exact_sum.h"
#include "common/base/limits.h"
#include "common/model/limits.h"
#include "common/tensor/frame.h"
#include "common/tensor/limits.h"

namespace cairn {
namespace {

// The maximum bytes of one epoch in a list: varints of ten bytes, sums of twice eight bytes, and their tags.
constexpr size_t EpochBytes(int metrics) { return 112 + 16 * static_cast<size_t>(metrics); }
// Lists of a format without rests of sums may be longer.
int EpochsKnownMax(int metrics) { return static_cast<int>(kFiguresBytesMax / (96 + 8 * static_cast<size_t>(metrics))); }
static_assert(EpochBytes(kMetricSumsMax) <= kFrameSumsBytesMax);
static_assert(2 * EpochBytes(kMetricSumsMax) <= kFiguresBytesMax, "an epoch is stored while the next one begins");
static_assert(kImageHeaderBytesMax >= 10 * kReplicasMax + kFrameScalarsBytesMax + kFiguresBytesMax + 1024);

double MetricRest(const v1::MetricSums& sums, int metric) {
  return metric < sums.metrics_rest_size() ? sums.metrics_rest(metric) : 0;
}

void SetMetricRest(int metric, double rest, v1::MetricSums& sums) {
  if (metric >= sums.metrics_rest_size()) {
    if (rest == 0) return;
    sums.mutable_metrics_rest()->Resize(metric + 1, 0);
  }
  sums.set_metrics_rest(metric, rest);
}

void DropLastZeros(google::protobuf::RepeatedField<double>& numbers) {
  while (!numbers.empty() && numbers.Get(numbers.size() - 1) == 0) numbers.RemoveLast();
}

}  // namespace

void AddSums(const v1::MetricSums& from, int metrics, v1::MetricSums& to) {
  to.set_examples(to.examples() + from.examples());
  ExactSum loss{to.loss(), to.loss_rest()};
  loss.Add(from.loss(), from.loss_rest());
  to.set_loss(loss.value);
  to.set_loss_rest(loss.rest);
  while (to.metrics_size() < metrics) to.add_metrics(0);
  for (int i = 0; i < std::min(metrics, from.metrics_size()); ++i) {
    ExactSum sum{to.metrics(i), MetricRest(to, i)};
    sum.Add(from.metrics(i), MetricRest(from, i));
    to.set_metrics(i, sum.value);
    SetMetricRest(i, sum.rest, to);
  }
  DropLastZeros(*to.mutable_metrics_rest());
}

void AddFigures(const v1::EpochFigures& from, v1::EpochFigures& to) {
  to.set_epoch(from.epoch());
  AddSums(from.train(), std::max(from.train().metrics_size(), to.train().metrics_size()), *to.mutable_train());
  to.set_replica_steps(to.replica_steps() + from.replica_steps());
  to.set_staleness_sum(to.staleness_sum() + from.staleness_sum());
  to.set_staleness_count(to.staleness_count() + from.staleness_count());
  to.set_staleness_max(std::max(to.staleness_max(), from.staleness_max()));
}

absl::Status CheckFigures(const v1::EpochFigures& figures, int metrics) {
  const auto bad = [](auto... what) { return absl::InvalidArgumentError(absl::StrCat("figures: ", what...)); };
  if (figures.epoch() < 0) return bad("epoch ", figures.epoch());
  if (figures.train().metrics_size() != metrics)
    return bad(figures.train().metrics_size(), " metrics, the job has ", metrics);
  if (figures.train().metrics_rest_size() > metrics)
    return bad(figures.train().metrics_rest_size(), " rests of metrics, the job has ", metrics);
  if (figures.train().examples() > kEpochExamplesMax) return bad(figures.train().examples(), " examples");
  if (figures.replica_steps() > kEpochExamplesMax) return bad(figures.replica_steps(), " steps of replicas");
  return absl::OkStatus();
}

absl::Status CheckEpochList(const EpochList& epochs, int metrics) {
  for (int i = 0; i < epochs.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckFigures(epochs[i], metrics));
    if (i > 0 && epochs[i].epoch() <= epochs[i - 1].epoch()) {
      return absl::InvalidArgumentError(
          absl::StrCat("figures: epoch ", epochs[i].epoch(), " after ", epochs[i - 1].epoch()));
    }
  }
  const int most = EpochsKnownMax(metrics);
  if (epochs.empty() || epochs[epochs.size() - 1].epoch() < epochs[0].epoch() + most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("figures: of epochs ", epochs[0].epoch(), " to ",
                                                 epochs[epochs.size() - 1].epoch(), ", more than ", most));
}

int OpenEpochsMax(int metrics) { return static_cast<int>(kFiguresBytesMax / EpochBytes(metrics)); }

void CountFigures(const v1::EpochFigures& update, int metrics, EpochList& epochs) {
  const auto after =
      std::find_if(epochs.begin(), epochs.end(), [&](const auto& e) { return e.epoch() >= update.epoch(); });
  if (after != epochs.end() && after->epoch() == update.epoch()) return AddFigures(update, *after);
  const auto place = after - epochs.begin();
  *epochs.Add() = update;
  std::rotate(epochs.begin() + place, epochs.end() - 1, epochs.end());
  const int32_t newest = epochs[epochs.size() - 1].epoch();
  DropStored(newest - std::min(newest, OpenEpochsMax(metrics) - 1), epochs);
}

void DropStored(int32_t stored, EpochList& epochs) {
  const auto kept = std::find_if(epochs.begin(), epochs.end(), [&](const auto& e) { return e.epoch() >= stored; });
  epochs.erase(epochs.begin(), kept);
}

}  // namespace cairn
