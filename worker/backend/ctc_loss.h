// Connectionist temporal classification (Graves et al. 2006), as keras.losses.CTC: the negative logarithm of the
// probability that a sequence of outputs gives a sequence of labels, over all their alignments. Class 0 is the blank.
//
// Pure functions; any thread. Sums run in float64 in a fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"

namespace cairn {

// The labels of an example: class numbers from 1, then only 0. Returns how many. Errors: INVALID_ARGUMENT: a number is
// no class, a label stands behind a 0, or `steps` outputs are too few: one for each label, and one more between two
// equal ones.
absl::StatusOr<int64_t> CheckCtcLabels(int64_t example, int64_t steps, int64_t classes, absl::Span<const float> labels);

template <typename Real>
class CtcLoss {
 public:
  CtcLoss(int64_t steps, int64_t classes) : steps_(steps), classes_(classes) {}

  // x: logits [steps, classes]. labels: checked. gradient: of the same size as x, or empty.
  double Compute(absl::Span<const Real> x, absl::Span<const float> labels, int64_t count, absl::Span<Real> gradient);

 private:
  // The class at place s of the labels with blanks around each of them.
  int64_t ClassAt(absl::Span<const float> labels, int64_t s) const {
    return s % 2 == 0 ? 0 : static_cast<int64_t>(labels[s / 2]);
  }
  // Whether an alignment may go from place s - 2 to s.
  bool Skips(absl::Span<const float> labels, int64_t s) const {
    return s % 2 == 1 && s > 1 && labels[s / 2] != labels[s / 2 - 1];
  }
  void Normalize(absl::Span<const Real> x);
  void Forward(absl::Span<const float> labels, int64_t places);
  // Writes into `gradient`. log_probability: of all alignments.
  void Backward(absl::Span<const float> labels, int64_t places, double log_probability, absl::Span<Real> gradient);

  const int64_t steps_, classes_;
  std::vector<double> log_p_;           // [steps, classes]
  std::vector<double> alpha_;           // [steps, places]: the logarithm of all ways there
  std::vector<double> beta_, earlier_;  // [places]: of all ways from there to the end
};

}  // namespace cairn
