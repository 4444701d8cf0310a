// Sums of a job's metrics over rows of outputs and targets: what common/model/metric_sums.h makes figures of.
//
// Of one thread. Formulas as keras.metrics (Keras 3).
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

  // x: the outputs as LossAndMetrics has them; t: the target, a one-hot vector for a class number. known: false for a
  // class number that is ignored by the loss: it is no class.
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
  // What the model gives for x, into p_.
  void MakeOutputs(absl::Span<const Real> x);

  const v1::Loss loss_;
  const LossPlan& plan_;
  const bool logits_;
  const double share_;  // of a row in its example
  std::vector<Place> places_;
  bool needs_outputs_ = false;
  std::vector<Real> p_, scratch_, smoothed_;
};

}  // namespace cairn
