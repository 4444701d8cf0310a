// RowMetrics: adds up the sums of a job's metrics over rows of outputs and targets; common/model/metric_sums.h computes
// the metrics from them.
//
// Not thread-safe. The formulas are those of keras.metrics (Keras 3).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/optimizer.pb.h"
#include "worker/backend/loss.h"

namespace cairn {

template <typename Real>
class RowMetrics {
 public:
  // size: numbers of a row. The sums begin at 0.
  RowMetrics(const v1::Loss& loss, const LossPlan& plan, absl::Span<const v1::Metric> metrics, int64_t size,
             std::vector<double>* sums);

  // Adds a row. x: the outputs as LossAndMetrics gets them; t: the target, one-hot for a class number. known: false for
  // a class number that the loss ignores, since it need not be a class.
  void Add(absl::Span<const Real> x, absl::Span<const Real> t, bool known);

 private:
  struct Place {
    const v1::Metric* metric;
    double* sums;
    int64_t count;
  };

  void AddOne(const Place& place, absl::Span<const Real> x, absl::Span<const Real> t, bool known);
  double Mean(const v1::Metric& metric, absl::Span<const Real> x, absl::Span<const Real> t, bool known);
  double Accuracy(absl::Span<const Real> x, absl::Span<const Real> t, bool known) const;
  double OfLoss(v1::Loss::Kind kind, const v1::Metric& metric, absl::Span<const Real> t);
  void AddConfusion(const v1::Metric& metric, absl::Span<const Real> t, double* sums) const;
  void AddThresholds(const v1::Metric& metric, absl::Span<const Real> t, double* sums, int64_t buckets) const;
  void AddScores(const v1::Metric& metric, absl::Span<const Real> t, double* sums) const;
  void AddIntersections(const v1::Metric& metric, absl::Span<const Real> x, absl::Span<const Real> t, double* sums,
                        bool known) const;
  void AddR2(absl::Span<const Real> t, double* sums) const;
  // Computes the model's output for x into p_.
  void MakeOutputs(absl::Span<const Real> x);

  const v1::Loss loss_;
  const LossPlan& plan_;
  const bool logits_;
  const double share_;  // the weight of a row in its example
  std::vector<Place> places_;
  bool needs_outputs_ = false;
  std::vector<Real> p_, scratch_, smoothed_;
};

}  // namespace cairn
