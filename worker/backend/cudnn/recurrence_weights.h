// RecurrenceWeights: the variables of one recurrence, their copies in the type of the products, and where the gradients
// go.
//
// Part of RecurrenceLowering: used by one thread, while a plan is built.
#pragma once

#include "worker/backend/cudnn/builder.h"
#include "worker/backend/recurrence_shape.h"

namespace cairn::cudnn {

class RecurrenceWeights {
 public:
  RecurrenceWeights(Builder& builder, const RecurrenceShape& shape);

  // Emit the copies that kernel(), and recurrent() and candidate(), are.
  void ReadKernel();
  void ReadRecurrent();

  const Ref& kernel() const { return kernel_copy_; }  // [features, width]
  // The columns of the recurrent kernel that meet the state: all of them; of a GRU that resets before the product those
  // of the two gates, and candidate() are those of the third part.
  const Ref& recurrent() const { return recurrent_copy_; }
  const Ref& candidate() const { return candidate_copy_; }
  Ref bias() const { return b_.ValueOf(bias_); }  // none: the layer has none
  // The second row of the bias of a GRU with reset_after: what is added to h U.
  Ref state_bias() const;

  // packed: the inputs, of all steps; dparts: the gradient of the parts.
  void EmitKernelGradient(const Ref& packed, const Ref& dparts) const;
  // states: what met the columns [begin, begin + columns) of the recurrent kernel; d: the gradient of the products.
  void EmitRecurrentGradient(const Ref& states, const Ref& d, int64_t begin, int64_t columns) const;
  void EmitBiasGradient(const Ref& dparts, const Ref& dstate_parts) const;

 private:
  Ref InType(const Ref& weights, int64_t numbers) const;
  Ref Columns(const Ref& all, int64_t begin, int64_t width) const;

  Builder& b_;
  const RecurrenceShape s_;
  const Variable* const kernel_;
  const Variable* const recurrent_;
  const Variable* const bias_;  // null: there is none
  Ref kernel_copy_, recurrent_copy_, candidate_copy_;
};

}  // namespace cairn::cudnn
