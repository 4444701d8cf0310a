#include "worker/backend/cudnn/output_loss.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "worker/backend/batch_loss.h"
#include "worker/backend/cudnn/kernels/batch_loss.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/kernels/tensors.h"
#include "worker/backend/cudnn/launches.h"

namespace cairn::cudnn {
namespace {

static_assert(kernels::kMetricsMax == kMetricsMax, "LossArguments has room for all of them");

kernels::LossArguments LossArgumentsOf(const Builder& builder, const LossPart& part) {
  kernels::LossArguments a;
  a.kind = part.loss.kind();
  a.softmax = part.plan.softmax;
  a.fused = part.plan.fused;
  a.from_logits = part.loss.from_logits();
  a.label_smoothing = part.loss.label_smoothing();
  const int64_t positions = part.plan.positions;
  a.examples = LossRows(builder, part);
  a.outputs = part.size / positions;
  a.label_size = part.label_size / positions;
  a.share = 1 / static_cast<float>(positions);
  a.other = SettingsOf(part.loss);
  a.metrics = static_cast<int>(part.metrics.size());
  for (int i = 0; i < a.metrics; ++i) {
    a.metric_kind[i] = part.metrics[i].kind();
    a.metric_k[i] = part.metrics[i].k() == 0 ? 5 : part.metrics[i].k();
  }
  a.weights = builder.training() ? static_cast<int64_t>(part.plan.class_weights.size()) : 0;
  return a;
}

// The weights of rows, if they are not behind the labels that the launch names anyway.
Ref NamedWeights(const LossPlaces& at) {
  return at.labels.place == Ref::kLabels && at.row_weights.place == Ref::kLabels ? Ref{} : at.row_weights;
}

// Of the loss scale.
Ref ScaleKey(const Builder& builder, const LossPlaces& at) {
  return at.gradients && builder.type() == DType::kFloat16 ? Ref{Ref::kKey} : Ref{};
}

void EmitBatchLoss(Builder& builder, const LossPart& part, const LossPlaces& at) {
  const Ref key = ScaleKey(builder, at);
  const auto emit = [&](int64_t scratch_floats, auto launch) {
    const Ref scratch = builder.Scratch(scratch_floats);
    builder.Emit(absl::StrCat("loss ", v1::Loss::Kind_Name(part.loss.kind())),
                 {at.outputs, at.labels, key, NamedWeights(at)}, {at.by_row, at.gradients, scratch}, [=](const Run& r) {
                   return launch(r, r.At<kernels::StepKey>(key), r.At<float>(at.gradients), r.At<double>(at.by_row),
                                 r.At<float>(scratch));
                 });
  };
  if (part.loss.kind() == v1::Loss::CIRCLE) {
    const kernels::CircleArguments a{CircleSettingsOf(part.loss), builder.examples(), part.size, nullptr};
    return emit(kernels::CircleScratch(a),
                [=](const Run& r, const kernels::StepKey* scale, float* gradients, double* results, float* scratch) {
                  kernels::CircleArguments with = a;
                  with.weights = r.At<float>(at.row_weights);
                  return kernels::CircleLoss(r.stream(), with, r.At<float>(at.outputs), r.At<float>(at.labels), scale,
                                             gradients, results, scratch);
                });
  }
  const int64_t steps = part.plan.metric_rows;
  const kernels::CtcArguments a{builder.examples(), steps, part.size / steps, part.label_size, nullptr};
  emit(kernels::CtcScratch(a),
       [=](const Run& r, const kernels::StepKey* scale, float* gradients, double* results, float* scratch) {
         kernels::CtcArguments with = a;
         with.weights = r.At<float>(at.row_weights);
         return kernels::CtcLoss(r.stream(), with, r.At<float>(at.outputs), r.At<float>(at.labels), scale, gradients,
                                 results, scratch);
       });
}

void EmitRowLoss(Builder& builder, const LossPart& part, const LossPlaces& at) {
  const kernels::LossArguments a = LossArgumentsOf(builder, part);
  const Ref weights = a.weights > 0 ? Ref{Ref::kClassWeights} : Ref{}, key = ScaleKey(builder, at);
  builder.Emit(
      "loss", {at.outputs, at.labels, weights, key, NamedWeights(at)}, {at.by_row, at.gradients}, [=](const Run& r) {
        kernels::LossArguments with = a;
        with.row_weights = r.At<float>(at.row_weights);
        return kernels::Loss(r.stream(), with, r.At<float>(at.outputs), r.At<float>(at.labels), r.At<float>(weights),
                             r.At<kernels::StepKey>(key), r.At<float>(at.gradients), r.At<double>(at.by_row));
      });
}

// The rows that count share the weight of the whole batch.
Ref EmitMaskedWeights(Builder& builder, const kernels::MaskedRows& masked, const Ref& mask, const Ref& given) {
  const Ref weights = builder.NewNumbers(masked.rows, DType::kFloat32);
  builder.Emit("weights of rows", {mask, given}, {weights}, [=](const Run& r) {
    kernels::MaskedRows m = masked;
    m.mask = r.At<float>(mask);
    return kernels::MaskedRowWeights(r.stream(), m, r.At<float>(given), r.At<float>(weights));
  });
  return weights;
}

// Some columns of a tensor of float32, one row an example.
struct ColumnsOf {
  Ref ref;
  int64_t width = 0, begin = 0;
};

void EmitColumns(Builder& builder, const ColumnsOf& from, const ColumnsOf& to, int64_t width) {
  const bool part = to.begin > 0 || to.width > width;
  builder.Emit(absl::StrCat("columns ", part ? absl::StrCat("to ", to.begin) : absl::StrCat("from ", from.begin)),
               {from.ref}, {to.ref}, [=, examples = builder.examples()](const Run& r) {
                 return kernels::CopyColumns(r.stream(), examples, width, r.At<>(from.ref), from.width, from.begin,
                                             r.At<>(to.ref), to.width, to.begin, DType::kFloat32, false);
               });
}

}  // namespace

int64_t LossRows(const Builder& builder, const LossPart& part) { return builder.examples() * part.plan.positions; }
int64_t LossColumns(const LossPart& part) { return 1 + static_cast<int64_t>(part.metrics.size()); }

void EmitLoss(Builder& builder, const LossPart& part, const LossPlaces& at) {
  const int64_t rows = LossRows(builder, part), columns = LossColumns(part);
  const kernels::MaskedRows masked{builder.examples(), rows, at.mask_steps, nullptr};
  LossPlaces with = at;
  if (at.mask) with.row_weights = EmitMaskedWeights(builder, masked, at.mask, at.row_weights);
  if (IsBatchLoss(part.loss.kind())) {
    EmitBatchLoss(builder, part, with);
  } else {
    EmitRowLoss(builder, part, with);
  }
  if (at.mask) {
    builder.Emit("clear masked rows", {at.mask, at.by_row, at.gradients}, {at.by_row, at.gradients},
                 [=, outputs = part.size / part.plan.positions](const Run& r) {
                   kernels::MaskedRows m = masked;
                   m.mask = r.At<float>(at.mask);
                   return kernels::ClearMaskedRows(r.stream(), m, outputs, r.At<float>(at.gradients), columns,
                                                   r.At<double>(at.by_row));
                 });
  }
  builder.Emit("sums", {at.by_row}, {at.results}, [=](const Run& r) {
    return kernels::SumDoubles(r.stream(), rows, columns, r.At<double>(at.by_row), r.At<double>(at.results));
  });
}

void EmitLossParts(Builder& builder, const Ref& outputs, const Ref& gradients) {
  const LoweringOptions& options = builder.options();
  const int64_t examples = builder.examples(), all = NumElements(builder.graph().output().output);
  const Ref penalties{Ref::kResults};
  builder.EmitChecked("zero", {}, {penalties},
                      [=](const Run& r) { return r.machine.Zero(r.At<>(penalties), sizeof(double)); });
  if (gradients) {
    builder.Emit("zero", {}, {gradients}, [=](const Run& r) {
      return kernels::Fill(r.stream(), examples * all, 0, r.At<>(gradients), DType::kFloat32);
    });
  }
  int64_t result = 1, row = examples * options.label_size;
  for (const LossPart& part : options.parts) {
    LossPlaces at;
    at.outputs = builder.NewNumbers(examples * part.size, DType::kFloat32);
    at.labels = builder.NewNumbers(examples * part.label_size, DType::kFloat32);
    EmitColumns(builder, {outputs, all, part.begin}, {at.outputs, part.size}, part.size);
    EmitColumns(builder, {Ref{Ref::kLabels}, options.label_size, part.label_begin}, {at.labels, part.label_size},
                part.label_size);
    if (options.row_weights) at.row_weights = {Ref::kLabels, 0, row * static_cast<int64_t>(sizeof(float))};
    at.by_row = builder.New(LossRows(builder, part) * LossColumns(part) * static_cast<int64_t>(sizeof(double)));
    if (gradients) at.gradients = builder.NewNumbers(examples * part.size, DType::kFloat32);
    at.results = {Ref::kResults, 0, result * static_cast<int64_t>(sizeof(double))};
    EmitLoss(builder, part, at);
    result += LossColumns(part);
    row += LossRows(builder, part);
    if (!gradients) continue;
    if (part.weight != 1) {
      builder.Emit(absl::StrCat("copy * ", part.weight), {at.gradients}, {at.gradients},
                   [=, n = examples * part.size, weight = part.weight](const Run& r) {
                     return kernels::Affine(r.stream(), n, weight, 0, r.At<>(at.gradients), DType::kFloat32,
                                            r.At<>(at.gradients), DType::kFloat32, false);
                   });
    }
    EmitColumns(builder, {at.gradients, part.size}, {gradients, all, part.begin}, part.size);
  }
}

}  // namespace cairn::cudnn
