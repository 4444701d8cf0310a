// RecurrenceShape: the sizes of one recurrence (common/model/recurrent.h) on one batch, and the order of its steps.
//
// A value; any thread.
#pragma once

#include <cstdint>

#include "common/model/graph.h"
#include "common/model/recurrent.h"

namespace cairn {

struct RecurrenceShape {
  RecurrenceShape(const Recurrence& recurrence, int64_t batch, const Shape& input)
      : r(recurrence),
        examples(batch),
        steps(input[0]),
        features(NumElements(input) / input[0]),
        step(input.begin() + 1, input.end()) {}

  Recurrence r;
  int64_t examples = 0, steps = 0;
  int64_t features = 0;  // the numbers of a step of the input
  Shape step;            // of the input

  int64_t units() const { return r.units; }
  int64_t width() const { return r.gates() * r.units; }  // of the parts of a position: of the kernels' columns
  int64_t positions() const { return r.windows.positions(); }
  int64_t state_numbers() const { return r.state_numbers(); }
  int64_t step_rows() const { return examples * positions(); }  // of the parts of a step
  int64_t rows() const { return steps * step_rows(); }          // of all steps
  // GRU: whether the reset gate acts on the state before its product with the recurrent kernel, or on the product.
  bool ResetsBefore() const { return r.cell == RecurrentCell::kGru && !r.reset_after; }
  bool ResetsAfter() const { return r.cell == RecurrentCell::kGru && r.reset_after; }
  // The step of the input that is computed as this number.
  int64_t InputStep(int64_t number) const { return r.go_backwards ? steps - 1 - number : number; }
};

}  // namespace cairn
