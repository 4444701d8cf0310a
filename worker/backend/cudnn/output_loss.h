// The launches of losses: of a row, of a batch (CTC, CIRCLE), and of several outputs.
//
// As for Builder, one thread.
#pragma once

#include "worker/backend/cudnn/builder.h"

namespace cairn::cudnn {

// Where a loss finds what it needs, and leaves what it computes. All but `by_row` and `results` in float32.
struct LossPlaces {
  Ref outputs = {};      // [examples, size]
  Ref labels = {};       // [examples, label_size]
  Ref row_weights = {};  // none: each row has its share of the example
  Ref mask = {};         // [examples, mask_steps]: which steps count; none: all
  int64_t mask_steps = 0;
  Ref by_row = {};     // LossRows x LossColumns float64
  Ref gradients = {};  // [examples, size]; none: not needed
  Ref results = {};    // LossColumns float64: the sums over the rows
};

int64_t LossRows(const Builder& builder, const LossPart& part);
int64_t LossColumns(const LossPart& part);  // the loss, then the metrics
void EmitLoss(Builder& builder, const LossPart& part, const LossPlaces& at);
// The losses of LoweringOptions.parts, of columns of the joined outputs. gradients: of all of these; none: not needed.
void EmitLossParts(Builder& builder, const Ref& outputs, const Ref& gradients);

}  // namespace cairn::cudnn
