// Launchers of the losses that are not sums over rows (ctc_loss.cu, circle_loss.cu): the formulas of
// worker/backend/batch_loss.h, in float64, which also lies in their scratch. The invariants of kernels.h hold.
#pragma once

#include "worker/backend/batch_formulas.h"
#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn::cudnn::kernels {

// Of both losses: labels were checked before. weights: [examples]; null: all 1. results: [examples]. gradients: of the
// size of the outputs, those of the sum over the examples, times key->loss_scale if there is a key; null in evaluation.

// outputs: logits [examples, steps, classes]. labels: [examples, label_size].
struct CtcArguments {
  int64_t examples = 0, steps = 1, classes = 1, label_size = 1;
  const float* weights = nullptr;
};
int64_t CtcScratch(const CtcArguments& a);
Error CtcLoss(Stream stream, const CtcArguments& a, const float* outputs, const float* labels, const StepKey* key,
              float* gradients, double* results, float* scratch);

// outputs: embeddings [examples, size]. classes: [examples].
struct CircleArguments {
  CircleSettings settings;
  int64_t examples = 0, size = 1;
  const float* weights = nullptr;
};
int64_t CircleScratch(const CircleArguments& a);
Error CircleLoss(Stream stream, const CircleArguments& a, const float* outputs, const float* classes,
                 const StepKey* key, float* gradients, double* results, float* scratch);

}  // namespace cairn::cudnn::kernels
